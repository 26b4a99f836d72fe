"""Large windows as several that the DLA has.

Along one axis (:class:`PoolAxis`) a window is a cascade of averages, maxima or convolutions; over H
and W it is a row of pools and depthwise convolutions (:class:`RowNode`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from edgekit.dla.fact_files import memory_facts
from edgekit.dla.memory import cbuf_banks
from edgekit.dla.rules import rule_range
from edgekit.network.graph import Attributes, Node
from edgekit.network.windows import window
from edgekit.rewriting.graph import RewriteGraph, Writer
from edgekit.rewriting.rules.reshapes import reduced_axes
from edgekit_device.protocol.codec import document

# a longer cascade is not faster than a reduction on the GPU
MOST_STAGES = 5
_IMAGE = (2, 3)
_RANK = 4
_ROLES = {"Conv": "weights", "Mul": "factor", "Reshape": "shape"}


class PoolStage(NamedTuple):
    """A window along one axis.

    Attributes:
        size: Number of elements of the window.
        stride: Distance of neighbouring windows.
        before: Padding before the first element.
        after: Padding after the last element.
        dilation: Distance of neighbouring elements of the window; more than 1 only for a
            convolution.
        conv: True for a depthwise convolution, False for a pooling layer.
    """

    size: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1
    conv: bool = False

    def outputs(self, length: int) -> int:
        """Returns the number of windows on ``length`` elements."""
        span = (self.size - 1) * self.dilation + 1
        return (length + self.before + self.after - span) // self.stride + 1


IDENTITY = PoolStage(1)


@document(frozen=True)
class PoolAxis:
    """A pooling layer along one axis.

    Attributes:
        length: Elements of the input.
        count: Elements of the output.
        size: Elements of the window.
        stride: Distance of neighbouring windows; 0 if a single window reaches to the end, so that
            any stride is correct.
        before: Padding before the first element.
        after: Padding that the last window uses: less than the node declares if the windows end
            before, more in ceil mode.
        dilation: Distance of neighbouring elements of the window.
        beyond: True if the last window reaches beyond the declared padding.
    """

    length: int
    count: int
    size: int
    stride: int = 0
    before: int = 0
    after: int = 0
    dilation: int = 1
    beyond: bool = False

    def real(self) -> tuple[int, ...]:
        """Returns the number of elements other than padding, by window."""
        first = np.arange(self.count) * (self.stride or 1) - self.before
        # the first element of each window inside the input, and the first element after its end
        bounds = (-(place // self.dilation) for place in (first, first - self.length))
        start, end = (np.clip(bound, 0, self.size) for bound in bounds)
        return tuple((end - start).tolist())


def fits(size: int, stride: int, before: int, after: int) -> bool:
    """Returns True if a pooling layer supports this window, stride and padding."""
    _, most = rule_range("pooling.padding")
    return (
        size <= rule_range("pooling.window")[1]
        and stride <= rule_range("pooling.stride")[1]
        and max(before, after) <= most
    )


def pool_stages(axis: PoolAxis) -> tuple[PoolStage, ...] | None:
    """Returns average pools whose sequence equals the average of ``axis``.

    A window of ``a * b`` elements is a window of b over the averages of adjacent windows of a; the
    padding counts as zeros. None if the window has no such factors.
    """
    if axis.dilation != 1:
        return None
    return _averages(axis.size, axis.stride, axis.before, axis.after, MOST_STAGES)


@cache
def _averages(
    size: int, stride: int, before: int, after: int, most: int
) -> tuple[PoolStage, ...] | None:
    if fits(size, stride, before, after):
        return (PoolStage(size, stride or 1, before, after),)
    if most == 1:
        return None
    best = None
    for first, *rest in _average_splits(size, stride, before, after):
        # only a shorter cascade than the best so far is worth a search
        left = len(best) - 2 if best else most - 1
        if left < 1:
            break
        found = _averages(*rest, left)
        if found:
            best = (first, *found)
    return best


def _average_splits(
    size: int, stride: int, before: int, after: int
) -> Iterator[tuple[PoolStage, int, int, int, int]]:
    """Yields a first pool, and size, stride and padding of the remaining window."""
    for a in range(rule_range("pooling.window")[1], 1, -1):
        # windows of a that do not overlap: the larger stride and the padding must fall on their
        # borders
        if size % a == 0 and stride % a == 0:
            first = PoolStage(a, a, before % a, after % a)
            yield first, size // a, stride // a, before // a, after // a
    # the rest of the stride drops results by a pool of window 1
    for d in _parts(stride, rule_range("pooling.stride")[1]):
        if fits(size, d, before, after):
            yield PoolStage(size, d, before, after), 1, stride // d, 0, 0


def _parts(stride: int, most: int) -> list[int]:
    """Returns the divisors of a stride from ``most`` down to 2."""
    return [d for d in range(most, 1, -1) if stride and stride % d == 0]


def conv_stages(axis: PoolAxis) -> tuple[PoolStage, ...] | None:
    """Returns a convolution for ``axis``, and a pool of window 1 for the rest of its stride."""
    fits = (
        axis.size <= rule_range("convolution.kernel")[1]
        and axis.dilation <= rule_range("convolution.dilation")[1]
        and max(axis.before, axis.after) <= rule_range("convolution.padding")[1]
    )
    if not fits:
        return None

    def window(stride: int) -> PoolStage:
        return PoolStage(axis.size, stride, axis.before, axis.after, axis.dilation, conv=True)

    _, most = rule_range("convolution.stride")
    if axis.stride <= most:
        return (window(axis.stride or 1),)
    for d in _parts(axis.stride, most):
        if axis.stride // d <= rule_range("pooling.stride")[1]:
            return window(d), PoolStage(1, axis.stride // d)
    return None


@cache
def mixed_stages(axis: PoolAxis) -> tuple[tuple[PoolStage, ...], float] | None:
    """Returns average pools and a convolution after them for ``axis``, and a factor for the result.

    Pools come first, because they cost less than a large convolution. A window that reaches to both
    ends may be longer than the axis, with zeros around it, so that it has factors: the weights of
    the convolution include the resulting factor of the average. Without a pool, only a convolution.
    """
    if axis.dilation != 1:
        return None
    candidates = []
    # a window to both ends may have more zeros: its sum stays, only the divisor grows
    for more in range(rule_range("pooling.padding")[1] + 1) if not axis.stride else (0,):
        before, after = axis.before + more // 2, axis.after + more - more // 2
        longer = replace(axis, size=axis.size + more, before=before, after=after)
        found = _pools_and_conv(longer, MOST_STAGES)
        if found:
            # fewest layers first, then a small kernel, even and little padding
            large = found[-1].size > rule_range("pooling.window")[1]
            candidates.append(((len(found), large, more % 2, more), longer.size, found))
    if not candidates:
        direct = conv_stages(axis)
        return (direct, 1.0) if direct else None
    _, size, found = min(candidates, key=lambda item: item[0])
    return found, size / axis.size


@cache
def _pools_and_conv(axis: PoolAxis, most: int) -> tuple[PoolStage, ...] | None:
    best: tuple[PoolStage, ...] | None = None
    for a in range(rule_range("pooling.window")[1], 1, -1):
        if axis.size % a or axis.stride % a:
            continue
        first = PoolStage(a, a, axis.before % a, axis.after % a)
        rest = replace(
            axis,
            length=first.outputs(axis.length),
            size=axis.size // a,
            stride=axis.stride // a,
            before=axis.before // a,
            after=axis.after // a,
        )
        found = conv_stages(rest)
        if not found and most > 1:
            found = _pools_and_conv(rest, most - 1)
        if found and (best is None or 1 + len(found) < len(best)):
            best = (first, *found)
    return best


@cache
def max_stages(axis: PoolAxis) -> tuple[PoolStage, ...] | None:
    """Returns maximum pools whose sequence equals the maximum of ``axis``.

    b windows of a elements, at a distance of d <= a, make a window of ``(b - 1) * d + a`` elements.
    The padding never wins. None without a short cascade; a dilated window is split if the other
    elements can be dropped first.
    """
    if axis.dilation == 1:
        return _fewest(axis.size, axis.stride, axis.before, axis.after)
    d, last = axis.dilation, axis.length - 1
    # else the window's elements are not multiples of d from element 0 on
    if axis.before % d or axis.stride % d or d > rule_range("pooling.stride")[1]:
        return None
    # elements at multiples of d are left
    after = (last + axis.after) // d - last // d
    rest = _fewest(axis.size, axis.stride // d, axis.before // d, after)
    return rest and (PoolStage(1, d), *rest)


@cache
def _fewest(size: int, stride: int, before: int, after: int) -> tuple[PoolStage, ...] | None:
    # by length, so that the first cascade found is a shortest
    for most in range(1, MOST_STAGES + 1):
        # a single window that reaches to the end may reach further
        for more in (0, *range(1, rule_range("pooling.padding")[1] + 1)) if not stride else (0,):
            found = _maxima(size + more, stride, before, after + more, most)
            if found:
                return found
    return None


@cache
def _maxima(
    size: int, stride: int, before: int, after: int, most: int
) -> tuple[PoolStage, ...] | None:
    if fits(size, stride, before, after):
        return (PoolStage(size, stride or 1, before, after),)
    if most == 1:
        return None
    for d in range(rule_range("pooling.stride")[1], 0, -1):
        if stride % d:
            continue
        for a in range(rule_range("pooling.window")[1], 0, -1):
            b, left = divmod(size - a, d)
            # windows of a at a distance over a leave gaps; a pool of 1 at stride 1 does nothing
            if left or b < 0 or (b and d > a) or (d == 1 and a == 1):
                continue
            (first, first_rest), (last, last_rest) = (
                _inner_padding(pad, a, d) for pad in (before, after)
            )
            if min(first, last) < 0 or max(first_rest, last_rest) > b:
                continue
            found = _maxima(b + 1, stride // d, first_rest, last_rest, most - 1)
            if found:
                return (PoolStage(a, d, first, last), *found)
    return None


def _inner_padding(pad: int, a: int, d: int) -> tuple[int, int]:
    """Returns the part of a padding for the first pool, and the number of omitted windows.

    Every window of the first pool must contain a real element; real elements of omitted windows are
    in neighbouring windows, too.
    """
    own = min(pad, a - 1, rule_range("pooling.padding")[1])
    # padding is omitted in whole strides
    own -= (own - pad) % d
    return own, (pad - own) // d


@document(frozen=True)
class RowNode:
    """A node of a row: it reads the previous node and ``constants``."""

    op: str
    constants: tuple[Any, ...] = ()
    attrs: Attributes = field(default_factory=dict)


def in_row(new: Writer, source: str, parts: Sequence[RowNode], node: Node, output: str = "") -> str:
    """Writes a sequence of nodes instead of ``node`` and returns the last node's output.

    The last computing node keeps the node's name; a reshape after it does not.

    Args:
        new: The writer.
        source: Input of the first node.
        parts: The nodes; at least one.
        node: The replaced node.
        output: Output of the last node; the replaced node's output if empty.
    """
    output = output or node.outputs[0]
    last = max((i for i, part in enumerate(parts) if part.op != "Reshape"), default=len(parts) - 1)
    for index, part in enumerate(parts):
        read = [source, *(new.constant(value, role=_ROLES[part.op]) for value in part.constants)]
        final = index == len(parts) - 1
        name = node.name if index == last else f"{node.name}:{part.op.lower()}"
        source = new.node(part.op, read, output=output if final else "", name=name, **part.attrs)
    return source


class PoolNode(NamedTuple):
    """A MaxPool or AveragePool over H and W.

    Attributes:
        height: The axis along H.
        width: The axis along W.
        padded: True if the node declares padding.
        within: True if the DLA supports its window, stride, padding and dilation.
    """

    height: PoolAxis
    width: PoolAxis
    padded: bool
    within: bool


def read_pool(graph: RewriteGraph, node: Node) -> PoolNode | None:
    """Returns the axes of a MaxPool or AveragePool; None unless on floats in N, C, H and W.

    Also None with a second output, or with a window entirely in the padding.
    """
    source, target = node.inputs[0], node.outputs[0]
    kernel = node.attrs.get("kernel_shape", ())
    if any(node.outputs[1:]) or len(kernel) != len(_IMAGE) or not graph.floats(source):
        return None
    if graph.rank(source) != len(_IMAGE) + 2:
        return None
    sizes, counts = graph.shape(source)[2:], graph.shape(target)[2:]
    given = window(node.attrs, kernel, sizes, counts)
    axes = []
    for at in (0, 1):
        size, stride, dilation = given.kernel[at], given.stride[at], given.dilation[at]
        before, declared = given.pads[at], given.pads[at + 2]
        span = (size - 1) * dilation + 1
        after = (counts[at] - 1) * stride + span - before - sizes[at]
        # runtimes disagree on windows entirely in the padding
        if not (0 <= before < span and declared >= 0 and after < span):
            return None
        if counts[at] == 1 and after >= 0:
            stride = 0
        elif counts[at] == 1 and stride % size and 1 - after <= rule_range("convolution.stride")[1]:
            # the smallest stride without a second window
            stride = 1 - after
        axes.append(
            PoolAxis(
                sizes[at],
                counts[at],
                size,
                stride,
                before,
                max(after, 0),
                dilation,
                beyond=after > declared,
            )
        )
    within = (
        max(given.kernel) <= rule_range("pooling.window")[1]
        and max(given.stride) <= rule_range("pooling.stride")[1]
        and max(given.pads) <= rule_range("pooling.padding")[1]
        and max(given.dilation) == 1
    )
    return PoolNode(axes[0], axes[1], any(given.pads), within)


def whole_axis(length: int) -> PoolAxis:
    """Returns a window over a whole axis."""
    return PoolAxis(length, 1, length)


class Reduction(NamedTuple):
    """A reduction of a tensor [N, C, H, W].

    Attributes:
        shape: Shape of the input.
        axes: Reduced axes with more than one element: 1, 2, 3.
        target: Shape of the output.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def height(self) -> PoolAxis:
        """The part along H: a window over the whole axis, or of one element."""
        return self._axis(2)

    @property
    def width(self) -> PoolAxis:
        """The part along W."""
        return self._axis(3)

    def _axis(self, axis: int) -> PoolAxis:
        length = self.shape[axis]
        return whole_axis(length) if axis in self.axes else PoolAxis(length, length, 1, 1)

    def reshape(self) -> list[RowNode]:
        """Returns the reshape that drops reduced dimensions, if the node drops them."""
        reduced = tuple(1 if axis in self.axes else size for axis, size in enumerate(self.shape))
        return (
            []
            if reduced == self.target
            else [RowNode("Reshape", (np.array(self.target, np.int64),))]
        )


