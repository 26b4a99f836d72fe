"""GatherND of whole channels, rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.sequence._gathering import REASON, readable, write_selection

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["GatherNd"]


class GatherNd:
    """GatherND with constant indices along one axis, everything before it a batch or of size 1.

    As a convolution it is equal for finite values only.
    """

    name = "gather-nd"
    reason = REASON
    operators: tuple[str, ...] = ("GatherND",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a GatherND that chooses whole channels, rows or columns, the same everywhere."""
        if not readable(graph, node):
            return None
        shape = graph.shape(node.inputs[0])
        value = graph.value(node.inputs[1])
        assert value is not None
        batch = int(node.attrs.get("batch_dims", 0))
        axis = batch + value.shape[-1] - 1
        if axis < 1 or not value.size or any(size != 1 for size in shape[batch:axis]):
            return None
        line = value[(slice(1),) * batch]
        if not (value == line).all():
            return None
        return Match((node,), (axis, [int(i) % shape[axis] for i in line[..., -1].ravel()]))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection and, where dimensions go, a Reshape."""
        write_selection(graph, match, new)
