"""Where quicker arithmetic gives the same bytes: of types with few values, all are tried."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any, Dict, Tuple

from ._convert import convert
from ._kernels_layout import SIZES

__all__ = ["divides", "frame_bytes", "quick_bytes"]

_ROUND = 12582912.0  # 1.5 * 2**23, whose sum with a value rounds it


def divides(dtype: str, numbers: Any) -> bool:
    """Whether a step needs the division itself, for any value of the type.

    A product with the reciprocal often rounds to the same step: of the types with few values, all
    are tried.
    """
    if dtype == "float32":
        return True
    given = (numbers.src_scale, numbers.dst_scale, numbers.inverse, numbers.low, numbers.high)
    return _divides(dtype, given)


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
    return {"QUICK": 0 if found is None else 2, "DIVIDE": int(divides.any())}


def _saturating(codes: Any, slope: Any, start: Any, wanted: Any, ends: Tuple[int, int]) -> Any:
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
        pair = _nearby(codes[:, 0], one, low, span)
        if pair is None:
            return None
        found.append(pair)
    return [a for a, _ in found], [b for _, b in found], span, _ROUND + low


def _nearby(codes: Any, one: Tuple[float, float, Any], low: float, span: float) -> Any:
    import numpy as np

    slope, start, wanted = one
    for turn in (0.0, 1e-6, -1e-6, 1e-5, -1e-5):
        for shift in (0.0, 2e-4, -2e-4, 1e-3, -1e-3):
            with np.errstate(all="ignore"):
                a = np.float32(slope * (1 + turn) / span)
                b = np.float32((start + shift - low) / span)
                share = np.clip(codes * np.float64(a) + np.float64(b), 0.0, 1.0)
            # False for NaN, too
            if bool((np.abs(share * span + low - wanted) < 0.5 - span * 2.0**-23).all()):
                return float(a), float(b)
    return None


def quick_bytes(src: Any, dst: Any, numbers: Any) -> Dict[str, int]:
    """Definitions of one multiplication for bytes, with its numbers set; none where it is inexact.

    Codes are held between the ends where steps are saturated.
    """
    if SIZES[src.dtype] != 1 or SIZES[dst.dtype] != 1:
        return {}
    found = _quick(src.dtype, dst.dtype, src.scale, dst.scale)
    if found is None:
        return {}
    if len(found) == len(("slope", "start", "span", "base")):
        numbers.slope[0], numbers.start[0] = found[0][0], found[1][0]
        numbers.span, numbers.base = found[2:]
        return {"QUICK": 2, "LOWER": 0, "UPPER": 0}
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
    found = _saturating(column, line64, 0.0 * line64, clipped, (least, int(ends.max)))
    if found is not None:
        return found
    low, high = float(np.float32(ends.min / slope)), float(np.float32(ends.max / slope))
    # the sum with 1.5 * 2**23 is rounded once, half to even, as round() does with fractions
    held = np.clip(codes.astype(np.float32), low, high).tolist()
    line = Fraction(float(slope))
    made = [round(Fraction(code) * line) & 255 for code in held]
    if made != wanted.view(np.uint8).tolist():
        return None
    lower, upper = bool((codes < low).any()), bool((codes > high).any())
    return float(slope), low, high, lower, upper
