"""AveragePool beyond the limits of the DLA to cascades and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, pool_of
from edgekit.rewrite.pooling._inclusive import inclusive_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["LargeAveragePool"]


class LargeAveragePool:
    """An average over a large window as averages of averages or a depthwise convolution."""

    name = "large-average-pool"
    reason = (
        "the DLA lacks average pools of this window or stride; smaller ones or a depthwise "
        "convolution stand there instead"
    )
    operators: tuple[str, ...] = ("AveragePool",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every 2-D AveragePool whose window, stride or dilation the DLA lacks."""
        found = pool_of(graph, node)
        if found is None or found.within:
            return None
        parts = inclusive_parts(graph, node, found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the pools or convolutions, and a position map where padding is not counted."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
