"""Tensors in TensorRT's I/O formats, as bytes; written apart from edgekit's packers on purpose.

Strides: NvInferRuntimeBase.h of 10.7 (DLA_LINEAR: W padded to 64 bytes; DLA_HWC4 on Orin: C' of 1
or 4, W padded to 64 bytes of C'); CHWx: C in groups of x.
"""

from typing import Any

_GROUPS = {"CHW2": 2, "CHW4": 4, "CHW16": 16, "CHW32": 32}
_LAST = {"HWC": 1, "HWC8": 8, "HWC16": 16}
NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "UINT8": "uint8",
}


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def physical(shape: list[int], dtype: str, form: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of the stored array and the axes' order: which logical axis (C last split) is where."""
    import numpy as np

    size = np.dtype(NUMPY[dtype]).itemsize
    if form == "LINEAR":
        return tuple(shape), ()
    if form == "DLA_LINEAR":
        return (*shape[:-1], _up(shape[-1], 64 // size)), ()
    n, c, h, w = shape
    if form == "DLA_HWC4":
        packed = 1 if c == 1 else 4
        return (n, h, _up(w, 64 // packed // size), packed), (0, 2, 3, 1)
    if form in _GROUPS:
        group = _GROUPS[form]
        return (n, -(-c // group), h, w, group), ()
    return (n, h, w, _up(c, _LAST[form])), (0, 2, 3, 1)


def nbytes(shape: list[int], dtype: str, form: str) -> int:
    """Bytes of the stored tensor."""
    import math

    import numpy as np

    return math.prod(physical(shape, dtype, form)[0]) * np.dtype(NUMPY[dtype]).itemsize


def unpack(raw: bytes, shape: list[int], dtype: str, form: str) -> Any:
    """The logical array of stored bytes."""
    import numpy as np

    stored, order = physical(shape, dtype, form)
    array = np.frombuffer(raw, NUMPY[dtype]).reshape(stored)
    if form in _GROUPS:
        n, c, h, w = shape
        full = array.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)
        return full[:, :c].copy()
    if order:
        return array[:, :, : shape[3], : shape[1]].transpose(0, 3, 1, 2).copy()
    return array[..., : shape[-1]].copy() if shape else array.copy()


def pack(array: Any, dtype: str, form: str) -> bytes:
    """Stored bytes of a logical array."""
    import numpy as np

    array = np.asarray(array, NUMPY[dtype])
    shape = list(array.shape)
    stored, order = physical(shape, dtype, form)
    out = np.zeros(stored, array.dtype)
    if form in _GROUPS:
        n, c, h, w = shape
        group = _GROUPS[form]
        padded = np.zeros((n, stored[1] * group, h, w), array.dtype)
        padded[:, :c] = array
        out[...] = padded.reshape(n, stored[1], group, h, w).transpose(0, 1, 3, 4, 2)
    elif order:
        out[:, :, : shape[3], : shape[1]] = array.transpose(0, 2, 3, 1)
    elif shape:
        out[..., : shape[-1]] = array
    else:
        out[...] = array
    return out.tobytes()


def strides(shape: list[int], dtype: str, form: str) -> list[int]:
    """get_tensor_strides: per logical axis, "in units of elements, not components or bytes".

    NvInferRuntime.h: elements are vectors for a vectorized format; "for TensorFormat::kHWC8, a
    stride of one spans 8 scalars".
    """
    stored, order = physical(shape, dtype, form)
    steps, left = [], 1
    for size in reversed(stored):
        steps.append(left)
        left *= size
    steps.reverse()
    if form in _GROUPS:
        return [step // _GROUPS[form] for step in steps[:4]]
    if order:
        vector = 1 if form == "HWC" else stored[3]
        return [steps[0] // vector, 1, steps[1] // vector, steps[2] // vector]
    return steps
