"""Convolutions with large strides in two steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from edgekit.dla.memory import cbuf_banks
from edgekit.dla.rules import limit
from edgekit.network.windows import KernelWindow
from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.convolution.geometry import (
    Conv,
    banks_available,
    conv_of,
    within,
    write_conv,
)
from edgekit.rewriting.rules.convolution.limits import (
    KernelAxis,
    SplitPlan,
    axes_of,
    plan_of,
    too_far,
    too_full,
    too_large,
    too_padded,
    write_plan,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


# Ways to a stride that is over the DLA's limit: a stride of ``a b`` in two steps, a and then b.
#
# - After: a convolution of stride a, and a pooling of window 1 that keeps every b-th value.
# - Before: for a kernel of 1, the pooling of stride b first: nothing that is dropped is computed.
# - Blocks: blocks of a x a pixels become channels (a convolution of stride a with one 1 in each
#   kernel); on these the convolution has ``ceil(k / a)`` taps and the stride b. It multiplies about
#   as often as the original, where a pooling after drops all but one of b b results.


class Pooled(NamedTuple):
    """A convolution and a pooling of window 1.

    Attributes:
        first: The pooling comes first.
        stride: Of the convolution.
        pool: Of the pooling.
        cost: Multiplications.
        full: Whether the convolution buffer cannot hold it in FP16.
    """

    first: bool
    stride: tuple[int, int]
    pool: tuple[int, int]
    cost: int
    full: bool


@dataclass(frozen=True, slots=True)
class Blocked:
    """One axis in blocks.

    Attributes:
        block: Pixels of a block.
        count: Blocks of the input.
        before: Padding of the blocks before the first pixel, in pixels.
        after: After the last one.
        kernel: Taps on blocks.
        stride: In blocks.
        pad_before: Padding of these taps, in blocks.
        pad_after: After the last block.
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
        """Whether the DLA takes it."""
        return (
            within("convolution.stride", self.block, self.stride)
            and within("convolution.kernel", self.kernel)
            and within("convolution.padding", self.pad_before, self.pad_after)
            and max(self.pad_before, self.pad_after) < self.kernel
        )


class StrideBlocks(NamedTuple):
    """Blocks of pixels as channels, and a convolution on them."""

    height: Blocked
    width: Blocked
    cost: int
    full: bool


def way_of(conv: Conv) -> SplitPlan | Pooled | StrideBlocks | None:
    """Returns the way of the fewest multiplications that keeps to the limits; None if none does.

    Where there is one output only along each axis of a large stride, that stride does not matter:
    the convolution needs no second step, only an input without the rows that it does not read.
    """
    size = conv.size
    axes = axes_of(conv.shape, conv.target, (size.kernel, size.stride, size.pads, size.dilation))
    strided = [axis.stride for axis in axes if axis.out > 1]
    plan = plan_of(conv) if within("convolution.stride", *strided) else None
    if plan is not None:
        return plan
    found: list[Pooled | StrideBlocks] = [*_pooled(conv, axes), *_blocks(conv, axes)]
    return min(found, key=lambda way: (way.full, way.cost), default=None)


def _factors(stride: int, most: int) -> Iterator[tuple[int, int]]:
    """Splits a stride into one of a convolution and a second one of at most ``most``."""
    for first in range(1, limit("convolution.stride")[1] + 1):
        if stride % first == 0 and stride // first <= most:
            yield first, stride // first


def _pooled(conv: Conv, axes: tuple[KernelAxis, KernelAxis]) -> Iterator[Pooled]:
    if too_large(conv) or too_far(conv) or too_padded(conv):
        return
    most = limit("pooling.stride")[1]
    kernel = conv.size.kernel[0] * conv.size.kernel[1]
    each = conv.shape[0] * conv.weight[0] * conv.weight[1] * kernel
    first = kernel == 1 and not any(conv.size.pads)
    for (a, b), (c, d) in product(*(_factors(axis.stride, most) for axis in axes)):
        cost = each * axes[0].out * axes[1].out
        yield Pooled(first, (a, c), (b, d), cost if first else cost * b * d, too_full(conv))


