"""GatherElements of whole channels, rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.sequence._along import picks_along
from edgekit.rewrite.sequence._gathering import REASON, readable, write_selection

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["GatherElements"]


class GatherElements:
    """GatherElements whose constant indices are the same at every other place: a Gather.

    As a convolution it is equal for finite values only.
    """

    name = "gather-elements"
    reason = REASON
    operators: tuple[str, ...] = ("GatherElements",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a GatherElements that chooses whole channels, rows or columns."""
        if not readable(graph, node) or 0 in graph.shape(node.inputs[1]):
            return None
        picks = picks_along(graph, node)
        return Match((node,), picks) if picks else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection."""
        write_selection(graph, match, new)
