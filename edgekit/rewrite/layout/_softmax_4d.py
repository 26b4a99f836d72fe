"""Softmax of a matrix as a softmax of a 4-D tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again, reshaped, write
from edgekit.rewrite.layout._operators import ALONG
from edgekit.rewrite.layout._reshaped import carried
from edgekit.rewrite.layout._views import lowered, view

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Softmax4d"]

_RANKS = {2, 3}
_DLA_RANK = 4


class Softmax4d:
    """Softmax on [N, C] or [N, C, L] -> Reshape to 4-D, Softmax, Reshape.

    The new dimensions have size 1 and stand behind, so the axis is the same one. Where the tensor
    comes from a 4-D one that has the axis, ``sink-reshape`` does it with one reshape. It ends as
    that does.
    """

    name = "softmax-4d"
    reason = (
        "a softmax runs on Orin's DLA when its tensor has four dimensions: the classes are the "
        "channels, and the reshape to the result stands behind"
    )
    operators: tuple[str, ...] = ALONG
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Takes those of two or three dimensions."""
        shape = graph.shape(node.inputs[0])
        if len(shape) not in _RANKS or _sinks(graph, node):
            return None
        by = view((*shape, *(1,) * (_DLA_RANK - len(shape))), shape)
        there = carried(graph, node, by) if by is not None else None
        return Match((node, *there.passed), there) if there is not None else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the softmax between two reshapes."""
        node, *passed = match.nodes
        again(graph, new, tuple(passed), (node,))
        made = write(new, node, match.facts, [""])[0]
        old = node.outputs[0]
        reshaped(new, made, graph.shape(old), output=old, name=f"{node.name}:reshape")


def _sinks(graph: Graph, node: Node) -> bool:
    reshape = lowered(graph, node.inputs[0])
    if reshape is None:
        return False
    by = view(graph.shape(reshape.inputs[0]), graph.shape(node.inputs[0]))
    return by is not None and carried(graph, node, by) is not None