def _blocks(conv: Conv, axes: tuple[KernelAxis, KernelAxis]) -> Iterator[StrideBlocks]:
    if conv.size.dilation != (1, 1):
        return
    most = limit("convolution.stride")[1]
    for (a, b), (c, d) in product(*(_factors(axis.stride, most) for axis in axes)):
        if (a, c) == (1, 1) or not within("general.dimension", conv.shape[1] * a * c):
            continue
        height, width = _blocked(axes[0], a, b), _blocked(axes[1], c, d)
        if height is None or width is None or not (height.fits() and width.fits()):
            continue
        channels = conv.weight[1] * a * c
        cost = conv.shape[1] * (a * c) ** 2 * height.count * width.count
        cost += conv.weight[0] * channels * height.kernel * width.kernel * axes[0].out * axes[1].out
        yield StrideBlocks(height, width, conv.shape[0] * cost, _full(conv, height, width))


def _full(conv: Conv, height: Blocked, width: Blocked) -> bool:
    channels, sides = conv.shape[1], (height.block, width.block)
    first = cbuf_banks(channels, sides, 1, conv.shape[3], "fp16", channels)
    channels *= height.block * width.block
    sides = (height.kernel, width.kernel)
    second = cbuf_banks(channels, sides, 1, width.count, "fp16", conv.groups)
    return max(first, second) >= banks_available()


def _blocked(axis: KernelAxis, block: int, stride: int) -> Blocked | None:
    kernel = -(-axis.kernel // block)
    pad, before = divmod(axis.before, block)
    # blocks that the last output reads up to, without those of padding
    needed = (axis.out - 1) * stride + kernel - pad
    count = (axis.size + before) // block
    after = 0
    if needed > count:
        reach = -(-(axis.size + before) // block)
        count = min(needed, reach)
        after = max(count * block - axis.size - before, 0)
    if count < 1 or (before and before >= block) or after >= block:
        return None
    return Blocked(block, count, before, after, kernel, stride, pad, max(needed - count, 0))


class LargeStride:
    """Conv with a stride over the limit -> two layers whose strides multiply to it.

    The patches of a vision transformer (16 x 16 with a stride of 16) become blocks of 8 x 8
    pixels as channels and a convolution of 2 x 2 on these; where multiplying is cheaper so, a
    convolution and a pooling of window 1. A stride with a prime factor over both limits stays.
    """

    name = "large-stride"
    reason = (
        "the DLA's convolutions have a limited stride; a larger one is two steps, whose strides "
        "multiply"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A 2-D Conv with constant weights and a stride over the limit."""
        conv = conv_of(graph, node)
        if conv is None or within("convolution.stride", *conv.size.stride):
            return None
        way = way_of(conv)
        return None if way is None else Match((node,), (conv, way))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """The way of the fewest multiplications."""
        conv, way = match.facts
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
        "MaxPool",
        [data],
        output=output,
        name=f"{name}:every",
        kernel_shape=[1, 1],
        strides=list(way.pool),
    )


def _write_blocks(new: Writer, conv: Conv, way: StrideBlocks) -> None:
    import numpy as np

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
    """The weights of the convolution on blocks, as a recipe."""
    weight = conv.node.inputs[1]
    maps, channels, rows, columns = conv.weight
    height, width = way.height, way.width
    missing = [height.kernel * height.block - rows, width.kernel * width.block - columns]
    if any(missing):
        weight = new.node("Pad", [weight, new.constant([0, 0, 0, 0, 0, 0, *missing])])
    apart = [maps, channels, height.kernel, height.block, width.kernel, width.block]
    weight = new.node("Reshape", [weight, new.constant(apart)])
    weight = new.node("Transpose", [weight], perm=[0, 1, 3, 5, 2, 4])
    area = height.block * width.block
    joined = new.constant([maps, channels * area, height.kernel, width.kernel])
    return new.node("Reshape", [weight, joined])
