"""The tensor formats at a loadable's border: sizes, strides, formats shared with the GPU, and
bit-exact packing.

The formats, their paddings and their sources are in ``dla/formats.yaml``. Host and board share the
packer of ``edgekit_device.arrays.formats``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla.fact_files import FormatFacts, format_facts
from edgekit.dla.rule_files import join_titles
from edgekit.dla.rules import load_rules
from edgekit.error_document import VerdictReason
from edgekit.errors import DataError
from edgekit_device.arrays.formats import as_nchw, read, write

if TYPE_CHECKING:
    from numpy.typing import NDArray


FORMATS: tuple[str, ...] = tuple(format_facts().formats)
ROLES = ("input", "output")
_ELEMENT = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
_CHW = 3
_SAME_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def strides(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the distance in bytes between neighbours along each axis of ``shape``.

    For the DLA formats the tensor is (N, C, H, W) and the result has four numbers: the leading
    dimensions of a larger tensor form one batch, and a smaller tensor gets leading dimensions of
    1. In CHW16 and CHW32 the second number is the distance between vectors of 16 or 32 channels;
    the channels within a vector are adjacent.

    Args:
        shape: Static shape.
        dtype: NumPy type name.
        format: One of ``FORMATS``.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).

    Raises:
        ValueError: Unknown format, type or generation, or a shape that the format cannot hold.
    """
    size = _element_bytes(dtype)
    return tuple(step * size for step in element_strides(shape, dtype, format, generation))


