"""MaxPool beyond the limits of the DLA to a cascade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, pool_of
from edgekit.rewrite.pooling._windows import maximum_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["LargeMaxPool"]


class LargeMaxPool:
    """A maximum over a large window as a maximum of maxima."""

    name = "large-max-pool"
    reason = (
        "the DLA lacks maximum pools of this window or stride; smaller ones, one after the "
        "other, stand there instead"
    )
    operators: tuple[str, ...] = ("MaxPool",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every 2-D MaxPool beyond the limits that writes no indices."""
        found = pool_of(graph, node)
        if found is None or found.within:
            return None
        parts = maximum_parts(found.height, found.width)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the maximum pools."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
