"""What the rewrites of gathering have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import pick, reshape
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["REASON", "gathered", "readable", "write_selection"]


#: Why, for all of them.
REASON = (
    "The DLA gathers nothing; constant indices are a slice, slices side by side, "
    "or a 1x1 convolution of 0 and 1"
)


def readable(graph: Graph, node: Node) -> bool:
    """Returns whether a node gathers from an activation of floats, at indices that are constant."""
    data = node.inputs[0]
    fixed = graph.constant(node.inputs[1]) and not graph.constant(data)
    return fixed and graph.floats(data) and graph.rank(data) > 1 and 0 not in graph.shape(data)


def gathered(graph: Graph, node: Node) -> tuple[int, list[int]] | None:
    """Returns axis and indices of a Gather along any axis but the batch; else None."""
    if not readable(graph, node):
        return None
    shape = graph.shape(node.inputs[0])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    picks = graph.ints(node.inputs[1])
    if not picks:
        return None
    picks = [index % shape[axis] for index in picks]
    return axis, picks


def write_selection(graph: Graph, match: Match, new: Writer) -> None:
    """Writes the selection of ``match`` (axis, indices) and a Reshape where shapes differ."""
    (node,) = match.nodes
    axis, picks = match.facts
    source, output = node.inputs[0], node.outputs[0]
    shape, result = graph.shape(source), graph.shape(output)
    made = (*shape[:axis], len(picks), *shape[axis + 1 :])
    whole = picks == list(range(shape[axis]))
    if made == result and not whole:
        pick(new, source, shape, axis, picks, output=output)
        return
    chosen = source if whole else pick(new, source, shape, axis, picks)
    reshape(new, chosen, result, output=output)