def read_reduction(graph: RewriteGraph, node: Node) -> Reduction | None:
    """Returns the reduction of a Reduce* or a global pool; None for other forms.

    Supported: floats in N, C, H and W, constant axes, and no sum over batches.
    """
    source = node.inputs[0]
    if not graph.floats(source) or graph.rank(source) != _RANK:
        return None
    shape = graph.shape(source)
    axes = _IMAGE if node.op.startswith("Global") else reduced_axes(graph, node)
    # the DLA's layers do not mix samples
    if axes is None or 0 in shape or (0 in axes and shape[0] != 1):
        return None
    wide = tuple(axis for axis in axes if shape[axis] != 1)
    return Reduction(shape, wide, graph.shape(node.outputs[0]))


_Both = tuple[PoolStage, PoolStage]


def maximum_parts(height: PoolAxis, width: PoolAxis) -> list[RowNode] | None:
    """Returns MaxPools whose sequence equals a maximum over windows; None if there are none."""
    down, across = max_stages(height), max_stages(width)
    if not (down and across):
        return None
    return [_pool("MaxPool", both) for both in _zip_stages(down, across)]


def average_parts(
    height: PoolAxis, width: PoolAxis, channels: int, gain: float = 1.0
) -> list[RowNode] | None:
    """Returns nodes for the average over windows, padding counted as zeros, times ``gain``.

    Average pools if the windows have factors that the DLA supports; otherwise a depthwise
    convolution, after pools or along one axis at a time if its kernel or the convolution buffer
    requires it. None if there is no such form.
    """
    down, across = pool_stages(height), pool_stages(width)
    if down and across:
        parts = [_pool("AveragePool", both) for both in _zip_stages(down, across)]
        return parts + ([] if gain == 1 else [RowNode("Mul", (gain,))])
    return _with_convolutions(height, width, channels, gain)


