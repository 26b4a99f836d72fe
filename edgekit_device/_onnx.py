"""Reads what an engine file says about itself: a few fields of ONNX's protobuf, no more.

The board has no onnx package. Field numbers are those of onnx/onnx.proto (IR version 3 and later):
ModelProto.graph 7; GraphProto.node 1, initializer 5; NodeProto.output 2, name 3, op_type 4;
TensorProto.dims 1, data_type 2, name 8, external_data 13, data_location 14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Tuple, Union

from ._errors import DeviceError

__all__ = ["EngineFacts", "EngineNode", "EngineWeight", "read_engine"]

STRIPPED = b"stripped"
_EXTERNAL = 1
# TensorProto.DataType
_DTYPES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip

_Value = Union[int, memoryview]


@dataclass(frozen=True)
class EngineWeight:
    """A weight that the engine lacks; ``dtype`` is None for a type NumPy has no name for."""

    name: str
    dtype: Optional[str]
    shape: Tuple[int, ...]


@dataclass(frozen=True)
class EngineNode:
    """A node's name, operator and outputs."""

    name: str
    op: str
    outputs: Tuple[str, ...]


@dataclass(frozen=True)
class EngineFacts:
    """Stripped weights and nodes of an engine, in file order."""

    weights: Tuple[EngineWeight, ...]
    nodes: Tuple[EngineNode, ...]


def read_engine(data: Union[bytes, memoryview], where: str) -> EngineFacts:
    """Reads nodes and stripped weights of an ONNX engine.

    Raises:
        DeviceError: "engine.invalid" when the bytes are no ONNX model, or an initializer lies in
            another place than "stripped".
    """
    weights: List[EngineWeight] = []
    nodes: List[EngineNode] = []
    try:
        for number, graph in _fields(memoryview(data)):
            if number != 7 or isinstance(graph, int):
                continue
            for part, value in _fields(graph):
                if part == 1:
                    nodes.append(_node(_bytes(value)))
                elif part == 5:
                    weight = _weight(_bytes(value), where)
                    if weight is not None:
                        weights.append(weight)
    except (ValueError, IndexError) as error:
        raise DeviceError(
            "not an ONNX engine: {}".format(error), code="engine.invalid", where=where
        ) from error
    return EngineFacts(tuple(weights), tuple(nodes))


def _node(data: memoryview) -> EngineNode:
    name, op, outputs = "", "", []
    for number, value in _fields(data):
        if number == 2:
            outputs.append(_text(value))
        elif number == 3:
            name = _text(value)
        elif number == 4:
            op = _text(value)
    return EngineNode(name, op, tuple(outputs))


def _weight(data: memoryview, where: str) -> Optional[EngineWeight]:
    name, kind, external, location = "", 0, False, b""
    shape: List[int] = []
    for number, value in _fields(data):
        if number == 1:
            shape += [value] if isinstance(value, int) else list(_varints(value))
        elif number == 2:
            kind = _int(value)
        elif number == 8:
            name = _text(value)
        elif number == 13:
            pair = {key: _bytes(text).tobytes() for key, text in _fields(_bytes(value))}
            if pair.get(1) == b"location":
                location = pair.get(2, b"")
        elif number == 14:
            external = _int(value) == _EXTERNAL
    if not external:
        return None
    if location != STRIPPED:
        raise DeviceError(
            "the weight {!r} lies outside of the engine".format(name[:80]),
            code="engine.invalid",
            where=where,
        )
    return EngineWeight(name, _DTYPES.get(kind), tuple(shape))


def _fields(data: memoryview) -> Iterator[Tuple[int, _Value]]:
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


def _varints(data: memoryview) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield value


def _bytes(value: _Value) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a field has another type")
    return value


def _int(value: _Value) -> int:
    if not isinstance(value, int):
        raise ValueError("a field has another type")
    return value


def _text(value: _Value) -> str:
    return _bytes(value).tobytes().decode("utf-8")
