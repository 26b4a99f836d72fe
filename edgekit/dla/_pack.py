"""Tensors into the DLA's formats and back, bit for bit, with NumPy alone.

A vector format is a transposition of (channels, pixels). It is done in blocks that stay in the
second-level cache, and by several threads where a tensor is large (NumPy copies without the
interpreter's lock).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla._formats import four, refused_type, stored_shape
from edgekit.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pack", "unpack"]

# pixels in a block: with 32 bytes each half a MiB is read and written
_BLOCK = 16384
# below this one thread is done before others have started
_THREADED_BYTES = 4 << 20
_MOST_THREADS = 8
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
    _write(source, stored.view(word), format)
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
    _read(stored.view(word), array.view(word).reshape(four(shape)), format)
    return array


def _hold(format: str, dtype: str) -> None:
    reason = refused_type(format, dtype)
    if reason is not None:
        raise DataError(reason.message, code="format.type", hint=reason.fix)


def _write(source: NDArray[np.generic], stored: NDArray[np.generic], format: str) -> None:
    """Copies (N, C, H, W) unsigned words into their places, and zeros into all others."""
    width = source.shape[-1]
    if format == "LINEAR":
        stored.reshape(source.shape)[...] = source
    elif format == "DLA_LINEAR":
        stored[..., :width] = source
        stored[..., width:] = 0
    elif format == "DLA_HWC4":
        channels = source.shape[1]
        stored[..., :width, channels:] = 0
        stored[..., width:, :] = 0
        _spread(source, stored[..., :width, :channels].transpose(0, 3, 1, 2))
    else:
        _each_block(source, stored, _spread)


def _read(stored: NDArray[np.generic], array: NDArray[np.generic], format: str) -> None:
    """The reverse of :func:`_write`."""
    width = array.shape[-1]
    if format == "LINEAR":
        array[...] = stored.reshape(array.shape)
    elif format == "DLA_LINEAR":
        array[...] = stored[..., :width]
    elif format == "DLA_HWC4":
        array[...] = stored[..., :width, : array.shape[1]].transpose(0, 3, 1, 2)
    else:
        _each_block(array, stored, _gather)


def _spread(planes: NDArray[np.generic], vectors: NDArray[np.generic]) -> None:
    # a ufunc walks in the order of the axes, here along the pixels of one channel; an assignment
    # would walk along the few channels of one pixel, in many short loops
    np.positive(planes, out=vectors)


def _gather(planes: NDArray[np.generic], vectors: NDArray[np.generic]) -> None:
    np.copyto(planes, vectors)


def _each_block(
    tensor: NDArray[np.generic],
    stored: NDArray[np.generic],
    move: Callable[[NDArray[np.generic], NDArray[np.generic]], None],
) -> None:
    """Calls ``move`` with every block as (channels, pixels), of the tensor and of its vectors."""
    batch, channels, height, width = tensor.shape
    groups, vector = stored.shape[1], stored.shape[-1]
    pixels = height * width
    planes = tensor.reshape(batch, channels, pixels)
    vectors = stored.reshape(batch, groups, pixels, vector)
    clearing = move is _spread

    def blocks() -> Iterator[tuple[int, int, int]]:
        for n in range(batch):
            for group in range(groups):
                for start in range(0, pixels, _BLOCK):
                    yield n, group, start

    def one(block: tuple[int, int, int]) -> None:
        n, group, start = block
        part = planes[n, group * vector : (group + 1) * vector, start : start + _BLOCK]
        places = vectors[n, group, start : start + _BLOCK]
        if clearing and len(part) < vector:
            # the whole block at once is faster than the few padding bytes of every pixel
            places.fill(0)
        move(part, places[:, : len(part)].T)

    threads = min(_MOST_THREADS, _processors())
    if tensor.nbytes < _THREADED_BYTES or threads == 1:
        for block in blocks():
            one(block)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(one, blocks()):
            pass


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
