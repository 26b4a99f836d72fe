"""Slices with steps: pooling of window 1 along H and W, a convolution along C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import factors, pick, stepped
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._sliced import Span, slice_of, write_slice

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["SliceBackward", "SliceChannels", "StridedSlice"]


def _spans(graph: Graph, node: Node) -> list[Span] | None:
    if not graph.floats(node.inputs[0]) or graph.rank(node.inputs[0]) != 4:
        return None
    return slice_of(graph, node)


class StridedSlice:
    """A slice with steps along H or W: the same slice without, then pooling of window 1.

    Steps beyond the largest pooling stride take several poolings; one with a prime factor beyond
    it stays. Where the slice begins at 0 and reaches the end there is nothing to slice.
    """

    name = "strided-slice"
    reason = (
        "The DLA slices with stride 1 only; a maximum pooling of window 1 keeps each n-th element"
    )
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice with a step above 1 along H or W and none along N and C."""
        spans = _spans(graph, node)
        if spans is None or spans[0] != (0, graph.shape(node.inputs[0])[0], 1):
            return None
        from edgekit.dla import limit

        most = limit("pooling.stride")[1]
        steps = [step for _, _, step in spans]
        if steps[1] != 1 or min(steps) < 1 or max(steps[2:]) == 1:
            return None
        if any(factors(step, most) is None for step in steps[2:]):
            return None
        return Match((node,), spans)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the slice and the poolings."""
        (node,) = match.nodes
        places = {axis: span for axis, span in enumerate(match.facts) if axis}
        shape = graph.shape(node.inputs[0])
        stepped(new, node.inputs[0], shape, places, output=node.outputs[0])


class SliceChannels:
    """A slice with a step along C, backwards too: a 1x1 convolution that picks the channels."""

    name = "slice-channels"
    reason = "The DLA slices with stride 1 only; a 1x1 convolution of 0 and 1 picks the channels"
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice with a step along C."""
        spans = _spans(graph, node)
        return Match((node,), spans) if spans is not None and spans[1][2] != 1 else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the choice of channels, and a Slice of what else is sliced."""
        _one_axis(graph, match, new, 1)


class SliceBackward:
    """A slice backwards along H or W: the channel form between two transpositions."""

    name = "slice-backward"
    reason = (
        "The DLA slices with stride 1 only; "
        "a 1x1 convolution reverses what transpositions make the channels"
    )
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice with a negative step along H or W."""
        spans = _spans(graph, node)
        if spans is None or spans[1][2] != 1:
            return None
        axis = next((axis for axis in (2, 3) if spans[axis][2] < 0), 0)
        return Match((node,), spans) if axis else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the transpositions and the convolution, and a Slice of what else is sliced."""
        axis = next(axis for axis in (2, 3) if match.facts[axis][2] < 0)
        _one_axis(graph, match, new, axis)


def _one_axis(graph: Graph, match: Match, new: Writer, axis: int) -> None:
    (node,) = match.nodes
    source, output = node.inputs[0], node.outputs[0]
    shape = list(graph.shape(source))
    spans: list[Span] = match.facts
    rest = {
        other: span
        for other, span in enumerate(spans)
        if other != axis and span != (0, shape[other], 1)
    }
    # the rest first, while it is all the DLA's own: fewer elements are moved then
    if rest:
        source = write_slice(new, source, rest)
        for other, (_, count, _) in rest.items():
            shape[other] = count
    start, count, step = spans[axis]
    picks = range(start, start + count * step, step)
    pick(new, source, shape, axis, picks, output=output)
