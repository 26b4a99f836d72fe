"""Reads an ONNX file's outline without its weights.

A protobuf message is a sequence of (key, value) records, so the raw bytes of each initializer can
be located by walking three levels (ModelProto.graph, GraphProto.initializer,
TensorProto.raw_data; field numbers from onnx.proto3) and skipped. The rest of a model of any size
is small enough to parse, and the weights stay memory-mapped in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "GRAPH",
    "INITIALIZER",
    "RAW_DATA",
    "NotOnnx",
    "Outline",
    "Truncated",
    "key",
    "outline",
    "varint",
]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: Field numbers of ModelProto.graph, GraphProto.initializer and TensorProto.raw_data.
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
# onnx.proto3: every field of ModelProto with its wire type
_MODEL_FIELDS = {
    1: _VARINT,
    2: _BYTES,
    3: _BYTES,
    4: _BYTES,
    5: _VARINT,
    6: _BYTES,
    7: _BYTES,
    8: _BYTES,
    14: _BYTES,
    20: _BYTES,
    25: _BYTES,
    26: _BYTES,
}
# a shorter tensor is not worth a memory map
_KEEP_BELOW = 1024


class NotOnnx(ValueError):
    """The bytes are not a ModelProto."""


class Truncated(ValueError):
    """The bytes begin like a ModelProto and end too early."""


@dataclass(frozen=True)
class Outline:
    """A model without its larger raw tensors.

    Attributes:
        model: Serialized ModelProto, parseable by onnx.
        raw: (offset, length) in the file of the raw data left out, by index of the initializer.
    """

    model: bytes
    raw: dict[int, tuple[int, int]]


def outline(data: memoryview) -> Outline:
    """Walks a serialized ModelProto.

    Raises:
        NotOnnx: when the bytes are something else.
        Truncated: when a record reaches past the end.
    """
    pieces: list[memoryview | bytes] = []
    raw: dict[int, tuple[int, int]] = {}
    count = 0
    graphs = 0
    for field, wire, start, value, end in _records(data, 0, len(data)):
        if _MODEL_FIELDS.get(field) != wire:
            raise NotOnnx(f"field {field} with wire type {wire} is not part of a ModelProto")
        if end > len(data):
            raise Truncated(f"a record of {end - value} bytes begins at byte {value}")
        if field != GRAPH:
            pieces.append(data[start:end])
            continue
        graphs += 1
        body, count = _graph(data, value, end, raw, count)
        pieces.append(key(GRAPH) + varint(sum(len(piece) for piece in body)))
        pieces.extend(body)
    if not graphs:
        # protobuf writes fields in order, so a cut before the graph leaves a valid message
        raise Truncated("there is no graph in it")
    return Outline(b"".join(pieces), raw)


def _graph(
    data: memoryview, start: int, end: int, raw: dict[int, tuple[int, int]], count: int
) -> tuple[list[memoryview | bytes], int]:
    pieces: list[memoryview | bytes] = []
    copied = start
    for field, wire, begin, value, stop in _records(data, start, end):
        if stop > end:
            raise NotOnnx(f"a record of the graph at byte {begin} reaches past its end")
        if field != INITIALIZER or wire != _BYTES:
            continue
        tensor = _tensor(data, value, stop)
        if tensor is not None:
            kept, raw[count] = tensor
            pieces.append(data[copied:begin])
            pieces.append(key(INITIALIZER) + varint(len(kept)) + kept)
            copied = stop
        count += 1
    pieces.append(data[copied:end])
    return pieces, count


def _tensor(data: memoryview, start: int, end: int) -> tuple[bytes, tuple[int, int]] | None:
    """A TensorProto without its raw data and where that lies; None when it has no large one."""
    if end - start < _KEEP_BELOW:
        return None
    kept: list[memoryview] = []
    found: tuple[int, int] | None = None
    for field, wire, begin, value, stop in _records(data, start, end):
        if stop > end:
            raise NotOnnx(f"a record of an initializer at byte {begin} reaches past its end")
        if field == RAW_DATA and wire == _BYTES:
            found = (value, stop - value)
        else:
            kept.append(data[begin:stop])
    if found is None or found[1] < _KEEP_BELOW:
        return None
    return b"".join(kept), found


def _records(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields (field, wire type, start of key, start of value, end of value)."""
    position = start
    while position < end:
        begin = position
        head, position = _read_varint(data, position, end)
        field, wire = head >> 3, head & 7
        value = position
        if wire == _VARINT:
            _, position = _read_varint(data, position, end)
        elif wire == _FIXED64:
            position += 8
        elif wire == _FIXED32:
            position += 4
        elif wire == _BYTES:
            length, value = _read_varint(data, position, end)
            position = value + length
        else:
            raise NotOnnx(f"wire type {wire} at byte {begin} is not used by ONNX")
        if field == 0:
            raise NotOnnx(f"field number 0 at byte {begin}")
        yield field, wire, begin, value, position


def _read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= end:
            raise Truncated(f"the file ends inside a number at byte {position}")
        if shift > 63:
            raise NotOnnx(f"no number at byte {position}")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def key(field: int) -> bytes:
    """Returns what stands before a field of bytes; its length comes next."""
    return varint(field << 3 | _BYTES)


def varint(value: int) -> bytes:
    """Returns a number as protobuf writes it."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