def sum_parts(height: PoolAxis, width: PoolAxis, channels: int) -> list[RowNode] | None:
    """Returns nodes for the sum over windows: depthwise convolutions, after pools if needed.

    An average times the number of elements is the same, but its small values lose digits in INT8.
    """
    if height.size * width.size == 1:
        return average_parts(height, width, channels)
    gain = float(height.size * width.size)
    return _with_convolutions(height, width, channels, gain, whole_sum=True) or average_parts(
        height, width, channels, gain
    )


def _with_convolutions(
    height: PoolAxis, width: PoolAxis, channels: int, gain: float, *, whole_sum: bool = False
) -> list[RowNode] | None:
    # depthwise convolutions have a group for each channel
    if channels > rule_range("convolution.groups")[1]:
        return None
    tries: list[tuple[Sequence[_Both], float]] = []
    mixed = mixed_stages(height), mixed_stages(width)
    if mixed[0] and mixed[1]:
        (down, more_down), (across, more_across) = mixed[0], mixed[1]
        tries.append((_pair_stages(down, across), more_down * more_across))
        tries.append((_width_then_height(down, across), more_down * more_across))
    direct = conv_stages(height), conv_stages(width)
    if direct[0] and direct[1]:
        alone = [
            (_pair_stages(direct[0], direct[1]), 1.0),
            (_width_then_height(direct[0], direct[1]), 1.0),
        ]
        # a sum through averages loses digits of small values in INT8
        tries = [*alone, *tries] if whole_sum else [*tries, *alone]
    # in the order of preference, by what fits the convolution buffer
    for stages, factor in tries:
        if _in_buffer(stages, height.length, width.length, channels):
            return _pool_parts(stages, channels, gain * factor)
    return None


