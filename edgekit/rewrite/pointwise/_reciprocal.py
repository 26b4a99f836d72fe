"""Reciprocals to a division of two activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, form, image, scaled, vector

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Reciprocal"]


class Reciprocal:
    """The numerator 0 * min(max(x, 0), 1) + c is the constant c without a constant layer.

    The clip keeps an infinite denominator, as exp(100) in FP32 or exp(12) in FP16, from making a
    NaN of 0 * x.
    """

    name = "reciprocal"
    reason = (
        "a constant numerator stays on the GPU; a scale of the clipped denominator by 0 plus the "
        "constant makes the same numerator on the DLA"
    )
    operators: tuple[str, ...] = ("Reciprocal", "Div")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Reciprocal of an image, or a Div of a number, or one for each channel, by an image."""
        source = node.inputs[-1]
        if not image(graph, source):
            return None
        if node.op == "Reciprocal":
            return Match((node,), "")
        numerator = node.inputs[0]
        if not graph.constant(numerator):
            return None
        if form(graph.shape(numerator), graph.shape(source)) not in {"uniform", "channel"}:
            return None
        return Match((node,), numerator)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the numerator and the division."""
        node = match.nodes[0]
        source, numerator = node.inputs[-1], match.facts
        count = channels(graph, source)
        value = vector(graph, new, numerator, count) if numerator else 1.0
        low, high = (new.constant(bound, role="bound") for bound in (0.0, 1.0))
        finite = new.node("Clip", [source, low, high], role="finite")
        above = scaled(new, finite, 0.0, value, count, role="numerator")
        new.node("Div", [above, source], output=node.outputs[0])
