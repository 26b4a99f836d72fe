"""ScatterElements of whole channels, rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
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
        if not writable(graph, node):
            return None
        shape, found = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        if axis == 0 or (*found[:axis], *found[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
            return None
        value = graph.value(node.inputs[1])
        assert value is not None
        line = value[tuple(slice(None) if at == axis else slice(1) for at in range(len(shape)))]
        if not (value == line).all():
            return None
        picks = [int(index) % shape[axis] for index in line.ravel()]
        return place_match(node, Place(axis, picks))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes what stays and the updates."""
        write_scatter(graph, match, new)
