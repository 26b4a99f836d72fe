"""Slices, splits and focus layers by what the DLA has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.selection import Tap, factors, four, pick, reshape, selection, stepped

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer


# start, count and step along one axis
Span = tuple[int, int, int]


def slice_of(graph: RewriteGraph, node: Node) -> list[Span] | None:
    """Returns what a Slice of an activation takes along each axis.

    None for other nodes, computed bounds, and results without elements.
    """
    if node.op != "Slice" or node.domain or graph.constant(node.inputs[0]):
        return None
    shape, result = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    starts = graph.ints(node.input(1))
    if starts is None or 0 in result:
        return None
    axes = graph.ints(node.input(3)) if node.input(3) else list(range(len(starts)))
    steps = graph.ints(node.input(4)) if node.input(4) else [1] * len(starts)
    if axes is None or steps is None:
        return None
    spans = [(0, size, 1) for size in shape]
    for start, axis, step in zip(starts, axes, steps, strict=True):
        size = shape[axis]
        inside = start + size if start < 0 else start
        first = min(max(inside, 0), size if step > 0 else size - 1)
        # a single element has no step
        count = result[axis]
        spans[axis % len(shape)] = (first, count, step if count > 1 else 1)
    return spans


def write_slice(new: Writer, source: str, spans: dict[int, Span], *, output: str = "") -> str:
    """Writes a Slice of ``spans`` by axis and returns its output."""
    starts = [start for start, _, _ in spans.values()]
    # a backward slice that ends at the first element ends before it: far enough below zero
    ends = [start + (count - 1) * step for start, count, step in spans.values()]
    steps = [step for _, _, step in spans.values()]
    outside = -(2**31)
    ends = [
        end + 1 if step > 0 else (end - 1 if end else outside)
        for end, step in zip(ends, steps, strict=True)
    ]
    inputs = [source]
    for part in (starts, ends, list(spans), steps):
        inputs.append(new.constant(part, role="slice"))
    return new.node("Slice", inputs, output=output)


def float_spans(graph: RewriteGraph, node: Node) -> list[Span] | None:
    """Returns what a Slice of a 4-D activation of floats takes; None for others."""
    if not graph.floats(node.inputs[0]) or graph.rank(node.inputs[0]) != 4:
        return None
    return slice_of(graph, node)


def slice_along(graph: RewriteGraph, match: Match, new: Writer, axis: int) -> None:
    """Writes the Slice of ``match`` with ``axis`` picked and everything else sliced."""
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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Slice with a step above 1 along H or W and none along N and C."""
        spans = float_spans(graph, node)
        if spans is None or spans[0] != (0, graph.shape(node.inputs[0])[0], 1):
            return None
        from edgekit.dla.rules import limit

        most = limit("pooling.stride")[1]
        steps = [step for _, _, step in spans]
        if steps[1] != 1 or min(steps) < 1 or max(steps[2:]) == 1:
            return None
        if any(factors(step, most) is None for step in steps[2:]):
            return None
        return Match((node,), spans)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Slice with a step along C."""
        spans = float_spans(graph, node)
        return Match((node,), spans) if spans is not None and spans[1][2] != 1 else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the choice of channels, and a Slice of what else is sliced."""
        slice_along(graph, match, new, 1)


class SliceBackward:
    """A slice backwards along H or W: the channel form between two transpositions."""

    name = "slice-backward"
    reason = (
        "The DLA slices with stride 1 only; "
        "a 1x1 convolution reverses what transpositions make the channels"
    )
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Slice with a negative step along H or W."""
        spans = float_spans(graph, node)
        if spans is None or spans[1][2] != 1:
            return None
        axis = next((axis for axis in (2, 3) if spans[axis][2] < 0), 0)
        return Match((node,), spans) if axis else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the transpositions and the convolution, and a Slice of what else is sliced."""
        axis = next(axis for axis in (2, 3) if match.facts[axis][2] < 0)
        slice_along(graph, match, new, axis)


