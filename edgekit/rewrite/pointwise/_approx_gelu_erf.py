"""GELU with the error function to its tanh form, approximately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.pointwise._erf_gelu import OPERATORS, erf_gelu
from edgekit.rewrite.pointwise._gelu_tanh import gelu_tanh

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Match, Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ApproxGeluErf"]


class ApproxGeluErf:
    """At most 4.8e-4 from GELU (at |x| near 2.7)."""

    name = "approx-gelu-erf"
    reason = (
        "the DLA has no error function; the tanh form of GELU differs by at most 4.8e-4 and runs "
        "there in five layers"
    )
    operators: tuple[str, ...] = OPERATORS
    enabling = False
    deviation = 4.8e-4

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Gelu without approximation, or the Erf in what exporters write for it."""
        return erf_gelu(graph, node)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the tanh form."""
        source, output = match.facts
        gelu_tanh(graph, new, source, output=output)
