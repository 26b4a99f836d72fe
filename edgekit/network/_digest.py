"""Digests of weights and models, computed without holding the weights in memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgekit.network._deferred import Constant, Deferred, entries

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network._types import Model

__all__ = ["chunks", "digest", "frozen", "weight_digests"]

_CHUNK = 1 << 20
# by id of a read-only array, checked against the array itself: editing a graph keeps its weights
_known: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}


def frozen(array: np.ndarray) -> np.ndarray:
    """The array itself when it is read-only, otherwise a read-only view of it."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def weight_digests(model: Model) -> dict[str, str]:
    """SHA-256 (hex) of every weight's type, shape and bytes, by name; computed once per array."""
    return {name: _digest(value) for name, value in entries(model.weights).items()}


def digest(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 (hex) over the stripped proto and each weight's name and digest."""
    import hashlib

    total = hashlib.sha256(proto.SerializeToString(deterministic=True))
    values = entries(weights)
    for name in sorted(values):
        total.update(f"\n{name}\n{_digest(values[name])}".encode())
    return total.hexdigest()


def _digest(value: Constant) -> str:
    if not isinstance(value, Deferred):
        return _array_digest(value)
    if value.digest is None:
        value.digest = _array_digest(value.value())
    return value.digest


def _array_digest(array: np.ndarray) -> str:
    entry = _known.get(id(array))
    if entry is not None and entry[0]() is array:
        return entry[1]
    import hashlib

    total = hashlib.sha256(f"{array.dtype.name}{list(array.shape)}\n".encode())
    for chunk in chunks(array):
        total.update(chunk)
    found = total.hexdigest()
    if not array.flags.writeable:
        key = id(array)
        _known[key] = (weakref.ref(array, lambda _: _known.pop(key, None)), found)
    return found


def chunks(array: np.ndarray) -> Iterator[bytes]:
    """The array's bytes in C order, a piece at a time."""
    mapped = _file_range(array)
    if mapped is not None:
        # read() does not count against this process as touching the map's pages would
        name, offset, remaining = mapped
        with open(name, "rb") as file:
            file.seek(offset)
            while remaining and (chunk := file.read(min(remaining, _CHUNK))):
                remaining -= len(chunk)
                yield chunk
        return
    step = max(1, _CHUNK // max(1, array.itemsize))
    if array.size > step and not any(array.strides):
        # one value repeated, as ConstantOfShape makes it
        piece = array.flat[:step].tobytes()
        for start in range(0, array.size, step):
            yield piece[: (array.size - start) * array.itemsize]
        return
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    for start in range(0, array.size, step):
        yield flat[start : start + step].tobytes()


def _file_range(array: np.ndarray) -> tuple[str, int, int] | None:
    """(file, offset, bytes) of an array that is one piece of a memory map."""
    import numpy as np

    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or not array.flags.c_contiguous:
        return None
    start = array.ctypes.data - root.ctypes.data
    if root.mode != "r" or not 0 <= start <= root.nbytes - array.nbytes:
        return None
    return str(root.filename), root.offset + start, array.nbytes
