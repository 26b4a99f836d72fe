"""GatherElements of whole channels, rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
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
        if not readable(graph, node):
            return None
        shape, found = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        if axis == 0 or 0 in found:
            return None
        if (*found[:axis], *found[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
            return None
        value = graph.value(node.inputs[1])
        assert value is not None
        line = value[tuple(slice(None) if at == axis else slice(1) for at in range(len(shape)))]
        if not (value == line).all():
            return None
        return Match((node,), (axis, [int(index) % shape[axis] for index in line.ravel()]))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection."""
        write_selection(graph, match, new)
