"""What a line of a calibration cache can hold: its tensor's name and its scale."""

from __future__ import annotations

from edgekit.errors import DataError
from edgekit.quantize._scales import float32, is_scale

__all__ = ["bad_scale", "check_name", "checked_scale"]


def bad_scale(name: str, scale: float, where: str) -> DataError:
    """Returns the error that says so."""
    return DataError(
        f"tensor {name!r} has the scale {scale}",
        code="cache.scale",
        where=where,
        hint="a scale is a positive number up to 2.65e+36: the largest magnitude divided by 127",
    )


def checked_scale(name: str, scale: float) -> float:
    """Returns the float32 of a tensor's scale, or the 0 that says that it has none.

    Raises:
        DataError: "cache.scale": it is neither (see ``is_scale``).
    """
    if scale and not is_scale(scale):
        raise bad_scale(name, scale, name)
    return float32(scale)


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
