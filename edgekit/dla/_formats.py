"""Sizes and strides of tensors in the formats that cross a loadable's border.

Sources: NvInferRuntimeBase.h (comments of TensorFormat) and the DLA chapter of the TensorRT guide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["FORMATS", "nbytes", "strides"]

FORMATS = ("LINEAR", "DLA_LINEAR", "DLA_HWC4", "CHW16", "CHW32")
_ELEMENT = {
    "bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4,
    "int64": 8, "float64": 8,
}  # fmt: skip
_VECTOR = {"CHW16": 16, "CHW32": 32}
_LINE_BYTES = 64
# DLA_HWC4: a line of 32 bytes on Xavier, of 64 on Orin
_HWC4_LINE_BYTES = {"1.0": 32, "2.0": 64}
_HWC4_CHANNELS = {1: 1, 3: 4, 4: 4}
_CHW = 3


def strides(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the distance in bytes between neighbours along each axis of ``shape``.

    For the DLA formats the tensor is (N, C, H, W): leading dimensions of a larger tensor are one
    batch and a smaller one gets ones in front, so that four numbers come back. In CHW16 and CHW32
    the second number is the distance between vectors of 16 or 32 channels; within a vector the
    channels lie next to each other.

    Args:
        shape: Static shape.
        dtype: NumPy type name.
        format: One of ``FORMATS``.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).

    Raises:
        ValueError: Unknown format or type, or a shape that the format cannot hold.
    """
    if dtype not in _ELEMENT:
        raise ValueError(f"no element size known for {dtype!r}")
    size = _ELEMENT[dtype]
    if format == "LINEAR":
        found: list[int] = []
        step = size
        for length in reversed(shape):
            found.insert(0, step)
            step *= length
        return tuple(found)
    _, channels, height, width = _four(shape)
    if format == "DLA_LINEAR":
        line = _round_up(width * size, _LINE_BYTES)
        return (channels * height * line, height * line, line, size)
    if format == "DLA_HWC4":
        if channels not in _HWC4_CHANNELS:
            raise ValueError(f"DLA_HWC4 holds 1, 3 or 4 channels, not {channels}")
        pixel = _HWC4_CHANNELS[channels] * size
        line = _round_up(width * pixel, _HWC4_LINE_BYTES[generation])
        return (height * line, size, line, pixel)
    if format in _VECTOR:
        vector = _VECTOR[format]
        pixel = vector * size
        plane = height * width * pixel
        return (-(-channels // vector) * plane, plane, width * pixel, pixel)
    raise ValueError(f"unknown format {format!r}, the formats are {', '.join(FORMATS)}")


def nbytes(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> int:
    """Returns the bytes of a tensor, padding included; arguments as for :func:`strides`."""
    steps = strides(shape, dtype, format, generation)
    if format == "LINEAR":
        return math.prod(shape) * _ELEMENT[dtype]
    return _four(shape)[0] * steps[0]


def _four(shape: Sequence[int]) -> tuple[int, int, int, int]:
    full = (1,) * (_CHW + 1 - len(shape)) + tuple(shape)
    return (math.prod(full[:-_CHW]), full[-3], full[-2], full[-1])


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
