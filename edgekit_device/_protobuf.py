"""Protobuf's wire format, as far as ONNX files need it
(https://protobuf.dev/programming-guides/encoding).

The board has no onnx package; nothing here knows what the fields mean.
"""

from __future__ import annotations

from typing import Iterator, Tuple, Union

__all__ = ["Value", "as_bytes", "as_int", "as_text", "fields", "varints"]

#: A varint, or the bytes of anything else.
Value = Union[int, memoryview]


def fields(data: memoryview) -> Iterator[Tuple[int, Value]]:
    """Field numbers and values of a message; ValueError or IndexError where it is none."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        wire = key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if wire == 2:
            size, position = _varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("wire type {}".format(wire))
        if size > len(data) - position:
            raise ValueError("a field is cut off")
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("an integer is too long")


def varints(data: memoryview) -> Iterator[int]:
    """The numbers of a packed field."""
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield value


def as_bytes(value: Value) -> memoryview:
    """A value that must be bytes; ValueError otherwise."""
    if isinstance(value, int):
        raise ValueError("a field has another type")
    return value


def as_int(value: Value) -> int:
    """A value that must be a varint; ValueError otherwise."""
    if not isinstance(value, int):
        raise ValueError("a field has another type")
    return value


def as_text(value: Value) -> str:
    """A value that must be UTF-8 text; ValueError otherwise."""
    return as_bytes(value).tobytes().decode("utf-8")
