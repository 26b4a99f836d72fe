"""Parts of a kernel along one axis, each a convolution of its own on some of the rows.

A tap ``j`` of a kernel reads, for output ``o``, row ``o s + j d - p`` (stride s, dilation d,
padding p before the first row). Taps ``first`` to ``stop`` alone are a convolution that reads rows
from ``first d - p`` on: what is negative is padding, what is positive need not be read. Their sum
over all parts is the whole convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from edgekit.dla import limit
from edgekit.rewrite.convolution._common import within

__all__ = ["Axis", "Part", "axes_of", "parts_of", "ways"]

# parts along one axis that are tried
_MOST_PARTS = 16
# taps of a part for which one tap of zero instead of a slice may be added
_TAPS_PER_ZERO = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a convolution.

    Attributes:
        size: Rows of the input.
        out: Rows of the output.
        kernel: Taps.
        stride: Rows from one output to the next.
        dilation: Rows from one tap to the next.
        before: Padding before the first row.
        after: Padding behind the last row.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def padded(self, before: int, after: int) -> Axis:
        """The axis after rows of zeros were put there by another layer."""
        size = self.size + before + after
        return replace(self, size=size, before=self.before - before, after=self.after - after)


@dataclass(frozen=True, slots=True)
class Part:
    """Some taps of a kernel as a convolution of their own.

    Attributes:
        first: First tap.
        stop: One beyond the last tap.
        lead: Taps of zero in front of them.
        tail: Taps of zero behind them.
        start: First row that it reads.
        end: One beyond the last row that it reads.
        before: Padding before these rows.
        after: Padding behind them.
        stride: Of the convolution.
        dilation: Of the convolution; 1 where it has one tap.
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
        """Taps, those of zero among them."""
        return self.stop - self.first + self.lead + self.tail

    def fits(self) -> bool:
        """Whether the DLA takes kernel, padding and dilation."""
        return (
            within("convolution.kernel", self.kernel)
            and within("convolution.padding", self.before, self.after)
            and within("convolution.dilation", self.dilation)
            and max(self.before, self.after) <= (self.kernel - 1) * self.dilation
        )


def axes_of(
    shape: tuple[int, ...], target: tuple[int, ...], window: tuple[tuple[int, ...], ...]
) -> tuple[Axis, Axis]:
    """Returns both axes of a convolution; ``window`` is (kernel, stride, pads, dilation)."""
    kernel, stride, pads, dilation = window
    made = [
        Axis(shape[a + 2], target[a + 2], kernel[a], stride[a], dilation[a], pads[a], pads[a + 2])
        for a in range(2)
    ]
    return made[0], made[1]


def _part(axis: Axis, first: int, stop: int) -> Part | None:
    """Taps first to stop; None when they read nothing but padding."""
    step, taps, lead, tail = axis.dilation, stop - first, 0, 0
    low = first * step - axis.before
    high = (axis.out - 1) * axis.stride + (stop - 1) * step + 1 - axis.before
    if high <= 0 or low >= axis.size:
        return None
    if low > 0 and low % step == 0 and _free(taps, low // step):
        lead, low = low // step, 0
    # the stride of a single output does not matter
    stride = axis.stride if axis.out > 1 or within("convolution.stride", axis.stride) else 1
    # fewer unused rows than a stride make no further output
    spare = -(-(axis.size - high - stride + 1) // step)
    if spare > 0 and _free(taps + lead, spare):
        tail, high = spare, high + spare * step
    while True:
        reach = (taps + lead + tail - 1) * step
        if -low > reach:
            tail, high = tail + 1, high + step
        elif high - axis.size > reach:
            lead, low = lead + 1, low - step
        else:
            break
    end = axis.size if axis.size - high < stride else high
    return Part(
        first,
        stop,
        lead,
        tail,
        max(low, 0),
        end,
        max(-low, 0),
        max(high - end, 0),
        stride,
        step if taps + lead + tail > 1 else 1,
    )


def _free(taps: int, zeros: int) -> bool:
    """Whether taps of zero are better than a slice."""
    return zeros * _TAPS_PER_ZERO <= taps and within("convolution.kernel", taps + zeros)


def parts_of(axis: Axis, count: int) -> list[Part]:
    """Returns the kernel in ``count`` parts as equal as can be, without those that read nothing."""
    bounds = [axis.kernel * index // count for index in range(count + 1)]
    made = [_part(axis, a, b) for a, b in pairwise(bounds)]
    return [part for part in made if part is not None]


def ways(
    axis: Axis, fits: Callable[[Part], bool] = Part.fits
) -> Iterator[tuple[tuple[int, int], list[Part]]]:
    """Yields ways to split an axis: rows of zeros to put there before, and the parts.

    At most one for each amount of zeros: none, as many as make the padding allowed, all of it.
    """
    most = limit("convolution.padding")[1]
    excess = (max(axis.before - most, 0), max(axis.after - most, 0))
    for zeros in dict.fromkeys([(0, 0), excess, (axis.before, axis.after)]):
        padded = axis.padded(*zeros)
        for count in range(1, min(axis.kernel, _MOST_PARTS) + 1):
            parts = parts_of(padded, count)
            if parts and all(fits(part) for part in parts):
                yield zeros, parts
                break