def element_strides(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the strides in elements; otherwise as :func:`strides`."""
    if format == "LINEAR":
        _element_bytes(dtype)
        return _packed_strides(shape)
    stored = _packed_strides(stored_shape(shape, dtype, format, generation))
    # the result is in the order N, C, H, W, whatever the order in memory
    if _facts(format).layout == "hwc":
        batch, line, pixel, channel = stored
        return (batch, channel, line, pixel)
    # without the axis of the channels within a vector, which are adjacent
    return stored[: _CHW + 1]


def nbytes(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> int:
    """Returns the bytes of a tensor, padding included; arguments as for :func:`strides`."""
    return math.prod(stored_shape(shape, dtype, format, generation)) * _element_bytes(dtype)


def stored_shape(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the shape of the memory that holds a tensor, padding included.

    (N, C, H, line) for DLA_LINEAR, (N, H, line, 1 or 4) for DLA_HWC4, (N, C/v, H, W, v) for CHW16
    and CHW32 with C rounded up, ``shape`` itself for LINEAR. Arguments as for :func:`strides`.

    Raises:
        ValueError: As :func:`strides`.
    """
    size = _element_bytes(dtype)
    facts = _facts(format)
    if format == "LINEAR":
        return tuple(shape)
    # the DLA takes all leading dimensions as one batch
    batch, channels, height, width = as_nchw(shape)
    if facts.layout == "vector":
        vector = facts.vector
        return (batch, -(-channels // vector), height, width, vector)
    if generation not in facts.line_bytes:
        known = ", ".join(facts.line_bytes)
        raise ValueError(f"unknown DLA generation {generation!r}; known are {known}")
    line = facts.line_bytes[generation]
    if facts.layout == "hwc":
        if str(channels) not in facts.held:
            raise ValueError(f"{format} holds {_listed(facts.held)} channels, not {channels}")
        held = facts.held[str(channels)]
        return (batch, height, _round_up(width * held * size, line) // (held * size), held)
    return (batch, channels, height, _round_up(width * size, line) // size)


def border_refusal(
    format: str,
    dtype: str,
    role: str,
    *,
    channels: int,
    readers: Sequence[str] = (),
    reader_dtype: str | None = None,
    groups: int = 1,
) -> VerdictReason | None:
    """Returns why a tensor cannot cross a loadable's border in a format; None if it can.

    The rules hold for both DLA generations; only sizes differ (:func:`strides`).

    Args:
        format: One of ``FORMATS``.
        dtype: NumPy type name.
        role: "input" or "output" of the loadable.
        channels: Channels of the tensor.
        readers: Kinds of the loadable's layers that read an input; empty if unknown.
        reader_dtype: Type in which these compute ("int8", "float16"); None if unknown.
        groups: Largest number of groups of the convolutions among them.

    Raises:
        ValueError: Unknown format or role.
    """
    facts = _facts(format)
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; known are {', '.join(ROLES)}")
    wanted = facts.readers
    others = [kind for kind in readers if wanted and kind not in wanted]
    # the more general refusals first: format, type, channels, role, then the reader
    if not facts.roles:
        return _reason("formats.native", format)
    if wrong_type := type_refusal(format, dtype):
        return wrong_type
    if facts.held and str(channels) not in facts.held:
        return _reason("formats.channels", f"{channels} channels", _listed(facts.held))
    if role not in facts.roles:
        return _reason("formats.role", f"{format} as {role}", _listed(facts.roles))
    if role == "input" and others:
        return _reason("formats.reader", f"read by {others[0]}", _listed(wanted))
    if role == "input" and facts.most_groups is not None and groups > facts.most_groups:
        return _reason("convolution.groups_hwc4", f"{groups} groups", f"1..{facts.most_groups}")
    if role == "input" and facts.readers_type and reader_dtype not in {None, dtype}:
        return _reason("convolution.hwc4_type", f"{dtype} read by {reader_dtype}", dtype)
    return None


def type_refusal(format: str, dtype: str) -> VerdictReason | None:
    """Returns why a format cannot hold a NumPy type; None if it can (LINEAR holds all)."""
    types = _facts(format).types
    if types is None or dtype in types:
        return None
    return _reason("formats.type", f"{format} with {dtype}", _listed(types))


def _facts(format: str) -> FormatFacts:
    known = format_facts().formats
    if format not in known:
        raise ValueError(f"unknown format {format!r}; known are {', '.join(known)}")
    return known[format]


def _reason(rule_id: str, found: str, limit: str = "") -> VerdictReason:
    rule = load_rules().rules[rule_id]
    message = f"{rule.text.rstrip('.')}: {found}"
    return VerdictReason(
        rule_id, message, found, limit or rule.limit, join_titles(rule.source), rule.fix
    )


def _listed(values: Iterable[object]) -> str:
    *most, last = (str(value) for value in values)
    return f"{', '.join(most)} or {last}" if most else last


def _element_bytes(dtype: str) -> int:
    if dtype not in _ELEMENT:
        raise ValueError(f"the element size of type {dtype!r} is unknown")
    return _ELEMENT[dtype]


def _packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    found: list[int] = []
    step = 1
    for length in reversed(shape):
        found.insert(0, step)
        step *= length
    return tuple(found)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


@cache
def vector_format(dtype: str) -> str:
    """Returns the format in which a DLA computes a type: every layer reads and writes it.

    Args:
        dtype: "int8" or "float16".
    """
    facts = format_facts().formats.items()
    return next(
        name for name, own in facts if own.layout == "vector" and own.types and dtype in own.types
    )


def shared_with_gpu(format: str, dtype: str) -> bool:
    """Returns True if the GPU's engines also read and write a type in a loadable's format.

    Args:
        format: TensorRT's name.
        dtype: "int8" or "float16".
    """
    return dtype in format_facts().formats[format].gpu


def pack(
    array: NDArray[np.generic],
    format: str,
    generation: str = "2.0",
    out: NDArray[np.generic] | None = None,
) -> NDArray[np.generic]:
    """Returns ``array`` in the memory layout of a DLA format; all padding is zero.

    Args:
        array: Tensor of any rank; (N, C, H, W) after leading dimensions are taken as one batch.
            The format must hold its type; another byte order is converted.
        format: One of ``FORMATS``.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).
        out: C-contiguous buffer of :func:`nbytes` bytes, to write into.

    Returns:
        Array of :func:`stored_shape` and of ``array``'s type; over ``out``'s memory if given.

    Raises:
        ValueError: Unknown format or generation, or a shape that the format cannot hold.
        DataError: ``out`` has the wrong size, is read-only or has gaps (code ``format.buffer``),
            or the format does not hold the array's type (code ``format.type``).
    """
    array = np.asarray(array)
    if not array.dtype.isnative:
        # the board reads the bytes in its own order
        array = array.astype(array.dtype.newbyteorder("="))
    _require_type(format, array.dtype.name)
    shape = stored_shape(array.shape, array.dtype.name, format, generation)
    if out is None:
        stored = np.empty(shape, array.dtype)
    else:
        if not out.flags.writeable:
            raise _buffer_error("the buffer is read-only")
        stored = _view_buffer(out, shape, array.dtype)
    # as unsigned numbers of that size: the packer knows no types, and no bit changes
    word = _SAME_SIZE[array.dtype.itemsize]
    source = np.ascontiguousarray(array).view(word).reshape(as_nchw(array.shape))
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
    """Returns the tensor that ``buffer`` holds in a DLA format; the padding is not read.

    Args:
        buffer: C-contiguous array of :func:`nbytes` bytes, of any type.
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
    _require_type(format, dtype)
    kind = np.dtype(dtype)
    stored = _view_buffer(buffer, stored_shape(shape, dtype, format, generation), kind)
    if out is None:
        array = np.empty(tuple(shape), kind)
    else:
        if not out.flags.writeable:
            raise _buffer_error("the output array is read-only")
        array = _view_buffer(out, tuple(shape), kind)
    word = _SAME_SIZE[kind.itemsize]
    read(stored.view(word), array.view(word).reshape(as_nchw(shape)), format)
    return array


def _require_type(format: str, dtype: str) -> None:
    reason = type_refusal(format, dtype)
    if reason is not None:
        raise DataError(reason.message, code="format.type", hint=reason.fix)


def _view_buffer(
    buffer: NDArray[np.generic], shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> NDArray[np.generic]:
    wanted = math.prod(shape) * dtype.itemsize
    if buffer.nbytes != wanted:
        raise _buffer_error(f"the buffer has {buffer.nbytes} bytes, the format needs {wanted}")
    if not buffer.flags.c_contiguous:
        raise _buffer_error("the buffer has gaps: it must be C-contiguous")
    # flat first: view needs contiguous bytes, and the buffer may have any shape
    return buffer.reshape(-1).view(dtype).reshape(shape)


def _buffer_error(message: str) -> DataError:
    return DataError(
        message,
        code="format.buffer",
        hint="get the size from edgekit.dla.formats.nbytes(shape, dtype, format, generation)",
    )