def _pair_stages(down: Sequence[PoolStage], across: Sequence[PoolStage]) -> list[_Both]:
    """Returns the stages of both axes paired, with the convolutions combined."""
    i, j = _conv_at(down), _conv_at(across)
    before, after = (
        _zip_stages(down[:i], across[:j]),
        _zip_stages(down[i + 1 :], across[j + 1 :]),
    )
    return [*before, (down[i], across[j]), *after]


def _zip_stages(down: Sequence[PoolStage], across: Sequence[PoolStage]) -> list[_Both]:
    return list(zip_longest(down, across, fillvalue=IDENTITY))


def _conv_at(stages: Sequence[PoolStage]) -> int:
    return next(i for i, stage in enumerate(stages) if stage.conv)


def _width_then_height(down: Sequence[PoolStage], across: Sequence[PoolStage]) -> list[_Both]:
    """Returns W's stages and then H's, which have one column per window left."""
    apart = [*((IDENTITY, stage) for stage in across), *((stage, IDENTITY) for stage in down)]
    return [both for both in apart if max(part.size * part.stride for part in both) > 1]


def _in_buffer(stages: Sequence[_Both], height: int, width: int, channels: int) -> bool:
    """Returns True if each convolution leaves a buffer bank free in FP16, the largest type."""
    most = memory_facts().cbuf.banks
    for down, across in stages:
        if down.conv or across.conv:
            kernel = (down.size, across.size)
            banks = cbuf_banks(channels, kernel, down.dilation, width, "fp16", channels)
            if banks >= most:
                return False
        height, width = down.outputs(height), across.outputs(width)
    return True


