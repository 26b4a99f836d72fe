"""Convolutions beyond the limits of the DLA.

Written as sums of convolutions within the limits, as two of smaller strides, or of two axes instead
of one. Other modules use :class:`Conv`, a convolution's parameters, and the writers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from edgekit.dla.fact_files import memory_facts
from edgekit.dla.memory import cbuf_banks
from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node, form
from edgekit.network.windows import KernelWindow, cropped_by_same, window
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit_device.protocol.codec import document

_REMEMBERED = 4096
# most parts along one axis that are tried
_MOST_PARTS = 16
# taps of a part that are required for each tap of zero instead of a slice
_TAPS_PER_ZERO = 8
# most parts along the channels that are tried
_MOST_CHANNEL_PARTS = 16
_Key = tuple[tuple[int, int, int], ...]


class Conv(NamedTuple):
    """A Conv node with constant weights, its attributes resolved.

    Attributes:
        node: The node.
        shape: Shape of its input.
        target: Shape of its output.
        weight: Shape of the weights [K, C / groups, *kernel].
        size: Kernel, stride, pads and dilation, ``auto_pad`` resolved.
        groups: Number of groups.
    """

    node: Node
    shape: tuple[int, ...]
    target: tuple[int, ...]
    weight: tuple[int, ...]
    size: KernelWindow
    groups: int

    @property
    def bias(self) -> str:
        """The bias; "" if there is none."""
        return self.node.input(2)


def read_conv(graph: RewriteGraph, node: Node | None, spatial: int = 2) -> Conv | None:
    """Returns a Conv of ``spatial`` axes with constant weights and bias; None for other nodes."""
    if node is None or node.op != "Conv" or node.domain or not graph.floats(node.outputs[0]):
        return None
    source, weight, bias = node.inputs[0], node.inputs[1], node.input(2)
    # a constant image is a recipe, not a layer; a computed weight is no convolution for the DLA
    if graph.constant(source) or not graph.constant(weight):
        return None
    if (bias and not graph.constant(bias)) or graph.rank(source) != spatial + 2:
        return None
    shape, target = graph.shape(source), graph.shape(node.outputs[0])
    sizes = graph.shape(weight)
    # every rewrite of a convolution reads it first, and networks repeat their layers
    key = (form(node), sizes[2:], shape[2:], target[2:])
    if key not in _window_cache():
        if len(_window_cache()) >= _REMEMBERED:
            _window_cache().clear()
        # runtimes disagree on SAME padding below zero, so no form of it can be proved
        cropped = cropped_by_same(node.attrs, *key[1:])
        _window_cache()[key] = None if cropped else window(node.attrs, *key[1:])
    size = _window_cache()[key]
    if size is None:
        return None
    return Conv(node, shape, target, sizes, size, int(node.attrs.get("group", 1)))


@lru_cache(1)
def _window_cache() -> dict[Hashable, KernelWindow | None]:
    return {}


def write_conv(
    new: Writer,
    inputs: Sequence[str],
    size: KernelWindow,
    *,
    groups: int = 1,
    output: str = "",
    name: str = "",
    role: str = "",
) -> str:
    """Writes a Conv with all its attributes and returns its output."""
    return new.node(
        "Conv",
        [item for item in inputs if item],
        output=output,
        name=name,
        role=role,
        kernel_shape=list(size.kernel),
        strides=list(size.stride),
        pads=list(size.pads),
        dilations=list(size.dilation),
        group=groups,
    )


def write_again(new: Writer, node: Node) -> None:
    """Writes a replaced node again, for remaining readers of its output."""
    new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)


def in_rule_range(rule: str, *values: int) -> bool:
    """Returns True if values are in the range of a DLA rule."""
    low, high = rule_range(rule)
    return all(low <= value <= high for value in values)


def banks_available() -> int:
    """Returns the number of banks of the DLA's convolution buffer.

    A convolution that needs them all was refused.
    """
    return memory_facts().cbuf.banks


def vector(graph: RewriteGraph, new: Writer, tensor: str, size: int) -> str:
    """Returns a constant of one element or ``size`` elements as [size], by a recipe."""
    shape = graph.shape(tensor)
    if shape == (size,):
        return tensor
    if math.prod(shape) == size:
        return new.node("Reshape", [tensor, new.constant([size])])
    single = new.node("Reshape", [tensor, new.constant([1])])
    return new.node("Expand", [single, new.constant([size])])


def write_zeros(
    new: Writer,
    data: str,
    channels: int,
    height: tuple[int, int],
    width: tuple[int, int],
    *,
    name: str,
    output: str = "",
) -> str:
    """Writes zeros around an image: (before, after) of the height and of the width.

    A depthwise convolution whose kernel has a single 1 moves its input. With ``a + b + 1`` taps,
    the 1 at tap b, and padding of a + b at either end, its result is the input with a rows of zeros
    before and b after: the padding is smaller than the kernel, as the DLA requires.
    """
    steps = [(axis, *step) for axis, pair in enumerate((height, width)) for step in _steps(*pair)]
    for index, (axis, before, after) in enumerate(steps):
        end = output if index == len(steps) - 1 else ""
        data = _grown(new, data, channels, (axis, before, after), end, f"{name}:zeros")
    return data


def _steps(before: int, after: int) -> list[tuple[int, int]]:
    """Splits an amount of zeros into steps within the limit of one convolution."""
    # the kernel has before + after + 1 taps
    most = min(rule_range("convolution.padding")[1], rule_range("convolution.kernel")[1] - 1)
    steps = []
    while before or after:
        front = min(before, most)
        back = min(after, most - front)
        steps.append((front, back))
        before, after = before - front, after - back
    return steps


def _grown(
    new: Writer, data: str, channels: int, step: tuple[int, int, int], output: str, name: str
) -> str:
    axis, before, after = step
    both = before + after
    kernel, pads = [1, 1], [0, 0, 0, 0]
    kernel[axis], pads[axis], pads[axis + 2] = both + 1, both, both
    weight = np.zeros((channels, 1, both + 1))
    weight[:, 0, after] = 1.0
    moved = new.constant(weight.reshape(channels, 1, *kernel), role="zeros")
    window = KernelWindow((kernel[0], kernel[1]), (1, 1), tuple(pads), (1, 1))
    return write_conv(new, [data, moved], window, groups=channels, output=output, name=name)


def write_channels(
    new: Writer, data: str, channels: int, before: int, after: int, *, name: str, output: str = ""
) -> str:
    """Writes channels of zeros before and after an image's channels, as a 1x1 convolution."""
    new.check_size(before + channels + after, channels)
    weight = np.zeros((before + channels + after, channels, 1, 1))
    weight[before : before + channels, :, 0, 0] = np.eye(channels)
    window = KernelWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    moved = new.constant(weight, role="zeros")
    return write_conv(new, [data, moved], window, output=output, name=f"{name}:channels")