class Slice4d:
    """A Slice of 2, 3, 5 or more dimensions: the same Slice of 4, between reshapes.

    [N, C] is [N, C, 1, 1]; with more dimensions, the axes that are not sliced are merged, so only
    one may be sliced then. The batch is left alone: no DLA slices it.
    """

    name = "slice-4d"
    reason = "The DLA slices tensors of four dimensions only"
    operators: tuple[str, ...] = ("Slice",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Slice of a tensor of another rank than 4 that keeps the batch."""
        shape = graph.shape(node.inputs[0])
        if len(shape) in {0, 1, 4} or not graph.floats(node.inputs[0]):
            return None
        spans = slice_of(graph, node)
        if spans is None or spans[0] != (0, shape[0], 1):
            return None
        used = {a: span for a, span in enumerate(spans) if span != (0, shape[a], 1)}
        if not used or (len(used) > 1 and len(shape) > 4):
            return None
        return Match((node,), used)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the reshapes and the Slice."""
        (node,) = match.nodes
        used: dict[int, Span] = match.facts
        shape, result = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
        wide = four(shape, min(used))[0]
        places = {four(shape, axis)[1]: span for axis, span in used.items()}
        part = write_slice(new, reshape(new, node.inputs[0], wide), places)
        reshape(new, part, result, output=node.outputs[0])


class Split4d:
    """A Split of 2, 3, 5 or more dimensions: the same Split of 4, between reshapes."""

    name = "split-4d"
    reason = "The DLA slices tensors of four dimensions only"
    operators: tuple[str, ...] = ("Split",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Split of a tensor of another rank than 4, not along its batch."""
        rank = graph.rank(node.inputs[0])
        if rank in {0, 1, 4} or not graph.floats(node.inputs[0]) or "" in node.outputs:
            return None
        axis = int(node.attrs.get("axis", 0)) % rank
        return Match((node,), axis) if axis and not graph.constant(node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the reshapes and the Split."""
        (node,), axis = match.nodes, match.facts
        wide, place = four(graph.shape(node.inputs[0]), axis)
        sizes = new.constant([graph.shape(name)[axis] for name in node.outputs], role="sizes")
        source = reshape(new, node.inputs[0], wide)
        blank = [""] * len(node.outputs)
        parts = new.many("Split", [source, sizes], blank, name=node.name, axis=place)
        for part, output in zip(parts, node.outputs, strict=True):
            shape = new.constant(list(graph.shape(output)), role="shape")
            new.node("Reshape", [part, shape], output=output, name=f"{output}:reshape")


# slices after each other that one part is made of: exporters write one for each axis
_MOST_SLICES = 4
_MOST_PARTS = 64


class Focus:
    """Concat along C of slices with equal steps along H and W: one strided convolution.

    Its kernel reaches to the furthest start, its stride is the step, its weights are 0 and 1
    (YOLOv5's Focus: 2x2, stride 2). The slices may come one by one for each axis, share one and
    take parts of the channels.
    """

    name = "focus"
    reason = (
        "The DLA slices with stride 1 only; "
        "a strided convolution with weights of 0 and 1 takes all the slices at once"
    )
    # at its slices too: each of them alone could become a pooling, which would come first
    operators: tuple[str, ...] = ("Concat", "Slice")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Concat of slices of one tensor that a strided convolution can make."""
        for _ in range(_MOST_SLICES):
            if node.op != "Slice":
                break
            readers = graph.readers(node.outputs[0])
            if not readers:
                return None
            node = readers[0]
        parts = node.inputs
        if node.op != "Concat" or node.domain:
            return None
        if graph.rank(node.outputs[0]) != 4 or node.attrs["axis"] % 4 != 1:
            return None
        if not graph.floats(node.outputs[0]) or not 1 < len(parts) <= _MOST_PARTS:
            return None
        walks = [{tensor: (spans, nodes) for tensor, spans, nodes in _up(graph, p)} for p in parts]
        source = next((t for t in walks[0] if all(t in walk for walk in walks)), None)
        if source is None:
            return None
        slices = {item.name: item for walk in walks for item in walk[source][1]}
        nodes = (node, *slices.values())
        if not all(graph.inner(item.outputs[0], nodes) for item in slices.values()):
            return None
        spans = [walk[source][0] for walk in walks]
        return Match(nodes, (source, spans)) if _fits(graph.shape(source), spans) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolution."""
        source, spans = match.facts
        taps: list[Tap] = [
            (first + index * step, part[2][0], part[3][0])
            for part in spans
            for first, count, step in [part[1]]
            for index in range(count)
        ]
        strides = (_step(spans, 2), _step(spans, 3))
        selection(
            new,
            source,
            graph.shape(source)[1],
            taps,
            kernel=_kernel(spans),
            strides=strides,
            output=match.nodes[0].outputs[0],
        )


def _up(graph: RewriteGraph, tensor: str) -> Iterator[tuple[str, list[Span], list[Node]]]:
    """Yields what ``tensor`` is a slice of, from near to far: its source, spans and slices."""
    spans, nodes = [(0, size, 1) for size in graph.shape(tensor)], list[Node]()
    for _ in range(_MOST_SLICES):
        node = graph.producer(tensor)
        inner = None if node is None else slice_of(graph, node)
        if node is None or inner is None:
            return
        spans = [
            (first + step * start, count, step * by)
            for (first, _, step), (start, count, by) in zip(inner, spans, strict=True)
        ]
        nodes = [*nodes, node]
        tensor = node.inputs[0]
        yield tensor, spans, nodes


def _step(spans: Sequence[Sequence[Span]], axis: int) -> int:
    return max(part[axis][2] if part[axis][1] > 1 else 1 for part in spans)


def _kernel(spans: Sequence[Sequence[Span]]) -> tuple[int, int]:
    return max(part[2][0] for part in spans) + 1, max(part[3][0] for part in spans) + 1


def _fits(shape: Sequence[int], spans: Sequence[Sequence[Span]]) -> bool:
    from edgekit.dla.rules import limit

    if any(part[0] != (0, shape[0], 1) or min(part[2][2], part[3][2]) < 1 for part in spans):
        return False
    steps = [_step(spans, axis) for axis in (2, 3)]
    if steps == [1, 1] or max(steps) > limit("convolution.stride")[1]:
        return False
    kernel = _kernel(spans)
    for axis, step, side in zip((2, 3), steps, kernel, strict=True):
        made = (shape[axis] - side) // step + 1
        same = all(part[axis][1:] in {(made, step), (1, 1)} for part in spans)
        if side > limit("convolution.kernel")[1] or not same:
            return False
        if any(part[axis][1] != made for part in spans):
            return False
    return True
