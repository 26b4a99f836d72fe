"""Where quicker arithmetic gives the same bytes: of types with few values, all are tried."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any, Dict, Tuple

from ._convert import convert
from ._kernels_layout import SIZES

__all__ = ["divides", "frame_bytes", "quick_bytes"]

_ROUND = 12582912.0  # 1.5 * 2**23, whose sum with a value rounds it


def divides(dtype: str, numbers: Any) -> int:
    """How many steps of the division (``_kernels_source``) the type's values need: 0, 1 or 2.

    A product with the reciprocal often rounds to the same step: of the types with few values, all
    are tried; of float32 those next to a tie, where one step of the division may differ.
    """
    if dtype == "float32":
        return _steps(numbers.dst_scale, numbers.inverse)
    given = (numbers.src_scale, numbers.dst_scale, numbers.inverse, numbers.low, numbers.high)
    return 2 if _divides(dtype, given) else 0


@functools.lru_cache(maxsize=256)
def _divides(dtype: str, given: Tuple[float, ...]) -> bool:
    import numpy as np

    src_scale, dst_scale, inverse, low, high = (np.float32(one) for one in given)
    if not dst_scale:
        return False
    size = SIZES[dtype]
    codes = np.arange(1 << 8 * size, dtype="u{}".format(size)).view(dtype)
    values = codes[np.isfinite(codes)].astype(np.float32)
    if dtype == "int8":
        values = values * src_scale
    values = np.clip(values, low, high)
    return bool((np.rint(values * inverse) != np.rint(values / dst_scale)).any())


@functools.lru_cache(maxsize=256)
def _steps(scale: float, inverse: float) -> int:
    """1 where one step of the division rounds each float32 as the division does, else 2.

    After one step the quotient is within one unit of the last place, as the rounded one is: only
    values within two units of a tie, so eight of their own, can be rounded otherwise.
    """
    import numpy as np

    if not scale:
        return 0
    ties = (np.arange(-129, 129) + 0.5) * scale
    ordered = ties.astype(np.float32).view(np.int32)[:, None] + np.arange(-8, 9, dtype=np.int32)
    values = ordered.view(np.float32)
    product = (values * np.float32(inverse)).astype(np.float64)
    rest = (values - product * scale).astype(np.float32).astype(np.float64) * inverse
    # a sum rounded to odd in double precision is rounded to float32 as the sum itself would be
    total = product + rest
    lost = (product - total) + rest
    even = total.view(np.int64) % 2 == 0
    total = np.where((lost != 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)
    exact = np.rint(values / np.float32(scale))
    return 1 if bool((np.rint(total.astype(np.float32)) == exact).all()) else 2


def frame_bytes(dst: Any, numbers: Any) -> Dict[str, int]:
    """How a frame's bytes become the network's values, with the numbers for it set.

    Every byte of every channel is tried: one multiplication where it gives the same steps, else
    mean, factor and scale one after the other, with a division only where a product differs.
    """
    import numpy as np

    if dst.dtype != "int8":
        return {"QUICK": 0, "DIVIDE": 0}
    codes = np.arange(256, dtype=np.float32)[:, None]
    mean, factor = np.array(numbers.mean, np.float32), np.array(numbers.factor, np.float32)
    with np.errstate(all="ignore"):
        values = ((codes - mean) * factor).astype(np.float32)
        wanted = convert(values, "int8", None, dst.scale).astype(np.float64)
        held = np.clip(values, np.float32(numbers.low), np.float32(numbers.high))
        divides = np.rint(held * np.float32(numbers.inverse)) != np.rint(
            held / np.float32(numbers.dst_scale)
        )
    slope = factor.astype(np.float64) / np.float64(np.float32(dst.scale))
    start = -mean.astype(np.float64) * slope
    found = _saturating(codes.astype(np.float64), slope, start, wanted, (-128, 127))
    if found is not None:
        numbers.slope[:], numbers.start[:], numbers.span, numbers.base = found
    return {"QUICK": 0 if found is None else 2, "DIVIDE": 2 * int(divides.any())}


def _saturating(
    codes: Any, slope: Any, start: Any, wanted: Any, ends: Tuple[int, int], lift: float = 0.0
) -> Any:
    """The numbers of ``step`` where it gives ``wanted`` for each code; None where it may not.

    The kernel has t = code * slope + start, rounded once, within 0 and 1 where it is saturated,
    and t * span + base, rounded once to a whole number: the first rounding changes that by no
    more than span * 2**-24, so a nearer tie is not taken. Where a value is a tie but for the
    rounding of the steps that it is made in, a number next to the exact one often takes its side.
    """
    low, high = ends
    span = float(high - low)
    found = []
    for column in range(len(slope)):
        one = (float(slope[column]), float(start[column]), wanted[:, column])
        pair = _nearby(codes[:, 0] + lift, one, low, span, lift)
        if pair is None:
            return None
        found.append(pair)
    return [a for a, _ in found], [b for _, b in found], span, _ROUND + low


def _nearby(codes: Any, one: Tuple[float, float, Any], low: float, span: float, lift: float) -> Any:
    import numpy as np

    slope, start, wanted = one
    for turn in (0.0, 1e-6, -1e-6, 1e-5, -1e-5):
        for shift in (0.0, 2e-4, -2e-4, 1e-3, -1e-3):
            with np.errstate(all="ignore"):
                a = np.float32(slope * (1 + turn) / span)
                b = np.float32((start + shift - low) / span - lift * np.float64(a))
                share = np.clip(codes * np.float64(a) + np.float64(b), 0.0, 1.0)
            # False for NaN, too
            if bool((np.abs(share * span + low - wanted) < 0.5 - span * 2.0**-23).all()):
                return float(a), float(b)
    return None


def quick_bytes(src: Any, dst: Any, numbers: Any) -> Dict[str, int]:
    """Definitions of quicker steps, with their numbers set; none where they are inexact.

    Codes are held between the ends where steps are saturated.
    """
    if src.dtype == "float16" and dst.dtype == "int8":
        slopes = _signed(numbers.dst_scale)
        if slopes is None:
            return {}
        numbers.slope[0], numbers.slope[1] = slopes
        return {"QUICK": 3, "LOWER": 0, "UPPER": 0}
    if SIZES[src.dtype] != 1 or SIZES[dst.dtype] != 1:
        return {}
    found = _quick(src.dtype, dst.dtype, src.scale, dst.scale)
    if found is None:
        return {}
    if isinstance(found[0], list):
        numbers.slope[0], numbers.start[0] = found[0][0], found[1][0]
        numbers.span, numbers.base = found[2:4]
        return {"QUICK": found[4], "LOWER": 0, "UPPER": 0}
    numbers.slope[0], numbers.low, numbers.high = found[:3]
    return {"QUICK": 1, "LOWER": int(found[3]), "UPPER": int(found[4])}


@functools.lru_cache(maxsize=256)
def _quick(src: str, dst: str, scale: Any, to_scale: Any) -> Any:
    import numpy as np

    codes = np.arange(256, dtype=np.uint8).view(src)
    real = codes.astype(np.float32)
    if src == "int8" and scale is not None:
        real = real * np.float32(scale)
    ends = np.iinfo(dst)
    if dst == "int8":
        wanted = convert(codes, dst, scale, to_scale)
        steps = np.rint(real / np.float32(to_scale))
    else:
        steps = np.rint(real)
        wanted = np.clip(steps, ends.min, ends.max).astype(dst)
    slope = np.float32((scale or 1.0) if src == "int8" else 1.0)
    if dst == "int8":
        slope = np.float32(np.float64(slope) / np.float64(np.float32(to_scale)))
    clipped = wanted.astype(np.float64)[:, None]
    # of unsigned values only the upper end is ever passed
    least = 0 if src == "uint8" else int(ends.min)
    line64 = np.array([slope], np.float64)
    column = codes.astype(np.float64)[:, None]
    lift = 32896.0 if src == "int8" else 32768.0
    for quick, by in ((4, lift), (2, 0.0)):
        found = _saturating(column, line64, 0.0 * line64, clipped, (least, int(ends.max)), by)
        if found is not None:
            return (*found, quick)
    low, high = float(np.float32(ends.min / slope)), float(np.float32(ends.max / slope))
    # the sum with 1.5 * 2**23 is rounded once, half to even, as round() does with fractions
    held = np.clip(codes.astype(np.float32), low, high).tolist()
    line = Fraction(float(slope))
    made = [round(Fraction(code) * line) & 255 for code in held]
    if made != wanted.view(np.uint8).tolist():
        return None
    lower, upper = bool((codes < low).any()), bool((codes > high).any())
    return float(slope), low, high, lower, upper


@functools.lru_cache(maxsize=256)
def _signed(scale: float) -> Any:
    """Factors of the two saturated products that give every half its step; None where none do."""
    import numpy as np

    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = codes[np.isfinite(codes)].astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = convert(values.astype(np.float16), "int8", None, scale).astype(np.float64)
        for turn in (0.0, 3e-8, -3e-8, 6e-8, -6e-8, 1e-7, -1e-7):
            up = np.float32((1 + turn) / (127 * scale))
            down = np.float32(-(1 + turn) / (128 * scale))
            # each product is rounded once, then two sums of which one adds nothing
            high = np.clip(values * up, np.float32(0), np.float32(1)).astype(np.float64)
            low = np.clip(values * down, np.float32(0), np.float32(1)).astype(np.float64)
            if bool((np.rint(high * 127) - np.rint(low * 128) == wanted).all()):
                return float(up), float(down)
    return None
