"""How a tensor lies for the pack kernels: a layout as the user names it, a side as they see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

from ._errors import DeviceError
from ._packing import four, stored_shape

__all__ = ["DLA", "LAST", "PLANES", "SIZES", "TYPES", "VECTORS", "Layout", "Side", "side"]

_MOST_PLACES = (1 << 31) - 64  # pixels and elements are counted in 32 bits
TYPES = {"float32": 0, "float16": 1, "uint8": 2, "int8": 3}
SIZES = {"float32": 4, "float16": 2, "uint8": 1, "int8": 1}
PLANES, LAST, VECTORS = 0, 1, 2
_SIDES = {
    "LINEAR": PLANES, "DLA_LINEAR": PLANES, "HWC": LAST, "DLA_HWC4": LAST,
    "CHW16": VECTORS, "CHW32": VECTORS,
}  # fmt: skip
DLA = ("DLA_LINEAR", "DLA_HWC4", "CHW16", "CHW32")
_VECTOR = {"CHW16": 16, "CHW32": 32}


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory; an ``IoEntry`` or ``DeviceTensor`` serves as well.

    Attributes:
        dtype: "float32", "float16", "uint8" or "int8".
        shape: The tensor's own shape; leading dimensions beyond (C, H, W) are one batch.
        format: "LINEAR" (planes), "HWC" (channels last), "DLA_LINEAR", "DLA_HWC4", "CHW16" or
            "CHW32".
        strides: Bytes along N, C (or vectors of C), H and W; may be empty for LINEAR, and for HWC
            without padding.
        scale: Value of one step of an INT8 tensor; None where the elements are the values.
    """

    dtype: str
    shape: Tuple[int, ...]
    format: str
    strides: Tuple[int, ...] = ()
    scale: Optional[float] = None


@dataclass(frozen=True)
class Side:
    """One side: kind, type, element bytes, pixels of a line, channels of a pixel, of a vector."""

    kind: int
    type: int
    size: int
    line: int
    held: int
    vector: int
    dla: bool


def side(layout: Any) -> Side:
    """Reads a layout.

    Raises:
        DeviceError: "kernels.unsupported", or as ``_packing.stored_shape``.
    """
    if layout.format not in _SIDES or layout.dtype not in TYPES:
        raise DeviceError(
            "no kernel for {} as {}".format(layout.dtype, layout.format),
            code="kernels.unsupported",
            hint="types: {}; formats: {}".format(", ".join(TYPES), ", ".join(_SIDES)),
        )
    size, kind = SIZES[layout.dtype], _SIDES[layout.format]
    batch, channels, height, width = four(layout.shape)
    line, held = width, channels
    if layout.format == "DLA_LINEAR":
        line = stored_shape(layout.shape, size, layout.format, layout.strides)[3]
    elif kind == LAST and (layout.strides or layout.format != "HWC"):
        line, held = stored_shape(layout.shape, size, layout.format, layout.strides)[2:]
    if max(batch * channels * height * line, batch * height * line * held) > _MOST_PLACES:
        raise DeviceError(
            "a tensor of {} is too large for the kernels".format(list(layout.shape)),
            code="kernels.unsupported",
            hint="convert it in parts of fewer than 2**31 elements",
        )
    vector = _VECTOR.get(layout.format, 0)
    return Side(kind, TYPES[layout.dtype], size, line, held, vector, layout.format in DLA)
