"""ReduceMax over H and W to maximum pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, reduction_of
from edgekit.rewrite.pooling._reduced import greatest_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ReduceMax"]


class ReduceMax:
    """A maximum over H, W or both as a maximum of maxima."""

    name = "reduce-max"
    reason = "the DLA lacks maximum Reduce with most releases; maximum pools stand there instead"
    operators: tuple[str, ...] = ("ReduceMax",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every ReduceMax over H and W of a 4-D tensor; over C there is no pool."""
        found = reduction_of(graph, node)
        parts = found and greatest_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the maximum pools, and a reshape where dimensions go."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
