"""Slices, splits, concatenations and repetition.

Written with layers that the DLA supports: slices of stride 1, concatenation along C, resizes and
convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import (
    Tap,
    factors,
    four_dimensions,
    pick,
    reshape,
    select_taps,
    to_channels,
    write_stepped_slice,
)

# start, count and step along one axis
Span = tuple[int, int, int]
# most consecutive slices of a part: exporters write a slice for each axis
_MOST_SLICES = 4
_MOST_PARTS = 64
# most parts of a sum: with more parts, it reads and writes the whole tensor too often
_MOST_CONCATENATED = 4
_BROADCASTS = frozenset({"Add", "Div", "Max", "Min", "Mul", "Sub"})


def read_slice(graph: RewriteGraph, node: Node) -> list[Span] | None:
    """Returns the span of a Slice of an activation along each axis.

    None for other nodes, computed bounds, and empty results.
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
        # ONNX clamps starts to the tensor, and a negative start counts from the end
        inside = start + size if start < 0 else start
        first = min(max(inside, 0), size if step > 0 else size - 1)
        # a single element has no step
        count = result[axis]
        spans[axis % len(shape)] = (first, count, step if count > 1 else 1)
    return spans


def write_slice(new: Writer, source: str, spans: dict[int, Span], *, output: str = "") -> str:
    """Writes a Slice of ``spans`` by axis and returns its output."""
    starts = [start for start, _, _ in spans.values()]
    # a backward slice to the first element needs an end before it: a large negative number
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
    """Returns the spans of a Slice of a 4-D floating-point activation; None for other nodes."""
    if not graph.floats(node.inputs[0]) or graph.rank(node.inputs[0]) != 4:
        return None
    return read_slice(graph, node)


def slice_along(
    graph: RewriteGraph, node: Node, new: Writer, spans: Sequence[Span], axis: int
) -> None:
    """Writes a Slice as a selection along ``axis`` and a slice along the other axes."""
    source, output = node.inputs[0], node.outputs[0]
    shape = list(graph.shape(source))
    rest = {
        other: span
        for other, span in enumerate(spans)
        if other != axis and span != (0, shape[other], 1)
    }
    # the other axes first: the DLA can slice them, and fewer elements are moved then
    if rest:
        source = write_slice(new, source, rest)
        for other, (_, count, _) in rest.items():
            shape[other] = count
    start, count, step = spans[axis]
    picks = range(start, start + count * step, step)
    pick(new, source, shape, axis, picks, output=output)


