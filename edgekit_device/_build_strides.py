"""Strides of an engine's inputs and outputs as manifests have them, in bytes.

Paddings: NVIDIA's guide "DLA runtime configuration" and cudla.h, as ``edgekit.dla`` has them; a
test holds both together.
"""

from __future__ import annotations

from typing import Sequence, Tuple

from ._packing import four
from ._types import DTYPES

__all__ = ["generation_of", "strides"]

# bytes that a line is padded to, by DLA generation
_LINES = {
    "DLA_LINEAR": {"1.0": 64, "2.0": 64},
    "DLA_HWC4": {"1.0": 32, "2.0": 64},
}
_HELD = {1: 1, 3: 4, 4: 4}
_VECTORS = {"CHW2": 2, "CHW4": 4, "CHW16": 16, "CHW32": 32}
_PIXELS = {"HWC": 1, "HWC8": 8, "HWC16": 16}


def generation_of(module: str) -> str:
    """DLA generation of a module by its device-tree name: "1.0" is Xavier's, "2.0" Orin's."""
    return "1.0" if "xavier" in module.lower() else "2.0"


def strides(
    shape: Sequence[int], dtype: str, format: str, generation: str = "2.0"
) -> Tuple[int, ...]:
    """Bytes along each axis for LINEAR, along N, C (or vectors of C), H and W otherwise.

    Empty where nobody says how that format lies.
    """
    size = DTYPES.get(dtype, 2)
    if format == "LINEAR":
        return _dense(shape, size)
    batch, channels, height, width = four(shape)
    if format in _VECTORS:
        vector = _VECTORS[format]
        return _dense((batch, -(-channels // vector), height, width, vector), size)[:4]
    if format == "DLA_LINEAR":
        line = _padded(width * size, _LINES[format][generation])
        return (channels * height * line, height * line, line, size)
    if format == "DLA_HWC4" and channels in _HELD:
        pixel = _HELD[channels] * size
        line = _padded(width * pixel, _LINES[format][generation])
    elif format in _PIXELS:
        pixel = _padded(channels, _PIXELS[format]) * size
        line = width * pixel
    else:
        return ()
    return (height * line, size, line, pixel)


def _dense(shape: Sequence[int], size: int) -> Tuple[int, ...]:
    found = [size]
    for length in reversed(shape[1:]):
        found.append(found[-1] * length)
    return tuple(reversed(found)) if shape else ()


def _padded(size: int, to: int) -> int:
    return -(-size // to) * to