def _pool_parts(stages: Sequence[_Both], channels: int, gain: float) -> list[RowNode]:
    """Returns the nodes of average stages; the last convolution's weights include the factor."""
    convs = [i for i, (down, across) in enumerate(stages) if down.conv or across.conv]
    parts = []
    for index, both in enumerate(stages):
        if index not in convs:
            parts.append(_pool("AveragePool", both))
            continue
        # once, and in the last: intermediate values stay averages
        weight = (gain if index == convs[-1] else 1.0) / (both[0].size * both[1].size)
        parts.append(_convolution(both, channels, weight))
    return parts


def _pool(op: str, both: _Both) -> RowNode:
    down, across = both
    pads = [down.before, across.before, down.after, across.after]
    attrs: dict[str, Any] = {
        "kernel_shape": [down.size, across.size],
        "strides": [down.stride, across.stride],
        "pads": pads if any(pads) else None,
    }
    # the cascade counts padding as zeros; without padding the attribute has no effect
    if op == "AveragePool" and any(pads):
        attrs["count_include_pad"] = 1
    return RowNode(op, (), attrs)


def _convolution(both: _Both, channels: int, weight: float) -> RowNode:
    down, across = both
    pads = [down.before, across.before, down.after, across.after]
    dilations = [down.dilation, across.dilation]
    attrs = {
        "kernel_shape": [down.size, across.size],
        "strides": [down.stride, across.stride],
        "pads": pads if any(pads) else None,
        "dilations": dilations if dilations != [1, 1] else None,
        "group": channels,
    }
    return RowNode("Conv", (np.full((channels, 1, down.size, across.size), weight),), attrs)


