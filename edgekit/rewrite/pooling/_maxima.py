"""Maxima over windows along one axis as maxima of maxima."""

from __future__ import annotations

from functools import cache

from edgekit.dla import limit
from edgekit.rewrite.pooling._cascade import MOST_STAGES, Axis, Stage, fits

__all__ = ["max_stages"]


@cache
def max_stages(axis: Axis) -> tuple[Stage, ...] | None:
    """Returns maximum pools, one after the other, that make the maximum of ``axis``.

    Windows of a, at a distance of d <= a, and b of those make a window of ``(b - 1) * d + a``.
    The padding never wins. None where no short cascade does it; a dilated window is taken apart
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
    return rest and (Stage(1, d), *rest)


@cache
def _fewest(size: int, stride: int, before: int, after: int) -> tuple[Stage, ...] | None:
    for most in range(1, MOST_STAGES + 1):
        # one window that reaches to the end may reach further
        for more in (0, *range(1, limit("pooling.padding")[1] + 1)) if not stride else (0,):
            found = _maxima(size + more, stride, before, after + more, most)
            if found:
                return found
    return None


@cache
def _maxima(size: int, stride: int, before: int, after: int, most: int) -> tuple[Stage, ...] | None:
    if fits(size, stride, before, after):
        return (Stage(size, stride or 1, before, after),)
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
                return (Stage(a, d, first, last), *found)
    return None


def _inner_padding(pad: int, a: int, d: int) -> tuple[int, int]:
    """Returns how much of a padding the first pool takes, and how many windows that leaves out.

    Every window of the first pool must hold one real element; those that are left out hold none
    that their neighbours do not.
    """
    own = min(pad, a - 1, limit("pooling.padding")[1])
    own -= (own - pad) % d
    return own, (pad - own) // d
