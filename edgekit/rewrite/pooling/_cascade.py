"""Windows along one axis, and averages over them as averages and convolutions that the DLA has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from edgekit.dla import limit

__all__ = ["IDENTITY", "MOST_STAGES", "Axis", "Stage", "conv_stages", "mixed_stages", "pool_stages"]

# a longer cascade is no gain over a reduction on the GPU
MOST_STAGES = 5


@dataclass(frozen=True, slots=True)
class Stage:
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


IDENTITY = Stage(1)


@dataclass(frozen=True, slots=True)
class Axis:
    """What a pooling layer does along one axis.

    Attributes:
        length: Elements of the input.
        count: Elements of the output.
        size: Elements of the window.
        stride: From one window to the next; 0 where there is one window that reaches to the end,
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
        # the first element of each window that is not before the input, and the one behind its end
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


def pool_stages(axis: Axis) -> tuple[Stage, ...] | None:
    """Returns average pools, one after the other, that make the average of ``axis``.

    A window of ``a * b`` elements is a window of b over the averages of windows of a that lie side
    by side; the padding counts as zeros. None where the window has no such factors.
    """
    if axis.dilation != 1:
        return None
    return _averages(axis.size, axis.stride, axis.before, axis.after, MOST_STAGES)


@cache
def _averages(
    size: int, stride: int, before: int, after: int, most: int
) -> tuple[Stage, ...] | None:
    if fits(size, stride, before, after):
        return (Stage(size, stride or 1, before, after),)
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
) -> Iterator[tuple[Stage, int, int, int, int]]:
    """Yields a first pool, and size, stride and padding of what is left to do after it."""
    for a in range(limit("pooling.window")[1], 1, -1):
        if size % a == 0 and stride % a == 0:
            first = Stage(a, a, before % a, after % a)
            yield first, size // a, stride // a, before // a, after // a
    for d in _parts(stride, limit("pooling.stride")[1]):
        if fits(size, d, before, after):
            yield Stage(size, d, before, after), 1, stride // d, 0, 0


def _parts(stride: int, most: int) -> list[int]:
    """Returns the divisors of a stride from ``most`` down to 2."""
    return [d for d in range(most, 1, -1) if stride and stride % d == 0]


def conv_stages(axis: Axis) -> tuple[Stage, ...] | None:
    """Returns one convolution for ``axis``, and a pool of window 1 for the rest of its stride."""
    fits = (
        axis.size <= limit("convolution.kernel")[1]
        and axis.dilation <= limit("convolution.dilation")[1]
        and max(axis.before, axis.after) <= limit("convolution.padding")[1]
    )
    if not fits:
        return None

    def window(stride: int) -> Stage:
        return Stage(axis.size, stride, axis.before, axis.after, axis.dilation, conv=True)

    _, most = limit("convolution.stride")
    if axis.stride <= most:
        return (window(axis.stride or 1),)
    for d in _parts(axis.stride, most):
        if axis.stride // d <= limit("pooling.stride")[1]:
            return window(d), Stage(1, axis.stride // d)
    return None


@cache
def mixed_stages(axis: Axis) -> tuple[tuple[Stage, ...], float] | None:
    """Returns average pools and a convolution after them for ``axis``, and a factor for the result.

    Pools go first, for they cost less than a large convolution. A window that reaches to both ends
    may be longer than the axis, with zeros around it, so that it has factors: the average changes
    by the factor, which the convolution's weights take. Just a convolution where there is no pool.
    """
    if axis.dilation != 1:
        return None
    kept = []
    for more in range(limit("pooling.padding")[1] + 1) if not axis.stride else (0,):
        before, after = axis.before + more // 2, axis.after + more - more // 2
        longer = replace(axis, size=axis.size + more, before=before, after=after)
        found = _pools_and_conv(longer, MOST_STAGES)
        if found:
            large = found[-1].size > limit("pooling.window")[1]
            kept.append(((len(found), large, more % 2, more), longer.size, found))
    if not kept:
        direct = conv_stages(axis)
        return (direct, 1.0) if direct else None
    _, size, found = min(kept, key=lambda item: item[0])
    return found, size / axis.size


@cache
def _pools_and_conv(axis: Axis, most: int) -> tuple[Stage, ...] | None:
    best: tuple[Stage, ...] | None = None
    for a in range(limit("pooling.window")[1], 1, -1):
        if axis.size % a or axis.stride % a:
            continue
        first = Stage(a, a, axis.before % a, axis.after % a)
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
