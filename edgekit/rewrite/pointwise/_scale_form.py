"""Arithmetic with constants in forms that become no SCALE layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import form, image, scaled, to_shape, vector

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ScaleForm"]


class ScaleForm:
    """c - x, x / c, Sum(x, c), and constants that repeat along H or W only.

    A constant that makes the result larger than the activation is left to "broadcast-operand".
    """

    name = "scale-form"
    reason = (
        "the builder makes a SCALE layer only of x op c with c a number, one for each channel or "
        "one for each element; other constants stay on the GPU"
    )
    operators: tuple[str, ...] = ("Add", "Mul", "Sub", "Div", "Sum")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """An image and a constant that are no SCALE layer, or a division."""
        if len(node.inputs) != 2:
            return None
        fixed = [graph.constant(name) for name in node.inputs]
        if fixed not in ([True, False], [False, True]):
            return None
        constant_first = fixed[0]
        source, constant = reversed(node.inputs) if constant_first else node.inputs
        if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
            return None
        fits = form(graph.shape(constant), graph.shape(source))
        if not fits or (node.op == "Div" and constant_first):
            return None
        turned = node.op == "Sub" and constant_first
        if not turned and node.op not in {"Div", "Sum"} and fits != "other":
            return None
        return Match((node,), (source, constant, turned, fits))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a scale; the constants that it takes are derived from the old ones."""
        node = match.nodes[0]
        source, constant, turned, fits = match.facts
        output, shape = node.outputs[0], graph.shape(source)
        if turned and fits in {"uniform", "channel"}:
            shift = vector(graph, new, constant, shape[1])
            scaled(new, source, -1.0, shift, shape[1], output=output)
            return
        operand = to_shape(graph, new, constant, shape)
        if turned:
            source = scaled(new, source, -1.0, 0.0, shape[1], role="turned")
        if node.op == "Div":
            operand = new.node("Reciprocal", [operand])
        op = {"Div": "Mul", "Sum": "Add"}.get(node.op, "Add" if turned else node.op)
        new.node(op, [source, operand], output=output)
