"""Puts tensors into the formats of engines' inputs and outputs and back, with NumPy alone.
``convert`` quantises and dequantises as TensorRT does.

A format determines the order of channels. The padding of lines follows from the strides, which
depend on the DLA's generation and are known from the build (the manifest has them). A vector format
is a transposition of (channels, pixels), done in blocks that fit in the second-level cache, and by
several threads for a large tensor (NumPy copies without the interpreter's lock). Layouts:
TensorRT's TensorFormat (NvInferRuntimeBase.h); ``edgekit.dla`` has the rules and their sources.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

#: Channels of a vector, contiguous within it.
VECTORS = {"CHW2": 2, "CHW4": 4, "CHW16": 16, "CHW32": 32}

# channels last; the pixel's stride is the number of stored channels
_CHANNELS_LAST = ("DLA_HWC4", "HWC", "HWC8", "HWC16")
FORMATS = ("LINEAR", "DLA_LINEAR", *_CHANNELS_LAST, *VECTORS)

# by element size: bits are copied, never interpreted
_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_CHW = 3

# pixels in a block: with 32 bytes each, half a MiB is read and written
_BLOCK = 16384

# below this size a single thread is done before others have started
_THREADED_BYTES = 4 << 20
_MOST_THREADS = 8


def as_nchw(shape: Sequence[int]) -> Tuple[int, int, int, int]:
    """Returns a shape as (N, C, H, W): leading axes form one batch, missing axes have size 1."""
    full = (1,) * (_CHW + 1 - len(shape)) + tuple(shape)
    return (math.prod(full[:-_CHW]), full[-3], full[-2], full[-1])


def stored_shape(
    shape: Sequence[int], itemsize: int, format: str, strides: Sequence[int]
) -> Tuple[int, ...]:
    """Returns the shape of the memory that holds a tensor, including padding.

    (N, C, H, line) for DLA_LINEAR, (N, H, line, channels) for formats with channels last,
    (N, C/v, H, W, v) for vectors of v channels, ``shape`` itself for LINEAR.

    Args:
        shape: The tensor's own shape.
        itemsize: Bytes of an element.
        format: One of ``FORMATS``.
        strides: Bytes between neighbours along N, C (or vectors of C), H and W; unused for LINEAR.

    Raises:
        DeviceError: "format.unknown", or "format.strides" if they are impossible for this format.
    """
    if format not in FORMATS:
        raise DeviceError(
            "unknown tensor format {!r}".format(format[:80]),
            code="format.unknown",
            hint="use one of {}".format(", ".join(FORMATS)),
        )
    if format == "LINEAR":
        return tuple(shape)
    batch, channels, height, width = as_nchw(shape)
    if len(strides) != _CHW + 1:
        raise _strides_error(shape, format, strides)
    if format in VECTORS:
        vector = VECTORS[format]
        found: Tuple[int, ...] = (batch, -(-channels // vector), height, width, vector)
        wanted = (height * width * vector, width * vector, vector)
        given = tuple(strides[1:])
    elif format == "DLA_LINEAR":
        line = strides[2] // itemsize
        found = (batch, channels, height, line)
        wanted, given = (height * line, line, 1), tuple(strides[1:])
        if line < width:
            raise _strides_error(shape, format, strides)
    else:
        # a pixel's stride is its stored channels, a line's stride its pixels with padding
        held = strides[3] // itemsize
        line = strides[2] // (held * itemsize) if held else 0
        found = (batch, height, line, held)
        wanted, given = (1, line * held, held), tuple(strides[1:])
        if line < width or held < channels:
            raise _strides_error(shape, format, strides)
    # the stride of an axis with one element is meaningless: its source may report any number
    sizes = (found[1], height, width) if format in VECTORS else (channels, height, width)
    for size, want, have in zip(sizes, wanted, given):  # noqa: B905
        if size > 1 and have != want * itemsize:
            raise _strides_error(shape, format, strides)
    return found


def pack(array: np.ndarray, format: str, strides: Sequence[int] = ()) -> np.ndarray:
    """Returns the memory that holds ``array`` in a format: its shape is ``stored_shape``'s.

    Raises:
        DeviceError: As :func:`stored_shape`.
    """
    import numpy as np

    stored = np.empty(stored_shape(array.shape, array.itemsize, format, strides), array.dtype)
    word = _WORDS[array.itemsize]
    source = np.ascontiguousarray(array).reshape(as_nchw(array.shape)).view(word)
    write(source, stored.view(word), format)
    return stored


def unpack(
    memory: np.ndarray, shape: Sequence[int], dtype: str, format: str, strides: Sequence[int] = ()
) -> np.ndarray:
    """Returns the tensor that ``memory`` (C-contiguous, any type) holds in a format.

    Raises:
        DeviceError: As :func:`stored_shape`, and "format.size" for another number of bytes.
    """
    import numpy as np

    kind = np.dtype(dtype)
    places = stored_shape(shape, kind.itemsize, format, strides)
    if memory.nbytes != math.prod(places) * kind.itemsize:
        raise DeviceError(
            "{} bytes cannot hold {} {} as {}".format(memory.nbytes, dtype, list(shape), format),
            code="format.size",
        )
    array = np.empty(tuple(shape), kind)
    word = _WORDS[kind.itemsize]
    stored = memory.reshape(-1).view(np.uint8).view(word).reshape(places)
    read(stored, array.reshape(as_nchw(shape)).view(word), format)
    return array


def write(source: Any, stored: Any, format: str) -> None:
    """Copies (N, C, H, W) unsigned words to their places, and zeros to all other places."""
    width = source.shape[-1]
    if format == "LINEAR":
        stored.reshape(source.shape)[...] = source
    elif format == "DLA_LINEAR":
        stored[..., :width] = source
        stored[..., width:] = 0
    elif format in _CHANNELS_LAST:
        channels = source.shape[1]
        stored[..., :width, channels:] = 0
        stored[..., width:, :] = 0
        _scatter(source, stored[..., :width, :channels].transpose(0, 3, 1, 2))
    else:
        _each_block(source, stored, _scatter)


def read(stored: Any, array: Any, format: str) -> None:
    """Reverses :func:`write`; does not read the padding."""
    width = array.shape[-1]
    if format == "LINEAR":
        array[...] = stored.reshape(array.shape)
    elif format == "DLA_LINEAR":
        array[...] = stored[..., :width]
    elif format in _CHANNELS_LAST:
        array[...] = stored[..., :width, : array.shape[1]].transpose(0, 3, 1, 2)
    else:
        import numpy as np

        _each_block(array, stored, np.copyto)


def _scatter(planes: Any, vectors: Any) -> None:
    import numpy as np

    # a ufunc iterates in the order of the axes, here along the pixels of a channel; an assignment
    # would iterate along the few channels of a pixel, in many short loops
    np.positive(planes, out=vectors)


def _each_block(tensor: Any, stored: Any, move: Callable[[Any, Any], None]) -> None:
    """Calls ``move`` with every block as (channels, pixels), of the tensor and of its vectors."""
    batch, channels, height, width = tensor.shape
    groups, vector = stored.shape[1], stored.shape[-1]
    pixels = height * width
    planes = tensor.reshape(batch, channels, pixels)
    vectors = stored.reshape(batch, groups, pixels, vector)
    clearing = move is _scatter

    def blocks() -> Iterator[Tuple[int, int, int]]:
        for n in range(batch):
            for group in range(groups):
                for start in range(0, pixels, _BLOCK):
                    # blocks do not overlap, so threads may write them in any order
                    yield n, group, start

    def move_block(block: Tuple[int, int, int]) -> None:
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
            move_block(block)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        # iterating raises the error of a block
        for _ in pool.map(move_block, blocks()):
            pass


def _processors() -> int:
    # hosts with macOS or Windows lack it
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _strides_error(shape: Sequence[int], format: str, strides: Sequence[int]) -> DeviceError:
    return DeviceError(
        "the strides {} do not fit {} as {}".format(list(strides), list(shape), format),
        code="format.strides",
        hint="give bytes along N, C, H and W, as the builder reports them",
    )


def convert(
    array: np.ndarray,
    dtype: str,
    scale: Optional[float],
    to_scale: Optional[float],
    where: str = "",
) -> np.ndarray:
    """Returns ``array`` as ``dtype``; the array itself if no value changes.

    Quantises as TensorRT does: ``clip(round_half_even(x / scale), -128, 127)`` in float32, NaN
    to 0; the other way is ``q * scale`` (TensorRT Developer Guide, "Quantization": "round to
    nearest, ties to even" and saturation).

    Args:
        array: The values, of any type.
        dtype: NumPy name of the wanted type.
        scale: Value of one step if ``array`` has INT8 steps; None if it has values.
        to_scale: The same for the result.
        where: The tensor's name, for the message.

    Raises:
        DeviceError: "input.dtype" for values that must become INT8 steps with an unknown scale.
    """
    import numpy as np

    kind = np.dtype(dtype)
    # INT8 steps are only equal if their scale is
    if array.dtype == kind and (kind != np.int8 or None in (scale, to_scale) or scale == to_scale):
        return array
    if kind == np.int8 and to_scale is None:
        raise DeviceError(
            "{} values for INT8 input without a scale".format(array.dtype),
            code="input.dtype",
            where=where[:80],
            hint="give INT8 values, or the scale (load_plan's scales)",
        )
    values = array
    if scale is not None and array.dtype == np.int8:
        values = array.astype(np.float32) * np.float32(scale)
    if to_scale is None or kind != np.int8:
        if kind == np.float16:
            # out of range becomes infinity without a warning, as in the GPU's conversion
            with np.errstate(over="ignore"):
                return values.astype(kind)
        if values.dtype == np.int64 and kind == np.int32:
            # engines of releases without INT64: an index out of range must not wrap around
            values = np.clip(values, -(1 << 31), (1 << 31) - 1)
        return values.astype(kind)
    with np.errstate(invalid="ignore", over="ignore"):
        # in float32 as in TensorRT: a quotient in float64 may round to another step
        steps = np.rint(values.astype(np.float32) / np.float32(to_scale))
    whole: np.ndarray = np.clip(np.nan_to_num(steps, nan=0.0), -128, 127).astype(np.int8)
    return whole
