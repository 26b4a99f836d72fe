"""GELU with the error function to a sigmoid, approximately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.pointwise._common import channels, scaled
from edgekit.rewrite.pointwise._erf_gelu import OPERATORS, erf_gelu

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Match, Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ApproxGeluSigmoid"]

# of Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
_SLOPE = 1.702


class ApproxGeluSigmoid:
    """At most 0.0204 from GELU (at |x| near 2.2), in two layers fewer than the tanh form."""

    name = "approx-gelu-sigmoid"
    reason = (
        "the DLA has no error function; x sigmoid(1.702 x) differs from GELU by at most 0.0204 "
        "and runs there in three layers"
    )
    operators: tuple[str, ...] = OPERATORS
    enabling = False
    deviation = 0.0204

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Gelu without approximation, or the Erf in what exporters write for it."""
        return erf_gelu(graph, node)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale, the sigmoid and the product."""
        source, output = match.facts
        line = scaled(new, source, _SLOPE, 0.0, channels(graph, source))
        gate = new.node("Sigmoid", [line], role="sigmoid")
        new.node("Mul", [source, gate], output=output)
