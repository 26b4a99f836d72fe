"""Windows along one axis as cascades of averages, maxima and convolutions that the DLA has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from edgekit.dla.rules import limit

# a longer cascade is no gain over a reduction on the GPU
MOST_STAGES = 5


class PoolStage(NamedTuple):
    """One window along one axis.

    Attributes:
        size: Its number of elements.
        stride: From one window to the next.
        before: Padding before the first element.
        after: Padding after the last one.
        dilation: From one element of the window to the next; more than 1 for a convolution only.
        conv: It is a depthwise convolution, or else a pooling layer.
    """

    size: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1
    conv: bool = False

    def outputs(self, length: int) -> int:
        """Returns how many windows there are on ``length`` elements."""
        span = (self.size - 1) * self.dilation + 1
        return (length + self.before + self.after - span) // self.stride + 1


IDENTITY = PoolStage(1)


@dataclass(frozen=True, slots=True)
class PoolAxis:
    """What a pooling layer does along one axis.

    Attributes:
        length: Elements of the input.
        count: Elements of the output.
        size: Elements of the window.
        stride: From one window to the next; 0 if there is one window that reaches to the end,
            so that any stride does.
        before: Padding before the first element.
        after: Padding that the last window reaches into, whatever the node declares: less than
            declared where the windows end before, more in ceil mode.
        dilation: From one element of the window to the next.
        beyond: The last window reaches beyond the padding that the node declares.
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
        """Returns how many elements of each window are not padding."""
        import numpy as np

        first = np.arange(self.count) * (self.stride or 1) - self.before
        # the first element of each window that is not before the input, and the one after its end
        bounds = (-(place // self.dilation) for place in (first, first - self.length))
        start, end = (np.clip(bound, 0, self.size) for bound in bounds)
        return tuple((end - start).tolist())


def fits(size: int, stride: int, before: int, after: int) -> bool:
    """Whether a pooling layer has this window, stride and padding."""
    _, most = limit("pooling.padding")
    return (
        size <= limit("pooling.window")[1]
        and stride <= limit("pooling.stride")[1]
        and max(before, after) <= most
    )


def pool_stages(axis: PoolAxis) -> tuple[PoolStage, ...] | None:
    """Returns average pools, one after the other, that make the average of ``axis``.

    A window of ``a * b`` elements is a window of b over the averages of windows of a that lie side
    by side; the padding counts as zeros. None if the window has no such factors.
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
    """Yields a first pool, and size, stride and padding of what is left to do after it."""
    for a in range(limit("pooling.window")[1], 1, -1):
        if size % a == 0 and stride % a == 0:
            first = PoolStage(a, a, before % a, after % a)
            yield first, size // a, stride // a, before // a, after // a
    for d in _parts(stride, limit("pooling.stride")[1]):
        if fits(size, d, before, after):
            yield PoolStage(size, d, before, after), 1, stride // d, 0, 0


def _parts(stride: int, most: int) -> list[int]:
    """Returns the divisors of a stride from ``most`` down to 2."""
    return [d for d in range(most, 1, -1) if stride and stride % d == 0]


def conv_stages(axis: PoolAxis) -> tuple[PoolStage, ...] | None:
    """Returns one convolution for ``axis``, and a pool of window 1 for the rest of its stride."""
    fits = (
        axis.size <= limit("convolution.kernel")[1]
        and axis.dilation <= limit("convolution.dilation")[1]
        and max(axis.before, axis.after) <= limit("convolution.padding")[1]
    )
    if not fits:
        return None

    def window(stride: int) -> PoolStage:
        return PoolStage(axis.size, stride, axis.before, axis.after, axis.dilation, conv=True)

    _, most = limit("convolution.stride")
    if axis.stride <= most:
        return (window(axis.stride or 1),)
    for d in _parts(axis.stride, most):
        if axis.stride // d <= limit("pooling.stride")[1]:
            return window(d), PoolStage(1, axis.stride // d)
    return None


@cache
def mixed_stages(axis: PoolAxis) -> tuple[tuple[PoolStage, ...], float] | None:
    """Returns average pools and a convolution after them for ``axis``, and a factor for the result.

    Pools go first, for they cost less than a large convolution. A window that reaches to both ends
    may be longer than the axis, with zeros around it, so that it has factors: the average changes
    by the factor, which the convolution's weights take. Just a convolution where there is no pool.
    """
    if axis.dilation != 1:
        return None
    candidates = []
    for more in range(limit("pooling.padding")[1] + 1) if not axis.stride else (0,):
        before, after = axis.before + more // 2, axis.after + more - more // 2
        longer = replace(axis, size=axis.size + more, before=before, after=after)
        found = _pools_and_conv(longer, MOST_STAGES)
        if found:
            large = found[-1].size > limit("pooling.window")[1]
            candidates.append(((len(found), large, more % 2, more), longer.size, found))
    if not candidates:
        direct = conv_stages(axis)
        return (direct, 1.0) if direct else None
    _, size, found = min(candidates, key=lambda item: item[0])
    return found, size / axis.size


@cache
def _pools_and_conv(axis: PoolAxis, most: int) -> tuple[PoolStage, ...] | None:
    best: tuple[PoolStage, ...] | None = None
    for a in range(limit("pooling.window")[1], 1, -1):
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
    """Returns maximum pools, one after the other, that make the maximum of ``axis``.

    Windows of a, at a distance of d <= a, and b of those make a window of ``(b - 1) * d + a``.
    The padding never wins. None if no short cascade does it; a dilated window is taken apart
    where the other elements can be left out first.
    """
    if axis.dilation == 1:
        return _fewest(axis.size, axis.stride, axis.before, axis.after)
    d, last = axis.dilation, axis.length - 1
    if axis.before % d or axis.stride % d or d > limit("pooling.stride")[1]:
        return None
    # elements at a distance of d are left, the last of them at the one that d divides
    after = (last + axis.after) // d - last // d
    rest = _fewest(axis.size, axis.stride // d, axis.before // d, after)
    return rest and (PoolStage(1, d), *rest)


@cache
def _fewest(size: int, stride: int, before: int, after: int) -> tuple[PoolStage, ...] | None:
    for most in range(1, MOST_STAGES + 1):
        # one window that reaches to the end may reach further
        for more in (0, *range(1, limit("pooling.padding")[1] + 1)) if not stride else (0,):
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
    for d in range(limit("pooling.stride")[1], 0, -1):
        if stride % d:
            continue
        for a in range(limit("pooling.window")[1], 0, -1):
            b, left = divmod(size - a, d)
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
    """Returns how much of a padding the first pool takes, and how many windows that leaves out.

    Every window of the first pool must hold one real element; those that are left out hold none
    that their neighbours do not.
    """
    own = min(pad, a - 1, limit("pooling.padding")[1])
    own -= (own - pad) % d
    return own, (pad - own) // d
