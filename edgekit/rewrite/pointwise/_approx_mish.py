"""Mish to a sigmoid, approximately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.pointwise._common import channels, scaled
from edgekit.rewrite.pointwise._mish import mish_at

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Match, Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ApproxMish"]

# the slope with the smallest largest deviation; the best clipped line in its place is 0.146 off
_SLOPE = 1.25


class ApproxMish:
    """At most 0.104 from Mish; where the DLA divides, "mish" is exact."""

    name = "approx-mish"
    reason = (
        "the DLA has no softplus; x sigmoid(1.25 x) differs from Mish by at most 0.104 and needs "
        "no division"
    )
    operators: tuple[str, ...] = ("Mish", "Softplus")
    enabling = False
    deviation = 0.104

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Mish of an image, or Softplus, Tanh and Mul as exporters write it."""
        return mish_at(graph, node)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale, the sigmoid and the product."""
        source, output = match.facts
        line = scaled(new, source, _SLOPE, 0.0, channels(graph, source))
        gate = new.node("Sigmoid", [line], role="sigmoid")
        new.node("Mul", [source, gate], output=output)
