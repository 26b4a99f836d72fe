"""What a line of a calibration cache can hold: its tensor's name and its scale."""

from __future__ import annotations

import math

from edgekit.errors import DataError
from edgekit.quantize._scales import float32

__all__ = ["bad_scale", "check_name", "checked_scale", "is_scale"]


def is_scale(scale: float) -> bool:
    """Whether it is a scale, or 0: TensorRT had no range for the tensor."""
    return math.isfinite(scale) and scale >= 0


def bad_scale(name: str, scale: float, where: str) -> DataError:
    """Returns the error that says so."""
    return DataError(
        f"tensor {name!r} has the scale {scale}",
        code="cache.scale",
        where=where,
        hint="a scale is a positive number: the largest magnitude divided by 127",
    )


def checked_scale(name: str, scale: float) -> float:
    """Returns the float32 of a tensor's scale.

    Raises:
        DataError: "cache.scale": infinite, NaN or negative, or so in float32; or it would be 0 in
            float32, which says that there is no range.
    """
    try:
        rounded = float32(scale)
    except OverflowError:
        rounded = math.inf
    if not is_scale(rounded) or (scale and not rounded):
        raise bad_scale(name, scale, name)
    return rounded


def check_name(name: str) -> None:
    """Checks that a line can hold a tensor's name.

    Raises:
        DataError: "cache.name": it is empty, has a line break, or is no Unicode text.
    """
    try:
        name.encode()
        fault = "has a line break" if "\n" in name or "\r" in name else ""
    except UnicodeEncodeError:
        fault = "is no Unicode text"
    fault = fault if name else "is empty"
    if fault:
        raise DataError(
            f"tensor name {name!a} {fault}, which a calibration cache cannot hold",
            code="cache.name",
            where=name if name.isprintable() else ascii(name),
            hint="rename the tensor in the model",
        )
