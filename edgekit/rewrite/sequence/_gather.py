"""Gathering with constant indices: slices, concatenations and convolutions that select."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.rewrite._select import pick, reshape
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Gather", "GatherElements", "GatherNd", "GatherShaped"]

_REASON = (
    "The DLA gathers nothing; constant indices are a slice, slices side by side, "
    "or a 1x1 convolution of 0 and 1"
)


def _readable(graph: Graph, node: Node) -> bool:
    """Whether a node gathers from an activation of floats, at indices that are constant."""
    data = node.inputs[0]
    fixed = graph.constant(node.inputs[1]) and not graph.constant(data)
    return fixed and graph.floats(data) and graph.rank(data) > 1 and 0 not in graph.shape(data)


def _gathered(graph: Graph, node: Node) -> tuple[int, list[int]] | None:
    """Axis and indices of a Gather along any axis but the batch."""
    if not _readable(graph, node):
        return None
    shape = graph.shape(node.inputs[0])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    picks = graph.ints(node.inputs[1])
    if not picks:
        return None
    picks = [index % shape[axis] for index in picks]
    return axis, picks


class Gather:
    """Gather of some channels, rows or columns of a 4-D tensor.

    One range of channels is a Slice, a few are Slices and a Concat, others a 1x1 convolution.
    Along H and W a range is a Slice, every n-th element a pooling of window 1, anything else goes
    through the channels between transpositions. A table that computed indices look up (an
    embedding) has no such form.
    """

    name = "gather"
    reason = _REASON
    operators: tuple[str, ...] = ("Gather",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Gather at a list of constant indices, not along the batch."""
        found = _gathered(graph, node)
        if found is None or not found[0]:
            return None
        plain = graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
        return Match((node,), found) if plain else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection."""
        _select(graph, match, new)


class GatherShaped:
    """Gather that changes the number of dimensions, or of a tensor that has not four.

    The same selection on four dimensions and a Reshape; ``x[0]`` of a batch of 1 is the Reshape
    alone.
    """

    name = "gather-shaped"
    reason = _REASON
    operators: tuple[str, ...] = ("Gather",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Gather at a constant index, or of another rank than 4."""
        found = _gathered(graph, node)
        if found is None:
            return None
        axis, picks = found
        if axis == 0 and (graph.shape(node.inputs[0])[0] != 1 or len(picks) != 1):
            return None
        plain = axis and graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
        return None if plain else Match((node,), found)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection and the Reshape."""
        _select(graph, match, new)


class GatherElements:
    """GatherElements whose constant indices are the same at every other place: a Gather."""

    name = "gather-elements"
    reason = _REASON
    operators: tuple[str, ...] = ("GatherElements",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a GatherElements that chooses whole channels, rows or columns."""
        if not _readable(graph, node):
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
        _select(graph, match, new)


class GatherNd:
    """GatherND with constant indices along one axis, everything before it a batch or of size 1."""

    name = "gather-nd"
    reason = _REASON
    operators: tuple[str, ...] = ("GatherND",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a GatherND that chooses whole channels, rows or columns, the same everywhere."""
        if not _readable(graph, node):
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
        _select(graph, match, new)


def _select(graph: Graph, match: Match, new: Writer) -> None:
    (node,) = match.nodes
    axis, picks = match.facts
    source, output = node.inputs[0], node.outputs[0]
    shape, result = graph.shape(source), graph.shape(output)
    made = (*shape[:axis], len(picks), *shape[axis + 1 :])
    whole = picks == list(range(shape[axis]))
    if made == result and not (whole and math.prod(result)):
        pick(new, source, shape, axis, picks, output=output)
        return
    chosen = source if whole else pick(new, source, shape, axis, picks)
    reshape(new, chosen, result, output=output)