def over_channels(channels: int, weight: float) -> RowNode:
    """Returns a 1x1 convolution that sums the channels, each times ``weight``, into one."""
    return RowNode("Conv", (np.full((1, channels, 1, 1), weight),), {"kernel_shape": [1, 1]})


def position_map(height: PoolAxis, width: PoolAxis) -> np.ndarray:
    """Returns the ratio of a window's elements to its elements without padding, [H, W]."""
    return height.size * width.size / np.outer(height.real(), width.real())


def inclusive_parts(graph: RewriteGraph, node: Node, pool: PoolNode) -> list[RowNode] | None:
    """Returns nodes for an AveragePool's result, by an average with padding counted as zeros.

    The map is a constant of the tensor's full shape, which TensorRT runs as a scale; if it is
    uniform, it is a factor. None if there is no such form, or if a window that counts its padding
    reaches beyond it (ceil mode): implementations differ there.
    """
    channels = graph.shape(node.inputs[0])[1]
    if node.attrs.get("count_include_pad", 0):
        if pool.height.beyond or pool.width.beyond:
            return None
        return average_parts(pool.height, pool.width, channels)
    by_place = position_map(pool.height, pool.width)
    factor = float(by_place.flat[0])
    if (by_place == factor).all():
        return average_parts(pool.height, pool.width, channels, factor)
    parts = average_parts(pool.height, pool.width, channels)
    whole = np.broadcast_to(by_place, (1, channels, *by_place.shape))
    return None if parts is None else [*parts, RowNode("Mul", (whole,))]


def mean_parts(item: Reduction) -> list[RowNode] | None:
    """Returns nodes for the mean; None if there is no such form."""
    image = average_parts(item.height, item.width, item.shape[1])
    return _reduction_parts(item, image, 1 / item.shape[1])


def total_parts(item: Reduction) -> list[RowNode] | None:
    """Returns nodes for the sum; None if there is no such form."""
    return _reduction_parts(item, sum_parts(item.height, item.width, item.shape[1]), 1.0)


def _reduction_parts(
    item: Reduction, image: list[RowNode] | None, weight: float
) -> list[RowNode] | None:
    ends = item.reshape()
    # nothing is reduced, only dimensions of size 1 are dropped
    if not item.axes and ends:
        return ends
    # only channels: no window over the image
    if item.axes == (1,):
        image = []
    if image is None:
        return None
    channels = [over_channels(item.shape[1], weight)] if 1 in item.axes else []
    return [*image, *channels, *ends]
