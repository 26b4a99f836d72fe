"""Growing an axis by a whole factor, in steps that the DLA has.

Linear interpolation is what a moving average makes of repeated elements: repeated s times each,
averaged over s neighbours, an element reaches as far as to its neighbours' centres, with weights
that fall linearly. Average pooling that leaves out what lies outside (``count_include_pad`` = 0)
does at the borders what clamping does, since all that such a window sees there is one element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from edgekit.rewrite._select import factors
from edgekit.rewrite.deconvolution._resizing import Axis, Resizing, rows

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Growth", "Stage", "growth", "repeated", "stages"]

Kind: TypeAlias = Literal["same", "repeat", "half_pixel", "asymmetric", "align_corners"]


@dataclass(frozen=True, slots=True)
class Growth:
    """How an axis grows.

    Attributes:
        kind: "same", "repeat" (each element so many times), or the coordinates of a linear one.
        factor: By how much; for "align_corners", elements from one corner to the next.
        single: The axis has one element.
    """

    kind: Kind
    factor: int
    single: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One step along one axis.

    Attributes:
        kind: "nearest" or "linear" (resizing), "pool" (averaging) or "crop".
        size: The factor, the window, or the size that stays.
        begin: Padding before.
        end: Padding behind.
    """

    kind: str
    size: int
    begin: int = 0
    end: int = 0

    def after(self, size: int) -> int:
        """Returns the axis' size behind this step."""
        if self.kind == "crop":
            return self.size
        if self.kind == "pool":
            return size + self.begin + self.end - self.size + 1
        return size * self.size


def growth(made: Resizing, axis: Axis) -> Growth | None:
    """Returns how an axis grows; None where it does so in another way.

    Coordinates and rounding that have the same effect for these sizes are one: what is compared
    is which elements are read with which weights.
    """
    if axis.out < axis.size:
        return None
    seen = _effect(*rows(made, axis), axis.size)
    for item in _possible(axis):
        if _alike(seen, _effect(*rows(*_plain(item, axis)), axis.size)):
            return item
    return None


def repeated(grown: tuple[Growth, ...]) -> bool:
    """Whether every axis only repeats its elements."""
    return all(item.kind in {"same", "repeat"} for item in grown)


def _possible(axis: Axis) -> list[Growth]:
    if axis.out == axis.size:
        return [Growth("same", 1)]
    found = []
    if axis.out % axis.size == 0:
        factor = axis.out // axis.size
        found.append(Growth("repeat", factor, axis.size == 1))
        found += [Growth("half_pixel", factor), Growth("asymmetric", factor)]
    if axis.size > 1 and (axis.out - 1) % (axis.size - 1) == 0:
        found.append(Growth("align_corners", (axis.out - 1) // (axis.size - 1)))
    return found


def _plain(item: Growth, axis: Axis) -> tuple[Resizing, Axis]:
    nearest = item.kind in {"same", "repeat"}
    how = "asymmetric" if nearest else item.kind
    mode = "nearest" if nearest else "linear"
    ideal = Resizing((), mode, how, "floor", -0.75, exclude=False, scaled=True)
    return ideal, Axis(axis.size, axis.out, axis.out / axis.size)


def _effect(index: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """What it makes of numbers that no two different combinations of elements make alike."""
    import numpy as np

    probe = np.random.default_rng(0).standard_normal((size, 2))
    return np.asarray((probe[index] * weight[..., None]).sum(1))


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    import numpy as np

    return bool(np.abs(a - b).max() <= 1e-11)


def stages(item: Growth, *, linear: bool) -> list[Stage] | None:
    """Returns the steps for one axis; None where there are none within the DLA's limits.

    Args:
        item: How it grows.
        linear: Whether a linear Resize by a factor within the DLA's limit may be a step.
    """
    if item.kind == "same":
        return []
    if item.kind == "repeat":
        return _repeat(item)
    if item.kind == "half_pixel":
        return _half_pixel(item.factor, linear=linear)
    # the knots of a linear growth by b are among the elements of one by a after it
    _, window = _limit("pooling.window")
    most = window
    if item.kind == "asymmetric":
        most = min(window, _limit("pooling.padding")[1] + 1)
    parts = factors(item.factor, most)
    if parts is None:
        return None
    found = []
    for part in parts:
        end = part - 1 if item.kind == "asymmetric" else 0
        found += [Stage("nearest", part), Stage("pool", part, 0, end)]
    return found


def _repeat(item: Growth) -> list[Stage] | None:
    _, most = _limit("resize.nearest_scale")
    parts = factors(item.factor, most)
    if parts is not None:
        return [Stage("nearest", part) for part in parts]
    if not item.single:
        return None
    # one element: too many of it do no harm
    enough = item.factor
    while (parts := factors(enough, most)) is None:
        enough += 1
    return [*(Stage("nearest", part) for part in parts), Stage("crop", item.factor)]


def _half_pixel(factor: int, *, linear: bool) -> list[Stage] | None:
    """Odd factors first: their elements hold the knots (the centres of the input's elements).

    A power of 2 has them between its elements. So it comes last; where it takes several steps,
    they go by the elements' edges, one more than there are elements, and the mean of two
    neighbouring edges ends it.
    """
    _, window = _limit("pooling.window")
    _, native = _limit("resize.linear_scale")
    odd = factor
    while odd % 2 == 0:
        odd //= 2
    power = factor // odd
    parts = factors(odd, window)
    if parts is None:
        return None
    found = []
    for part in parts:
        if linear and part <= native:
            found.append(Stage("linear", part))
        else:
            found += [Stage("nearest", part), Stage("pool", part, part // 2, part // 2)]
    if power == 1:
        return found
    if linear and power <= native:
        return [*found, Stage("linear", power)]
    first = min(power, window)
    found += [Stage("nearest", first), Stage("pool", first, first // 2, first // 2)]
    for part in factors(power // first, window) or []:
        found += [Stage("nearest", part), Stage("pool", part)]
    return [*found, Stage("pool", 2)]


def _limit(rule: str) -> tuple[int, int]:
    from edgekit.dla import limit

    return limit(rule)
