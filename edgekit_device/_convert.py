"""Types of tensors at an engine's border: floats to INT8 steps and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ._errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["convert"]


def convert(
    array: np.ndarray,
    dtype: str,
    scale: Optional[float],
    to_scale: Optional[float],
    where: str = "",
) -> np.ndarray:
    """Returns ``array`` as ``dtype``; the array itself where nothing changes.

    Quantises as TensorRT does: ``clip(round_half_even(x / scale), -128, 127)`` in float32, NaN
    to 0; the other way is ``q * scale`` (TensorRT Developer Guide, "Quantization": "round to
    nearest, ties to even" and saturation).

    Args:
        array: The values, of any type.
        dtype: NumPy type name wanted.
        scale: Value of one step where ``array`` is INT8 steps; None where it holds values.
        to_scale: The same of the result.
        where: The tensor's name, for the message.

    Raises:
        DeviceError: "input.dtype" for values that would have to become INT8 steps of no known
            scale.
    """
    import numpy as np

    kind = np.dtype(dtype)
    if array.dtype == kind and (kind != np.int8 or None in (scale, to_scale) or scale == to_scale):
        return array
    if kind == np.int8 and to_scale is None:
        raise DeviceError(
            "{} values for INT8 steps whose scale nobody says".format(array.dtype),
            code="input.dtype",
            where=where[:80],
            hint="give INT8 steps; or say the value of a step (load_plan's scales)",
        )
    values = array
    if scale is not None and array.dtype == np.int8:
        values = array.astype(np.float32) * np.float32(scale)
    if to_scale is None or kind != np.int8:
        if kind == np.float16:
            # out of range is infinity, as the GPU's conversion has it; not worth a warning
            with np.errstate(over="ignore"):
                return values.astype(kind)
        if values.dtype == np.int64 and kind == np.int32:
            # engines of releases without INT64: an index beyond must not become another one
            values = np.clip(values, -(1 << 31), (1 << 31) - 1)
        return values.astype(kind)
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.rint(values.astype(np.float32) / np.float32(to_scale))
    whole: np.ndarray = np.clip(np.nan_to_num(steps, nan=0.0), -128, 127).astype(np.int8)
    return whole
