"""Comparisons with constants to comparisons of two activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, form, image, scaled, vector

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["CompareConstant"]


class CompareConstant:
    """The other operand 0 * x + c is the constant c for every finite x."""

    name = "compare-constant"
    reason = (
        "a constant operand of a comparison stays on the GPU; a scale of the other operand by 0 "
        "plus the constant makes the same operand on the DLA"
    )
    operators: tuple[str, ...] = ("Equal", "Greater", "Less")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A comparison of an image with a number, or one for each channel, cast to numbers."""
        fixed = [graph.constant(name) for name in node.inputs]
        if fixed not in ([True, False], [False, True]):
            return None
        source, constant = node.inputs[fixed.index(False)], node.inputs[fixed.index(True)]
        if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
            return None
        if form(graph.shape(constant), graph.shape(source)) not in {"uniform", "channel"}:
            return None
        # the DLA compares only where a cast to numbers follows
        readers = graph.readers(node.outputs[0])
        if not readers or any(reader.op != "Cast" for reader in readers):
            return None
        return Match((node,), (source, constant))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the operand and the comparison."""
        node = match.nodes[0]
        source, constant = match.facts
        count = channels(graph, source)
        value = vector(graph, new, constant, count)
        operand = scaled(new, source, 0.0, value, count, role="operand")
        operands = [operand if name == constant else name for name in node.inputs]
        new.node(node.op, operands, output=node.outputs[0])
