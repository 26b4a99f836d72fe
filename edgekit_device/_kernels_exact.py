"""Where quicker arithmetic gives the same bytes: of types with few values, all are tried."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any, Dict, Tuple

from ._convert import convert
from ._kernels_layout import SIZES

__all__ = ["camera_divides", "divides", "quick_bytes"]


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


def camera_divides(numbers: Any) -> bool:
    """The same for a frame's bytes, with mean and factor."""
    import numpy as np

    codes = np.arange(256, dtype=np.float32)[:, None]
    mean, factor = np.array(numbers.mean, np.float32), np.array(numbers.factor, np.float32)
    with np.errstate(all="ignore"):
        values = np.clip((codes - mean) * factor, numbers.low, numbers.high).astype(np.float32)
        quick = np.rint(values * np.float32(numbers.inverse))
        return bool((quick != np.rint(values / np.float32(numbers.dst_scale))).any())


def quick_bytes(src: Any, dst: Any, numbers: Any) -> Dict[str, int]:
    """Definitions of one multiplication for bytes, with its numbers set; none where it is inexact.

    Codes are held between the ends where steps are saturated.
    """
    if SIZES[src.dtype] != 1 or SIZES[dst.dtype] != 1:
        return {}
    found = _quick(src.dtype, dst.dtype, src.scale, dst.scale)
    if found is None:
        return {}
    numbers.slope, numbers.low, numbers.high = found[:3]
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
    low, high = float(np.float32(ends.min / slope)), float(np.float32(ends.max / slope))
    # the sum with 1.5 * 2**23 is rounded once, half to even, as round() does with fractions
    held = np.clip(codes.astype(np.float32), low, high).tolist()
    line = Fraction(float(slope))
    made = [round(Fraction(code) * line) & 255 for code in held]
    if made != wanted.view(np.uint8).tolist():
        return None
    lower, upper = bool((codes < low).any()), bool((codes > high).any())
    return float(slope), low, high, lower, upper
