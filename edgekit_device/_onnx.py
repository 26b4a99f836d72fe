"""Reads what an engine file says about itself: a few fields of ONNX's protobuf, no more.

The board has no onnx package. Field numbers are those of onnx/onnx.proto (IR version 3 and later):
ModelProto.graph 7; GraphProto.node 1, initializer 5; NodeProto.output 2, name 3, op_type 4;
TensorProto.dims 1, data_type 2, name 8, external_data 13, data_location 14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Mapping, Optional, Tuple, Union

from ._errors import DeviceError
from ._protobuf import as_bytes, as_int, as_text, fields, varints

__all__ = ["DTYPES", "EngineFacts", "EngineNode", "EngineWeight", "read_engine"]

STRIPPED = b"stripped"
_EXTERNAL = 1
#: TensorProto.DataType: NumPy's names, and bfloat16.
DTYPES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip


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
        for number, graph in fields(memoryview(data)):
            if number != 7 or isinstance(graph, int):
                continue
            for part, value in fields(graph):
                if part == 1:
                    nodes.append(_node(as_bytes(value)))
                elif part == 5:
                    weight = _weight(as_bytes(value), where)
                    if weight is not None:
                        weights.append(weight)
    except (ValueError, IndexError) as error:
        raise DeviceError(
            "not an ONNX engine: {}".format(error), code="engine.invalid", where=where
        ) from error
    return EngineFacts(tuple(weights), tuple(nodes))


def _node(data: memoryview) -> EngineNode:
    name, op, outputs = "", "", []
    for number, value in fields(data):
        if number == 2:
            outputs.append(as_text(value))
        elif number == 3:
            name = as_text(value)
        elif number == 4:
            op = as_text(value)
    return EngineNode(name, op, tuple(outputs))


def _weight(data: memoryview, where: str) -> Optional[EngineWeight]:
    name, kind, external, location = "", 0, False, b""
    shape: List[int] = []
    for number, value in fields(data):
        if number == 1:
            shape += [value] if isinstance(value, int) else list(varints(value))
        elif number == 2:
            kind = as_int(value)
        elif number == 8:
            name = as_text(value)
        elif number == 13:
            pair = {key: as_bytes(text).tobytes() for key, text in fields(as_bytes(value))}
            if pair.get(1) == b"location":
                location = pair.get(2, b"")
        elif number == 14:
            external = as_int(value) == _EXTERNAL
    if not external:
        return None
    if location != STRIPPED:
        raise DeviceError(
            "the weight {!r} lies outside of the engine".format(name[:80]),
            code="engine.invalid",
            where=where,
        )
    return EngineWeight(name, DTYPES.get(kind), tuple(shape))