@rewrite(
    "strided-slice",
    operators=("Slice",),
    reason="The DLA slices with stride 1 only; a maximum pooling of window 1 keeps every n-th "
    "element",
)
def strided_slice(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a slice with steps along H or W as a slice without steps and pooling of window 1.

    Steps beyond the largest pooling stride take several poolings; steps with a prime factor beyond
    it are not supported. A slice from 0 to the end needs only the pooling.

    At a Slice with a step above 1 along H or W that keeps N and has step 1 along C.
    """
    spans = float_spans(graph, node)
    if spans is None or spans[0] != (0, graph.shape(node.inputs[0])[0], 1):
        return

    most = rule_range("pooling.stride")[1]
    steps = [step for _, _, step in spans]
    if steps[1] != 1 or min(steps) < 1 or max(steps[2:]) == 1:
        return
    if any(factors(step, most) is None for step in steps[2:]):
        return
    new = yield (node,)
    places = {axis: span for axis, span in enumerate(spans) if axis}
    shape = graph.shape(node.inputs[0])
    write_stepped_slice(new, node.inputs[0], shape, places, output=node.outputs[0])


@rewrite(
    "slice-channels",
    operators=("Slice",),
    reason="The DLA slices with stride 1 only; a 1x1 convolution of 0 and 1 selects the channels",
)
def slice_channels(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a slice with a step along C, also backwards, as a 1x1 convolution.

    At a Slice with a step along C.
    """
    spans = float_spans(graph, node)
    if spans is None or spans[1][2] == 1:
        return
    new = yield (node,)
    slice_along(graph, node, new, spans, 1)


@rewrite(
    "slice-4d",
    operators=("Slice",),
    reason="The DLA slices tensors of four dimensions only",
    enabling=True,
)
def slice_4d(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a Slice of 2, 3, 5 or more dimensions as a Slice of 4, between reshapes.

    [N, C] is [N, C, 1, 1]; with more dimensions, the axes that are not sliced are merged, so only
    one axis may be sliced then. The batch must not be sliced: no DLA supports it.

    At a Slice of a tensor of another rank than 4 that keeps the batch.
    """
    shape = graph.shape(node.inputs[0])
    if len(shape) in {0, 1, 4} or not graph.floats(node.inputs[0]):
        return
    spans = read_slice(graph, node)
    if spans is None or spans[0] != (0, shape[0], 1):
        return
    used = {a: span for a, span in enumerate(spans) if span != (0, shape[a], 1)}
    if not used or (len(used) > 1 and len(shape) > 4):
        return
    new = yield (node,)
    # with up to four dimensions all axes keep their places; beyond, only one axis is sliced
    wide = four_dimensions(shape, min(used))[0]
    places = {four_dimensions(shape, axis)[1]: span for axis, span in used.items()}
    part = write_slice(new, reshape(new, node.inputs[0], wide), places)
    reshape(new, part, graph.shape(node.outputs[0]), output=node.outputs[0])


@rewrite(
    "split-4d",
    operators=("Split",),
    reason="The DLA slices tensors of four dimensions only",
    enabling=True,
)
def split_4d(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a Split of 2, 3, 5 or more dimensions as a Split of 4, between reshapes.

    At a Split of a tensor of another rank than 4, not along its batch.
    """
    rank = graph.rank(node.inputs[0])
    if rank in {0, 1, 4} or not graph.floats(node.inputs[0]) or "" in node.outputs:
        return
    axis = int(node.attrs.get("axis", 0)) % rank
    if not (axis and not graph.constant(node.inputs[0])):
        return
    new = yield (node,)
    wide, place = four_dimensions(graph.shape(node.inputs[0]), axis)
    sizes = new.constant([graph.shape(name)[axis] for name in node.outputs], role="sizes")
    source = reshape(new, node.inputs[0], wide)
    blank = [""] * len(node.outputs)
    parts = new.many("Split", [source, sizes], blank, name=node.name, axis=place)
    for part, output in zip(parts, node.outputs, strict=True):
        shape = new.constant(list(graph.shape(output)), role="shape")
        new.node("Reshape", [part, shape], output=output, name=f"{output}:reshape")


@rewrite(
    "focus",
    operators=("Concat", "Slice"),
    reason=(
        "The DLA slices with stride 1 only; "
        "a strided convolution with weights of 0 and 1 takes all the slices at once"
    ),
)
def focus(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a Concat along C of slices with equal steps along H and W as a strided convolution.

    Its kernel reaches to the furthest start, its stride is the step, its weights are 0 and 1
    (YOLOv5's Focus: 2x2, stride 2). The slices may be separate for each axis, share a slice, and
    read parts of the channels.

    At a Concat of slices of one tensor that a strided convolution can make.
    """
    for _ in range(_MOST_SLICES):
        if node.op != "Slice":
            break
        readers = graph.readers(node.outputs[0])
        if not readers:
            return
        # from a Slice as well: ``strided-slice`` would take it before the Concat is reached
        node = readers[0]
    parts = node.inputs
    if node.op != "Concat" or node.domain:
        return
    if graph.rank(node.outputs[0]) != 4 or node.attrs["axis"] % 4 != 1:
        return
    if not graph.floats(node.outputs[0]) or not 1 < len(parts) <= _MOST_PARTS:
        return
    # slices of slices: the common source may be above the nearest
    walks = [{tensor: (spans, nodes) for tensor, spans, nodes in _up(graph, p)} for p in parts]
    # nearest first, so that shared slices above stay as they are
    source = next((t for t in walks[0] if all(t in walk for walk in walks)), None)
    if source is None:
        return
    slices = {item.name: item for walk in walks for item in walk[source][1]}
    nodes = (node, *slices.values())
    # with another reader a slice stays on the GPU anyway
    if not all(graph.inner(item.outputs[0], nodes) for item in slices.values()):
        return
    spans = [walk[source][0] for walk in walks]
    if not _fits(graph.shape(source), spans):
        return
    new = yield nodes
    taps: list[Tap] = [
        (first + index * step, part[2][0], part[3][0])
        for part in spans
        for first, count, step in [part[1]]
        for index in range(count)
    ]
    strides = (_step(spans, 2), _step(spans, 3))
    select_taps(
        new,
        source,
        graph.shape(source)[1],
        taps,
        kernel=_kernel(spans),
        strides=strides,
        output=node.outputs[0],
    )


def _up(graph: RewriteGraph, tensor: str) -> Iterator[tuple[str, list[Span], list[Node]]]:
    """Yields the sources that ``tensor`` is a slice of, nearest first: source, spans, slices."""
    spans, nodes = [(0, size, 1) for size in graph.shape(tensor)], list[Node]()
    for _ in range(_MOST_SLICES):
        node = graph.producer(tensor)
        inner = None if node is None else read_slice(graph, node)
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
    # a convolution keeps the batch, and cannot read backwards
    if any(part[0] != (0, shape[0], 1) or min(part[2][2], part[3][2]) < 1 for part in spans):
        return False
    steps = [_step(spans, axis) for axis in (2, 3)]
    if steps == [1, 1] or max(steps) > rule_range("convolution.stride")[1]:
        return False
    kernel = _kernel(spans)
    for axis, step, side in zip((2, 3), steps, kernel, strict=True):
        # the convolution's outputs along this axis must be the slices' elements
        made = (shape[axis] - side) // step + 1
        same = all(part[axis][1:] in {(made, step), (1, 1)} for part in spans)
        if side > rule_range("convolution.kernel")[1] or not same:
            return False
        if any(part[axis][1] != made for part in spans):
            return False
    return True


def joined_axis(graph: RewriteGraph, node: Node) -> int:
    """Returns the axis (H or W) of a Concat of 4-D activations along it; else 0."""
    axis = int(node.attrs["axis"]) % graph.rank(node.outputs[0])
    plain = graph.rank(node.outputs[0]) == 4 and graph.floats(node.outputs[0])
    if not plain or axis not in {2, 3} or len(node.inputs) < 2:
        return 0
    return 0 if all(graph.constant(name) for name in node.inputs) else axis


@rewrite(
    "concat-sum",
    operators=("Concat",),
    reason="The DLA concatenates along C only; depthwise convolutions of 0 and 1 pad the parts, "
    "which are then added",
)
def concat_sum(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a Concat of a few parts along H or W as the sum of parts padded with zeros.

    The padding is that of a depthwise convolution with a single 1 in its kernel, so the difference
    to the whole size must be within a convolution's padding limit. It needs no transposition, which
    no source allows on Xavier.

    At a Concat of a few 4-D activations along H or W that are not too small.
    """
    axis = joined_axis(graph, node)
    if not axis or len(node.inputs) > _MOST_CONCATENATED or any(map(graph.constant, node.inputs)):
        return
    shape = graph.shape(node.outputs[0])
    channels, whole = shape[1], shape[axis]
    rest = whole - min(graph.shape(name)[axis] for name in node.inputs)
    if rest > rule_range("convolution.padding")[1]:
        return
    new = yield (node,)
    # begin: the part's place along the axis
    total, begin = "", 0
    for index, name in enumerate(node.inputs):
        # pads of `rest` on both sides; the position of the 1 in the kernel moves the part
        rest = whole - graph.shape(name)[axis]
        kernel = np.zeros((channels, 1, rest + 1))
        kernel[:, :, rest - begin] = 1.0
        sides = [1, 1]
        sides[axis - 2] = rest + 1
        pads = [0, 0, 0, 0]
        pads[axis - 2] = pads[axis] = rest
        weight = new.constant(kernel.reshape(channels, 1, *sides), role="place")
        part = new.node(
            "Conv",
            [name, weight],
            role=f"part_{index}",
            kernel_shape=sides,
            pads=pads,
            group=channels,
        )
        last = index == len(node.inputs) - 1
        output = node.outputs[0] if last else ""
        total = new.node("Add", [total, part], output=output, role="sum") if total else part
        begin += graph.shape(name)[axis]


@rewrite(
    "concat-axis",
    operators=("Concat",),
    reason="The DLA concatenates along C only; transpositions around it turn H or W into C",
)
def concat_axis(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a Concat along H or W as a Concat along C, between transpositions.

    At a Concat of 4-D activations along H or W.
    """
    axis = joined_axis(graph, node)
    if not axis:
        return
    new = yield (node,)
    # a tensor that is joined twice is transposed once
    parts = dict.fromkeys(node.inputs)
    turned = {name: to_channels(new, name, axis) for name in parts}
    joined = new.node("Concat", [turned[name] for name in node.inputs], name=node.name, axis=1)
    to_channels(new, joined, axis, output=node.outputs[0])


@rewrite(
    "concat-constant",
    operators=("Concat",),
    reason="A concatenated constant is a layer on the GPU; adding it to channels of zeros is a "
    "Scale layer on the DLA",
)
def concat_constant(graph: RewriteGraph, node: Node) -> Replacement:
    """Concat along C of activations and constants (coordinates, positions, channels of zeros).

    The activations are joined, a 1x1 convolution of 0 and 1 spreads them over all channels, with
    zeros in place of the constants, and the constants are added as a scale by element.

    At a Concat along C of constant and other 4-D tensors.
    """
    output = node.outputs[0]
    if graph.rank(output) != 4 or node.attrs["axis"] % 4 != 1 or not graph.floats(output):
        return
    fixed = [graph.constant(name) for name in node.inputs]
    if not (any(fixed) and not all(fixed)):
        return
    new = yield (node,)
    batch, _, height, width = graph.shape(node.outputs[0])
    taps: list[int] = []
    constants: list[str] = []
    count = 0
    parts = zip(node.inputs, fixed, strict=True)
    # neighbours of one kind share a range of channels
    for is_fixed, run in groupby(parts, key=lambda part: part[1]):
        names = [name for name, _ in run]
        channels = sum(graph.shape(name)[1] for name in names)
        if is_fixed:
            taps += [-1] * channels
            constants += names
            continue
        taps += range(count, count + channels)
        count += channels
        new.check_size(batch, channels, height, width)
        zeros = np.zeros((batch, channels, height, width))
        constants.append(new.constant(zeros, role="zeros"))
    computed = [name for name, known in zip(node.inputs, fixed, strict=True) if not known]
    source = computed[0]
    if len(computed) > 1:
        source = new.node("Concat", computed, axis=1)
    spread = select_taps(new, source, count, [(channel, 0, 0) for channel in taps])
    shift = new.node("Concat", constants, axis=1)
    new.node("Add", [spread, shift], output=node.outputs[0])


def scale_limit() -> int:
    """Returns the largest scale of a nearest resize."""
    return rule_range("resize.nearest_scale")[1]


def enlarge(new: Writer, source: str, scales: Sequence[int], output: str) -> str:
    """Writes nearest resizes of H and W by whole factors and returns the last output."""
    steps = [factors(scale, scale_limit()) or [] for scale in scales]
    rounds = max(len(part) for part in steps)
    for index in range(rounds):
        now = [float((part[index : index + 1] or [1])[0]) for part in steps]
        fixed = new.constant([1.0, 1.0, *now], role="scales", dtype="float32")
        source = new.node(
            "Resize",
            [source, "", fixed],
            output=output if index == rounds - 1 else "",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return source


@rewrite(
    "drop-expand",
    operators=("Expand", "Tile", *sorted(_BROADCASTS)),
    reason=("The DLA's element-wise operations broadcast [N, C, 1, 1] without an Expand"),
)
def drop_expand(graph: RewriteGraph, node: Node) -> Replacement:
    """Removes an Expand or Tile before an element-wise operation that broadcasts by itself.

    At an operation of a whole tensor and a repeated [N, C, 1, 1] or [N, 1, 1, 1].
    """
    if node.op in {"Expand", "Tile"}:
        reader = graph.only_reader(node.outputs[0])
        if reader is None or reader.op not in _BROADCASTS or reader.domain:
            return
        node = reader
    if len(node.inputs) != 2 or not graph.floats(node.outputs[0]):
        return
    whole = graph.shape(node.outputs[0])
    for index, name in enumerate(node.inputs):
        other = node.inputs[1 - index]
        repeat = graph.producer(name)
        if repeat is None or repeat.op not in {"Expand", "Tile"} or other == name:
            continue
        before = graph.shape(repeat.inputs[0])
        narrow = before in {(whole[0], whole[1], 1, 1), (whole[0], 1, 1, 1)} if whole else False
        if not narrow or graph.constant(repeat.inputs[0]) or graph.shape(other) != whole:
            continue
        break
    else:
        return
    new = yield (node, repeat)
    inputs = list(node.inputs)
    inputs[index] = repeat.inputs[0]
    new.node(node.op, inputs, output=node.outputs[0], **node.attrs)
    repeated = repeat.outputs[0]
    if not graph.inner(repeated, (node, repeat)):
        # others still need it
        new.node(repeat.op, repeat.inputs, output=repeated, **repeat.attrs)


@rewrite(
    "repeat",
    operators=("Expand", "Tile"),
    reason="TensorRT repeats with slices of stride 0, but the DLA slices with stride 1 only; a 1x1 "
    "convolution repeats channels, a nearest resize rows and columns",
)
def repeat(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes Expand or Tile of a 4-D tensor: a convolution along C, nearest resizes of H and W.

    A side of 1 is enlarged by a nearest resize (several if the factor is beyond its limit; not
    supported if it has a prime factor beyond it). A larger side that Tile repeats is repeated as
    channels between transpositions. The batch is not repeated.

    At an Expand or Tile that keeps four dimensions and the batch.
    """
    source = node.inputs[0]
    before, after = graph.shape(source), graph.shape(node.outputs[0])
    if len(before) != 4 or len(after) != 4 or before[0] != after[0] or before == after:
        return
    if not graph.floats(source) or graph.constant(source) or 0 in after:
        return
    times = [b // a for a, b in zip(before, after, strict=True)]
    for axis in (2, 3):
        if before[axis] == 1 and factors(times[axis], scale_limit()) is None:
            return
    new = yield (node,)
    output, shape = node.outputs[0], list(before)
    # a nearest resize repeats each element, Tile the whole side: equal only for a side of 1
    tiled = [axis for axis in (1, 2, 3) if times[axis] > 1 and (axis == 1 or shape[axis] > 1)]
    grown = [axis for axis in (2, 3) if times[axis] > 1 and axis not in tiled]
    for axis in tiled:
        last = axis == tiled[-1] and not grown
        picks = list(range(shape[axis])) * times[axis]
        source = pick(new, source, shape, axis, picks, output=output if last else "")
        shape[axis] *= times[axis]
    if grown:
        scales = [times[axis] if axis in grown else 1 for axis in (2, 3)]
        enlarge(new, source, scales, output)
