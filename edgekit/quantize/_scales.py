"""Making ``Scales`` values: float32 rounding and the digest."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping

from edgekit.quantize._types import Scales

__all__ = ["LARGEST_SCALE", "float32", "hex_of", "is_scale", "make_scales"]

#: The largest float32 / 128: with a larger scale a code stands for infinity.
LARGEST_SCALE = float.fromhex("0x1.fffffep+120")


def is_scale(value: float) -> bool:
    """Whether a number can be a tensor's INT8 scale: above 0, in float32 too, and not too large.

    Measuring, calibration caches, Q/DQ nodes and the reference build all ask this.
    """
    return 0 < value <= LARGEST_SCALE and float32(value) > 0


def float32(value: float) -> float:
    """Returns the nearest single-precision value (what engines and caches hold)."""
    return float(struct.unpack(">f", struct.pack(">f", value))[0])


def hex_of(scale: float) -> str:
    """Returns the big-endian float32 bits as TensorRT's caches write them, no zero padding."""
    return f"{int.from_bytes(struct.pack('>f', scale), 'big'):x}"


def make_scales(
    scales: Mapping[str, float], *, method: str, data: str, missing: Iterable[str] = ()
) -> Scales:
    """Returns ``Scales`` with float32 values and their digest."""
    rounded = {name: float32(value) for name, value in scales.items()}
    digest = hashlib.sha256()
    for name in sorted(rounded):
        digest.update(f"{name}\0{hex_of(rounded[name])}\n".encode())
    return Scales(rounded, method, data, digest.hexdigest(), tuple(missing))
