"""AveragePool that leaves padding out to one that counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, pool_of
from edgekit.rewrite.pooling._inclusive import inclusive_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["AveragePoolInclusive"]


class AveragePoolInclusive:
    """An average of real elements as one with padding, times a map of positions."""

    name = "average-pool-inclusive"
    reason = (
        "Xavier's DLA cannot leave padding out of an average; a pool that counts it and a "
        "scale by position stand there instead"
    )
    operators: tuple[str, ...] = ("AveragePool",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every padded 2-D AveragePool with count_include_pad = 0 within the limits."""
        found = pool_of(graph, node)
        if found is None or not (found.within and found.padded):
            return None
        if node.attrs.get("count_include_pad", 0):
            return None
        parts = inclusive_parts(graph, node, found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the pool and the scale."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