@rewrite(
    "conv-1d",
    operators=("Conv",),
    reason="DLA layers need four dimensions: a sequence [N, C, L] becomes an image [N, C, L, 1], "
    "so that the reshapes around each convolution disappear",
    enabling=True,
)
def conv_1d(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv on [N, C, L] -> Conv of [k, 1] on [N, C, L, 1], between reshapes.

    TensorRT does the same internally; in the model, other rewrites can move the reshapes.

    At a Conv of one spatial axis with constant weights.
    """
    conv = read_conv(graph, node, spatial=1)
    if conv is None:
        return
    new = yield (node,)
    wide = new.constant([*conv.shape, 1])
    data = new.node("Reshape", [node.inputs[0], wide], name=f"{node.name}:image")
    weight = new.node("Reshape", [node.inputs[1], new.constant([*conv.weight, 1])])
    size = conv.size
    window = KernelWindow(
        (*size.kernel, 1),
        (*size.stride, 1),
        (size.pads[0], 0, size.pads[1], 0),
        (*size.dilation, 1),
    )
    inputs = [data, weight, conv.bias]
    made = write_conv(new, inputs, window, groups=conv.groups, name=node.name)
    narrow = new.constant(list(conv.target))
    new.node("Reshape", [made, narrow], output=node.outputs[0], name=f"{node.name}:sequence")


class Pooled(NamedTuple):
    """A convolution and a pooling of window 1.

    Splits of a stride over the DLA's limit: a stride of ``a b`` in two steps, a and then b.

    - After: a convolution of stride a, and a pooling of window 1 that keeps every b-th value.
    - Before: for a kernel of 1, the pooling of stride b first: no dropped value is computed.
    - Blocks: blocks of a x a pixels become channels (a convolution of stride a with one 1 in each
      kernel); on these the convolution has ``ceil(k / a)`` taps and the stride b. It multiplies
      about as often as the original, while a pooling after drops all but one of b b results.

    Attributes:
        first: True if the pooling comes first.
        stride: Stride of the convolution.
        pool: Stride of the pooling.
        cost: Number of multiplications.
        full: True if the convolution buffer cannot hold it in FP16.
    """

    first: bool
    stride: tuple[int, int]
    pool: tuple[int, int]
    cost: int
    full: bool


@document(frozen=True)
class Blocked:
    """An axis in blocks.

    Attributes:
        block: Pixels of a block.
        count: Number of blocks of the input.
        before: Padding of the blocks before the first pixel, in pixels.
        after: Padding after the last pixel, in pixels.
        kernel: Taps on blocks.
        stride: Stride, in blocks.
        pad_before: Padding before the first block, in blocks.
        pad_after: Padding after the last block, in blocks.
    """

    block: int
    count: int
    before: int
    after: int
    kernel: int
    stride: int
    pad_before: int
    pad_after: int

    def fits(self) -> bool:
        """Returns True if the DLA supports it."""
        return (
            in_rule_range("convolution.stride", self.block, self.stride)
            and in_rule_range("convolution.kernel", self.kernel)
            and in_rule_range("convolution.padding", self.pad_before, self.pad_after)
            and max(self.pad_before, self.pad_after) < self.kernel
        )


class StrideBlocks(NamedTuple):
    """Blocks of pixels as channels, and a convolution on them."""

    height: Blocked
    width: Blocked
    cost: int
    full: bool


def choose_split(conv: Conv) -> SplitPlan | Pooled | StrideBlocks | None:
    """Returns the split of the fewest multiplications within the limits; None if there is none.

    With a single output along each axis of a large stride, that stride has no effect: the
    convolution needs no second step, only an input without the unread rows.
    """
    size = conv.size
    axes = kernel_axes(
        conv.shape, conv.target, (size.kernel, size.stride, size.pads, size.dilation)
    )
    strided = [axis.stride for axis in axes if axis.out > 1]
    plan = plan_split(conv) if in_rule_range("convolution.stride", *strided) else None
    if plan is not None:
        return plan
    found: list[Pooled | StrideBlocks] = [*_pooled(conv, axes), *_blocks(conv, axes)]
    # a convolution that fills the buffer stays on the GPU, however few its multiplications
    return min(found, key=lambda way: (way.full, way.cost), default=None)


def _factors(stride: int, most: int) -> Iterator[tuple[int, int]]:
    """Splits a stride into a convolution's stride and a second stride of at most ``most``."""
    for first in range(1, rule_range("convolution.stride")[1] + 1):
        if stride % first == 0 and stride // first <= most:
            yield first, stride // first


def _pooled(conv: Conv, axes: tuple[KernelAxis, KernelAxis]) -> Iterator[Pooled]:
    # the convolution keeps its kernel and padding here, so these must be within their limits
    if too_large(conv) or too_far(conv) or too_padded(conv):
        return
    most = rule_range("pooling.stride")[1]
    kernel = conv.size.kernel[0] * conv.size.kernel[1]
    each = conv.shape[0] * conv.weight[0] * conv.weight[1] * kernel
    # each output then reads one pixel, so the unread pixels can go before
    first = kernel == 1 and not any(conv.size.pads)
    for (a, b), (c, d) in product(*(_factors(axis.stride, most) for axis in axes)):
        cost = each * axes[0].out * axes[1].out
        # a pool after the convolution drops all but one of b d results
        yield Pooled(first, (a, c), (b, d), cost if first else cost * b * d, too_full(conv))


def _blocks(conv: Conv, axes: tuple[KernelAxis, KernelAxis]) -> Iterator[StrideBlocks]:
    # the taps of one dilated kernel are at different places of their blocks
    if conv.size.dilation != (1, 1):
        return
    most = rule_range("convolution.stride")[1]
    for (a, b), (c, d) in product(*(_factors(axis.stride, most) for axis in axes)):
        # one pixel is no block; the channels of a block are the second convolution's input channels
        if (a, c) == (1, 1) or not in_rule_range("general.dimension", conv.shape[1] * a * c):
            continue
        height, width = _blocked(axes[0], a, b), _blocked(axes[1], c, d)
        if height is None or width is None or not (height.fits() and width.fits()):
            continue
        channels = conv.weight[1] * a * c
        # the depthwise convolution: a c kernels of a c taps for each channel and block
        cost = conv.shape[1] * (a * c) ** 2 * height.count * width.count
        cost += conv.weight[0] * channels * height.kernel * width.kernel * axes[0].out * axes[1].out
        yield StrideBlocks(height, width, conv.shape[0] * cost, _full(conv, height, width))


def _full(conv: Conv, height: Blocked, width: Blocked) -> bool:
    channels, sides = conv.shape[1], (height.block, width.block)
    # in FP16, whose values take more of the buffer than INT8's
    first = cbuf_banks(channels, sides, 1, conv.shape[3], "fp16", channels)
    channels *= height.block * width.block
    sides = (height.kernel, width.kernel)
    second = cbuf_banks(channels, sides, 1, width.count, "fp16", conv.groups)
    return max(first, second) >= banks_available()


def _blocked(axis: KernelAxis, block: int, stride: int) -> Blocked | None:
    # whole blocks of padding are padding of the second convolution, the rest of the first
    kernel = -(-axis.kernel // block)
    pad, before = divmod(axis.before, block)
    # blocks up to the last block that the last output reads, without blocks of padding
    needed = (axis.out - 1) * stride + kernel - pad
    count = (axis.size + before) // block
    after = 0
    if needed > count:
        reach = -(-(axis.size + before) // block)
        count = min(needed, reach)
        after = max(count * block - axis.size - before, 0)
    if count < 1:
        return None
    # the first convolution's padding is below its kernel, the block, as the DLA requires
    return Blocked(block, count, before, after, kernel, stride, pad, max(needed - count, 0))


@rewrite(
    "large-stride",
    operators=("Conv",),
    reason="the DLA's convolutions have a limited stride; two convolutions whose strides multiply "
    "replace a larger one",
)
def large_stride(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv with a stride over the limit -> two layers whose strides multiply to it.

    The patches of a vision transformer (16 x 16 with a stride of 16) become blocks of 8 x 8 pixels
    as channels and a convolution of 2 x 2 on these, or a convolution and a pooling of window 1 if
    that multiplies less. A stride with a prime factor over both limits is not supported.

    At a 2-D Conv with constant weights and a stride over the limit.
    """
    conv = read_conv(graph, node)
    if conv is None or in_rule_range("convolution.stride", *conv.size.stride):
        return
    way = choose_split(conv)
    if way is None:
        return
    new = yield (node,)
    if isinstance(way, SplitPlan):
        write_plan(new, conv, way, conv.node.inputs[0])
        return
    if isinstance(way, StrideBlocks):
        _write_blocks(new, conv, way)
        return
    size = replace(conv.size, stride=way.stride)
    node = conv.node
    data, output = node.inputs[0], node.outputs[0]
    inputs = [node.inputs[1], conv.bias]
    if way.first:
        data = _pool(new, data, way, node.name, "")
        _conv(new, conv, [data, *inputs], size, output)
    else:
        made = _conv(new, conv, [data, *inputs], size, "")
        _pool(new, made, way, node.name, output)


def _conv(new: Writer, conv: Conv, inputs: list[str], size: KernelWindow, output: str) -> str:
    name = conv.node.name
    return write_conv(new, inputs, size, groups=conv.groups, output=output, name=name)


def _pool(new: Writer, data: str, way: Pooled, name: str, output: str) -> str:
    return new.node(
        # of one element, so a maximum changes nothing
        "MaxPool",
        [data],
        output=output,
        name=f"{name}:every",
        kernel_shape=[1, 1],
        strides=list(way.pool),
    )


def _write_blocks(new: Writer, conv: Conv, way: StrideBlocks) -> None:
    height, width, channels = way.height, way.width, conv.shape[1]
    area = height.block * width.block
    # channel c, row i, column j of a block become channel (c rows + i) columns + j
    ones = np.tile(np.eye(area).reshape(area, 1, height.block, width.block), (channels, 1, 1, 1))
    size = KernelWindow(
        (height.block, width.block),
        (height.block, width.block),
        (height.before, width.before, height.after, width.after),
        (1, 1),
    )
    name = conv.node.name
    inputs = [conv.node.inputs[0], new.constant(ones, role="blocks")]
    data = write_conv(new, inputs, size, groups=channels, name=f"{name}:blocks")
    on_blocks = KernelWindow(
        (height.kernel, width.kernel),
        (height.stride, width.stride),
        (height.pad_before, width.pad_before, height.pad_after, width.pad_after),
        (1, 1),
    )
    inputs = [data, _on_blocks(new, conv, way), conv.bias]
    _conv(new, conv, inputs, on_blocks, conv.node.outputs[0])


def _on_blocks(new: Writer, conv: Conv, way: StrideBlocks) -> str:
    """Writes the weights of the convolution on blocks, as a recipe."""
    weight = conv.node.inputs[1]
    maps, channels, rows, columns = conv.weight
    height, width = way.height, way.width
    missing = [height.kernel * height.block - rows, width.kernel * width.block - columns]
    if any(missing):
        weight = new.node("Pad", [weight, new.constant([0, 0, 0, 0, 0, 0, *missing])])
    apart = [maps, channels, height.kernel, height.block, width.kernel, width.block]
    weight = new.node("Reshape", [weight, new.constant(apart)])
    # [K, C, block row, row, block column, column]: row and column follow C, as in the blocks'
    # channels
    weight = new.node("Transpose", [weight], perm=[0, 1, 3, 5, 2, 4])
    area = height.block * width.block
    joined = new.constant([maps, channels * area, height.kernel, width.kernel])
    return new.node("Reshape", [weight, joined])


class KernelAxis(NamedTuple):
    """An axis of a convolution.

    Parts of a kernel along one axis, each a separate convolution on some of the rows.

    A tap ``j`` of a kernel reads, for output ``o``, row ``o s + j d - p`` (stride s, dilation d,
    padding p before the first row). Taps ``first`` to ``stop`` alone are a convolution that reads
    rows from ``first d - p`` on: a negative start is padding, a positive start skips rows. The sum
    over all parts is the whole convolution.

    Attributes:
        size: Rows of the input.
        out: Rows of the output.
        kernel: Number of taps.
        stride: Distance of neighbouring outputs, in rows.
        dilation: Distance of neighbouring taps, in rows.
        before: Padding before the first row.
        after: Padding after the last row.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def padded(self, before: int, after: int) -> KernelAxis:
        """Returns the axis after another layer added rows of zeros."""
        size = self.size + before + after
        return self._replace(size=size, before=self.before - before, after=self.after - after)


class KernelPart(NamedTuple):
    """Some taps of a kernel as a separate convolution.

    Attributes:
        first: First tap.
        stop: Last tap + 1.
        lead: Taps of zero before the first tap.
        tail: Taps of zero after the last tap.
        start: First row that it reads.
        end: Last row that it reads + 1.
        before: Padding before these rows.
        after: Padding after these rows.
        stride: Stride of the convolution.
        dilation: Dilation of the convolution; 1 for a single tap.
    """

    first: int
    stop: int
    lead: int
    tail: int
    start: int
    end: int
    before: int
    after: int
    stride: int
    dilation: int

    @property
    def kernel(self) -> int:
        """Number of taps, including taps of zero."""
        return self.stop - self.first + self.lead + self.tail

    def fits(self) -> bool:
        """Returns True if the DLA supports kernel, padding and dilation."""
        return (
            in_rule_range("convolution.kernel", self.kernel)
            and in_rule_range("convolution.padding", self.before, self.after)
            and in_rule_range("convolution.dilation", self.dilation)
            and max(self.before, self.after) <= (self.kernel - 1) * self.dilation
        )


def kernel_axes(
    shape: tuple[int, ...], target: tuple[int, ...], window: tuple[tuple[int, ...], ...]
) -> tuple[KernelAxis, KernelAxis]:
    """Returns both axes of a convolution; ``window`` is (kernel, stride, pads, dilation)."""
    kernel, stride, pads, dilation = window
    made = [
        KernelAxis(
            shape[a + 2], target[a + 2], kernel[a], stride[a], dilation[a], pads[a], pads[a + 2]
        )
        for a in range(2)
    ]
    return made[0], made[1]


def _part(axis: KernelAxis, first: int, stop: int) -> KernelPart | None:
    """Returns the part with taps ``first`` to ``stop``; None if they read only padding."""
    step, taps, lead, tail = axis.dilation, stop - first, 0, 0
    low = first * step - axis.before
    high = (axis.out - 1) * axis.stride + (stop - 1) * step + 1 - axis.before
    if high <= 0 or low >= axis.size:
        return None
    # a slice is a layer of its own, taps of zero only multiply
    if low > 0 and low % step == 0 and _free(taps, low // step):
        lead, low = low // step, 0
    # the stride of a single output does not matter
    stride = axis.stride if axis.out > 1 or in_rule_range("convolution.stride", axis.stride) else 1
    # fewer unused rows than a stride add no output
    spare = -(-(axis.size - high - stride + 1) // step)
    if spare > 0 and _free(taps + lead, spare):
        tail, high = spare, high + spare * step
    while True:
        # the DLA needs padding below the (dilated) kernel: taps of zero widen the kernel until it
        # is
        reach = (taps + lead + tail - 1) * step
        if -low > reach:
            tail, high = tail + 1, high + step
        elif high - axis.size > reach:
            lead, low = lead + 1, low - step
        else:
            break
    # read to the end if that adds no output: without a slice
    end = axis.size if axis.size - high < stride else high
    return KernelPart(
        first,
        stop,
        lead,
        tail,
        max(low, 0),
        end,
        max(-low, 0),
        max(high - end, 0),
        stride,
        # a single tap has no distance, and the old dilation may exceed the DLA's limit
        step if taps + lead + tail > 1 else 1,
    )


def _free(taps: int, zeros: int) -> bool:
    """Returns True if taps of zero are better than a slice."""
    return zeros * _TAPS_PER_ZERO <= taps and in_rule_range("convolution.kernel", taps + zeros)


def split_kernel(axis: KernelAxis, count: int) -> list[KernelPart]:
    """Returns ``count`` kernel parts of similar size, without parts that read only padding."""
    bounds = [axis.kernel * index // count for index in range(count + 1)]
    made = [_part(axis, a, b) for a, b in pairwise(bounds)]
    return [part for part in made if part is not None]


def ways(
    axis: KernelAxis, fits: Callable[[KernelPart], bool] = KernelPart.fits
) -> Iterator[tuple[tuple[int, int], list[KernelPart]]]:
    """Yields splits of an axis: rows of zeros to add before, and the parts.

    At most one split for each amount of zeros: none, as many as make the padding allowed, or the
    whole padding.
    """
    most = rule_range("convolution.padding")[1]
    excess = (max(axis.before - most, 0), max(axis.after - most, 0))
    for zeros in dict.fromkeys([(0, 0), excess, (axis.before, axis.after)]):
        padded = axis.padded(*zeros)
        # ascending: the first split that fits has the fewest layers
        for count in range(1, min(axis.kernel, _MOST_PARTS) + 1):
            parts = split_kernel(padded, count)
            if parts and all(fits(part) for part in parts):
                yield zeros, parts
                break


class SplitPlan(NamedTuple):
    """Split of a convolution.

    Attributes:
        zeros: Rows and columns of zeros that other layers first add around the input: (before,
            after) of the height, then of the width.
        rows: Parts of the kernel's height.
        columns: Parts of the kernel's width.
        channels: Bounds of the parts of the input channels.
    """

    zeros: tuple[tuple[int, int], tuple[int, int]]
    rows: list[KernelPart]
    columns: list[KernelPart]
    channels: list[int]

    def layers(self, shape: tuple[int, ...]) -> int:
        """Returns the number of layers: convolutions, sums, slices and layers of zeros."""
        parts = len(self.rows) * len(self.columns) * (len(self.channels) - 1)
        slices = len({key for *_, key in _pieces(self, shape) if key})
        # n parts are added by n - 1 sums; parts that read the same rows share a slice
        return 2 * parts - 1 + slices + sum(any(pair) for pair in self.zeros)


def fp16_banks(conv: Conv) -> int:
    """Returns the number of convolution buffer banks that a convolution takes in FP16."""
    kernel = (conv.size.kernel[0], conv.size.kernel[1])
    shape = conv.shape
    return cbuf_banks(shape[1], kernel, conv.size.dilation[0], shape[3], "fp16", conv.groups)


def plan_split(conv: Conv) -> SplitPlan | None:
    """Returns the split of the fewest layers within all DLA limits; None if there is none."""
    size = conv.size
    height, width = kernel_axes(
        conv.shape, conv.target, (size.kernel, size.stride, size.pads, size.dilation)
    )
    best: SplitPlan | None = None
    for zeros_w, columns in ways(width):
        widest = max(part.end - part.start for part in columns)
        kernel_w = max(part.kernel for part in columns)
        for bounds in _channel_bounds(conv):
            parts = len(columns) * (len(bounds) - 1)
            # more parts of the channels have more layers still
            if best is not None and 2 * parts - 1 >= best.layers(conv.shape):
                break
            most = max(b - a for a, b in pairwise(bounds))
            fits = partial(_fits, channels=most, kernel=kernel_w, width=widest, groups=conv.groups)
            for zeros_h, rows in ways(height, fits):
                plan = SplitPlan((zeros_h, zeros_w), rows, columns, bounds)
                if best is None or plan.layers(conv.shape) < best.layers(conv.shape):
                    best = plan
    return best


def _fits(part: KernelPart, *, channels: int, kernel: int, width: int, groups: int) -> bool:
    sides = (part.kernel, kernel)
    used = cbuf_banks(channels, sides, part.dilation, width, "fp16", groups)
    return part.fits() and used < banks_available()


def _channel_bounds(conv: Conv) -> Iterator[list[int]]:
    channels = conv.shape[1]
    # a part of a grouped convolution's channels would cut through groups
    most = min(channels, _MOST_CHANNEL_PARTS) if conv.groups == 1 else 1
    for count in range(1, most + 1):
        yield [channels * index // count for index in range(count + 1)]


def _pieces(
    plan: SplitPlan, shape: tuple[int, ...]
) -> Iterator[tuple[KernelPart, KernelPart, tuple[int, int], _Key]]:
    """Yields every convolution of a plan with the slices of its input: (axis, start, end)."""
    sizes = (
        shape[1],
        shape[2] + sum(plan.zeros[0]),
        shape[3] + sum(plan.zeros[1]),
    )
    for channels, row, column in product(pairwise(plan.channels), plan.rows, plan.columns):
        spans = (channels, (row.start, row.end), (column.start, column.end))
        cut = tuple(
            (axis, a, b)
            for axis, ((a, b), size) in enumerate(zip(spans, sizes, strict=True), start=1)
            if (a, b) != (0, size)
        )
        yield row, column, channels, cut


def write_plan(new: Writer, conv: Conv, plan: SplitPlan, data: str) -> None:
    """Writes the parts and their sum instead of a convolution of ``data``."""
    node = conv.node
    data = write_zeros(new, data, conv.shape[1], *plan.zeros, name=node.name)
    pieces = list(_pieces(plan, conv.shape))
    # the whole input needs no slice
    slices: dict[_Key, str] = {(): data}
    total = ""
    for index, (row, column, channels, cut) in enumerate(pieces):
        if cut not in slices:
            slices[cut] = _slice(new, data, cut, f"{node.name}:slice")
        # with one part of the channels, the weights keep all of them
        weight = _weight(new, conv, row, column, channels if len(plan.channels) > 2 else None)
        size = KernelWindow(
            (row.kernel, column.kernel),
            (row.stride, column.stride),
            (row.before, column.before, row.after, column.after),
            (row.dilation, column.dilation),
        )
        last = index == len(pieces) - 1
        whole = node.outputs[0] if len(pieces) == 1 else ""
        inputs = [slices[cut], weight, "" if index else conv.bias]
        name = f"{node.name}:part" if index else node.name
        part = write_conv(
            new, inputs, size, groups=conv.groups, output=whole, name=name, role="part"
        )
        if index:
            end = node.outputs[0] if last else ""
            part = new.node("Add", [total, part], output=end, name=f"{node.name}:sum", role="sum")
        total = part


def _slice(new: Writer, data: str, cut: Sequence[tuple[int, int, int]], name: str) -> str:
    axes, starts, ends = zip(*cut, strict=True)
    bounds = [new.constant(list(item)) for item in (starts, ends, axes)]
    return new.node("Slice", [data, *bounds], name=name)


def _weight(
    new: Writer, conv: Conv, row: KernelPart, column: KernelPart, channels: tuple[int, int] | None
) -> str:
    """Writes the weights of a part, as a recipe."""
    weight = conv.node.inputs[1]
    spans = [(1, *channels)] if channels else []
    for axis, part in ((2, row), (3, column)):
        if (part.first, part.stop) != (0, conv.weight[axis]):
            spans.append((axis, part.first, part.stop))
    if spans:
        weight = _slice(new, weight, spans, f"{weight}:slice")
    zeros = [0, 0, row.lead, column.lead, 0, 0, row.tail, column.tail]
    return new.node("Pad", [weight, new.constant(zeros)]) if any(zeros) else weight


def _split(graph: RewriteGraph, node: Node, beyond: Callable[[Conv], bool]) -> Replacement:
    """Splits a 2-D Conv with constant weights beyond a limit, into the fewest layers.

    The split respects the limits of kernel, padding, dilation and convolution buffer together, so
    that no part exceeds another limit.
    """
    conv = read_conv(graph, node)
    plan = plan_split(conv) if conv is not None and beyond(conv) else None
    if conv is None or plan is None:
        return
    new = yield (node,)
    write_plan(new, conv, plan, conv.node.inputs[0])


def too_large(conv: Conv) -> bool:
    """Returns True if the kernel is over its limit."""
    return not in_rule_range("convolution.kernel", *conv.size.kernel)


def too_far(conv: Conv) -> bool:
    """Returns True if the dilation is over its limit."""
    return not in_rule_range("convolution.dilation", *conv.size.dilation)


def too_padded(conv: Conv) -> bool:
    """Returns True if the padding is over its limit, or not smaller than the dilated kernel."""
    size = conv.size
    reach = [(k - 1) * d for k, d in zip(size.kernel, size.dilation, strict=True)]
    over = not in_rule_range("convolution.padding", *size.pads)
    return over or any(pad > far for pad, far in zip(size.pads, (*reach, *reach), strict=True))


def too_full(conv: Conv) -> bool:
    """Returns True if the convolution buffer is full, or too small, in FP16."""
    return fp16_banks(conv) >= banks_available()


@rewrite(
    "large-kernel",
    operators=("Conv",),
    reason=(
        "the DLA's kernels have limited sides; the sum of convolutions over parts of a larger "
        "kernel is the same"
    ),
)
def large_kernel(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv with a kernel side over the limit -> Convs over parts of the kernel, added.

    A part reads the input from its first tap on: by its own padding, by taps of zero, or, if
    neither is possible, by a Slice. The first part has the bias.
    """
    return _split(graph, node, too_large)


@rewrite(
    "large-dilation",
    operators=("Conv",),
    reason=(
        "the DLA's dilation is limited; convolutions with one tap each have none, and their sum "
        "is the same"
    ),
)
def large_dilation(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv with a dilation over the limit -> a Conv for each tap along that axis, added.

    Each reads a Slice of the input; layers of zeros add the padding before.
    """
    # ``large-kernel`` splits a kernel over the limit with any dilation
    return _split(graph, node, lambda conv: too_far(conv) and not too_large(conv))
