"""ScatterElements of whole channels, rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.sequence._along import picks_along
from edgekit.rewrite.sequence._scattering import REASON, Place, place_match, writable, write_scatter

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ScatterElements"]


class ScatterElements:
    """ScatterElements of whole channels, rows or columns at constant indices.

    A range of channels is replaced by a Concat of what stays and the updates; scattered channels
    are set to zero by a scale and the updates, placed by a 1x1 convolution, are added. Along H and
    W the same is done between transpositions. Reductions other than "add", indices that differ
    from place to place or come twice, and the batch have no such form.
    """

    name = "scatter-elements"
    reason = REASON
    operators: tuple[str, ...] = ("ScatterElements",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a ScatterElements that writes whole channels, rows or columns."""
        picks = picks_along(graph, node) if writable(graph, node) else None
        return place_match(node, Place(*picks)) if picks else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes what stays and the updates."""
        write_scatter(graph, match, new)
