"""Ways to a stride that is over the DLA's limit: a stride of ``a b`` in two steps, a and then b.

Behind: a convolution of stride a, and a pooling of window 1 that keeps every b-th value.
Before: for a kernel of 1, the pooling of stride b first: nothing that is dropped is computed.
Blocks: blocks of a x a pixels become channels (a convolution of stride a with one 1 in each
kernel); on these the convolution has ``ceil(k / a)`` taps and the stride b. It multiplies about as
often as the original, where a pooling behind drops all but one of b b results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from edgekit.dla import cbuf_banks, limit
from edgekit.rewrite.convolution._axis import Axis, axes_of
from edgekit.rewrite.convolution._common import Conv, banks_available, within
from edgekit.rewrite.convolution._over_limits import too_far, too_full, too_large, too_padded
from edgekit.rewrite.convolution._split import Plan, plan_of

__all__ = ["Blocks", "Pooled", "way_of"]


@dataclass(frozen=True, slots=True)
class Pooled:
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
        after: Behind the last one.
        kernel: Taps on blocks.
        stride: In blocks.
        pad_before: Padding of these taps, in blocks.
        pad_after: Behind the last block.
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


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of pixels as channels, and a convolution on them."""

    height: Blocked
    width: Blocked
    cost: int
    full: bool


def way_of(conv: Conv) -> Plan | Pooled | Blocks | None:
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
    found: list[Pooled | Blocks] = [*_pooled(conv, axes), *_blocks(conv, axes)]
    return min(found, key=lambda way: (way.full, way.cost), default=None)


def _factors(stride: int, most: int) -> Iterator[tuple[int, int]]:
    """Splits a stride into one of a convolution and a second one of at most ``most``."""
    for first in range(1, limit("convolution.stride")[1] + 1):
        if stride % first == 0 and stride // first <= most:
            yield first, stride // first


def _pooled(conv: Conv, axes: tuple[Axis, Axis]) -> Iterator[Pooled]:
    if too_large(conv) or too_far(conv) or too_padded(conv):
        return
    most = limit("pooling.stride")[1]
    kernel = conv.size.kernel[0] * conv.size.kernel[1]
    each = conv.shape[0] * conv.weight[0] * conv.weight[1] * kernel
    first = kernel == 1 and not any(conv.size.pads)
    for (a, b), (c, d) in product(*(_factors(axis.stride, most) for axis in axes)):
        cost = each * axes[0].out * axes[1].out
        yield Pooled(first, (a, c), (b, d), cost if first else cost * b * d, too_full(conv))


def _blocks(conv: Conv, axes: tuple[Axis, Axis]) -> Iterator[Blocks]:
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
        yield Blocks(height, width, conv.shape[0] * cost, _full(conv, height, width))


def _full(conv: Conv, height: Blocked, width: Blocked) -> bool:
    channels, sides = conv.shape[1], (height.block, width.block)
    first = cbuf_banks(channels, sides, 1, conv.shape[3], "fp16", channels)
    channels *= height.block * width.block
    sides = (height.kernel, width.kernel)
    second = cbuf_banks(channels, sides, 1, width.count, "fp16", conv.groups)
    return max(first, second) >= banks_available()


def _blocked(axis: Axis, block: int, stride: int) -> Blocked | None:
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
