"""Tensors into the DLA's formats and back, bit for bit, with NumPy alone.

The moving itself is the board's (``edgekit_device._packing``): both sides have one packer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla._formats import four, refused_type, stored_shape
from edgekit.errors import DataError
from edgekit_device._packing import read, write

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pack", "unpack"]

_SAME_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def pack(
    array: NDArray[np.generic],
    format: str,
    generation: str = "2.0",
    out: NDArray[np.generic] | None = None,
) -> NDArray[np.generic]:
    """Returns ``array`` as it lies in memory in a DLA format; all padding is zero.

    Args:
        array: Tensor of any rank; (N, C, H, W) after leading dimensions are taken as one batch.
            Its type is one that the format holds; of another byte order, it is turned.
        format: One of ``FORMATS``.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).
        out: C-contiguous buffer of as many bytes as :func:`nbytes` says, to write into.

    Returns:
        Array of :func:`stored_shape` and of ``array``'s type; over ``out``'s memory if given.

    Raises:
        ValueError: Unknown format or generation, or a shape that the format cannot hold.
        DataError: ``out`` has the wrong size, is read-only or has gaps (code ``format.buffer``),
            or the format does not hold the array's type (code ``format.type``).
    """
    array = np.asarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    _hold(format, array.dtype.name)
    shape = stored_shape(array.shape, array.dtype.name, format, generation)
    if out is None:
        stored = np.empty(shape, array.dtype)
    else:
        if not out.flags.writeable:
            raise _unfit("the buffer is read-only")
        stored = _as_stored(out, shape, array.dtype)
    word = _SAME_SIZE[array.dtype.itemsize]
    source = np.ascontiguousarray(array).view(word).reshape(four(array.shape))
    write(source, stored.view(word), format)
    return stored


def unpack(
    buffer: NDArray[np.generic],
    shape: Sequence[int],
    dtype: str,
    format: str,
    generation: str = "2.0",
    out: NDArray[np.generic] | None = None,
) -> NDArray[np.generic]:
    """Returns the tensor that lies in ``buffer`` in a DLA format; what the padding holds is unread.

    Args:
        buffer: C-contiguous array of as many bytes as :func:`nbytes` says, of any type.
        shape: Shape of the tensor.
        dtype: NumPy type name of its elements.
        format: One of ``FORMATS``.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).
        out: C-contiguous array of the tensor's bytes, to write into.

    Raises:
        ValueError: Unknown format, type or generation, or a shape that the format cannot hold.
        DataError: ``buffer`` or ``out`` has the wrong size or gaps (code ``format.buffer``), or
            the format does not hold the type (code ``format.type``).
    """
    _hold(format, dtype)
    kind = np.dtype(dtype)
    stored = _as_stored(buffer, stored_shape(shape, dtype, format, generation), kind)
    if out is None:
        array = np.empty(tuple(shape), kind)
    else:
        if not out.flags.writeable:
            raise _unfit("the array to write into is read-only")
        array = _as_stored(out, tuple(shape), kind)
    word = _SAME_SIZE[kind.itemsize]
    read(stored.view(word), array.view(word).reshape(four(shape)), format)
    return array


def _hold(format: str, dtype: str) -> None:
    reason = refused_type(format, dtype)
    if reason is not None:
        raise DataError(reason.message, code="format.type", hint=reason.fix)


def _as_stored(
    buffer: NDArray[np.generic], shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> NDArray[np.generic]:
    wanted = math.prod(shape) * dtype.itemsize
    if buffer.nbytes != wanted:
        raise _unfit(f"the buffer has {buffer.nbytes} bytes, the format needs {wanted}")
    if not buffer.flags.c_contiguous:
        raise _unfit("the buffer has gaps: it must be C-contiguous")
    return buffer.reshape(-1).view(dtype).reshape(shape)


def _unfit(message: str) -> DataError:
    return DataError(
        message,
        code="format.buffer",
        hint="edgekit.dla.nbytes(shape, dtype, format, generation) says how many bytes it takes",
    )
