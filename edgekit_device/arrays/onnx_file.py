"""Reads the parts of an ONNX file that the board needs: protobuf's wire format, the fields that
describe an engine, and the values of tensors, in the file or in an external data file.

The board has no onnx package. Protobuf's wire format:
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import map_file

if TYPE_CHECKING:
    import numpy as np

#: A varint, or the bytes of anything else.
Value = Union[int, memoryview]
STRIPPED = b"stripped"
_EXTERNAL = 1

#: TensorProto.DataType: NumPy's names, and bfloat16.
DTYPES: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}

_FLOATS, _INT32S, _INT64S, _RAW, _DOUBLES, _UINT64S = 4, 5, 7, 9, 10, 11

# the typed field of a type, and the width of its numbers there
_FIXED = {_FLOATS: "<f4", _DOUBLES: "<f8"}


def fields(data: memoryview) -> Iterator[Tuple[int, Value]]:
    """Yields field numbers and values of a message; ValueError or IndexError if it is invalid."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        wire = key & 7
        # wire types: 0 varint, 1 and 5 fixed numbers, 2 bytes; groups (3, 4) are not used by ONNX
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
        # slices of a memoryview never fail: a file that is cut off would go unnoticed
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
        # ten bytes hold 64 bits; without a limit a damaged file gives an endless integer
        if shift > 63:
            raise ValueError("an integer is too long")


def varints(data: memoryview) -> Iterator[int]:
    """Yields the numbers of a packed field."""
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield value


def as_bytes(value: Value) -> memoryview:
    """Returns a value that must be bytes; ValueError otherwise."""
    if isinstance(value, int):
        raise ValueError("a field has the wrong type")
    return value


def as_int(value: Value) -> int:
    """Returns a value that must be a varint; ValueError otherwise."""
    if not isinstance(value, int):
        raise ValueError("a field has the wrong type")
    return value


def as_text(value: Value) -> str:
    """Returns a value that must be UTF-8 text; ValueError otherwise."""
    return as_bytes(value).tobytes().decode("utf-8")


@dataclass(frozen=True)
class EngineWeight:
    """A weight that the engine lacks; ``dtype`` is None for a type without a NumPy name."""

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

    Field numbers are those of onnx/onnx.proto (IR version 3 and later): ModelProto.graph 7;
    GraphProto.node 1, initializer 5; NodeProto.output 2, name 3, op_type 4; TensorProto.dims 1,
    data_type 2, name 8, external_data 13, data_location 14.

    Raises:
        DeviceError: "engine.invalid" if the bytes are not an ONNX model, or an initializer's
            external location is not "stripped".
    """
    weights: List[EngineWeight] = []
    nodes: List[EngineNode] = []
    try:
        for number, graph in fields(memoryview(data)):
            if number != 7 or isinstance(graph, int):
                continue
            for part, value in fields(graph):
                if part == 1:
                    nodes.append(_read_node(as_bytes(value)))
                elif part == 5:
                    weight = _read_weight(as_bytes(value), where)
                    if weight is not None:
                        weights.append(weight)
    except (ValueError, IndexError) as error:
        raise DeviceError(
            "not an ONNX engine: {}".format(error), code="engine.invalid", where=where
        ) from error
    return EngineFacts(tuple(weights), tuple(nodes))


def _read_node(data: memoryview) -> EngineNode:
    name, op, outputs = "", "", []
    for number, value in fields(data):
        if number == 2:
            outputs.append(as_text(value))
        elif number == 3:
            name = as_text(value)
        elif number == 4:
            op = as_text(value)
    return EngineNode(name, op, tuple(outputs))


def _read_weight(data: memoryview, where: str) -> Optional[EngineWeight]:
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
            # StringStringEntryProto: key 1, value 2
            pair = {key: as_bytes(text).tobytes() for key, text in fields(as_bytes(value))}
            if pair.get(1) == b"location":
                location = pair.get(2, b"")
        elif number == 14:
            external = as_int(value) == _EXTERNAL
    if not external:
        return None
    if location != STRIPPED:
        raise DeviceError(
            "the data of weight {!r} is outside the engine".format(name[:80]),
            code="engine.invalid",
            where=where,
        )
    return EngineWeight(name, DTYPES.get(kind), tuple(shape))


@dataclass
class OnnxTensor:
    """A tensor of the file whose values are not decoded yet.

    ``dtype`` is None for a type that this loader does not know; ``number`` is its number.
    """

    name: str = ""
    number: int = 0
    shape: Tuple[int, ...] = ()
    external: bool = False
    places: Dict[str, str] = field(default_factory=dict)
    parts: Dict[int, List[Value]] = field(default_factory=dict)

    @property
    def dtype(self) -> Optional[str]:
        """NumPy's name of the type, or "bfloat16"; None if unknown."""
        return DTYPES.get(self.number)


def read_tensor(data: memoryview) -> OnnxTensor:
    """Reads a TensorProto.

    Field numbers of onnx/onnx.proto: TensorProto.dims 1, data_type 2, float_data 4, int32_data
    5, int64_data 7, name 8, raw_data 9, double_data 10, uint64_data 11, external_data 13,
    data_location 14; StringStringEntryProto.key 1, value 2.

    Raises:
        ValueError, IndexError: It is not a TensorProto.
    """
    found, shape = OnnxTensor(), []
    for number, value in fields(data):
        if number == 1:
            shape += [value] if isinstance(value, int) else list(varints(value))
        elif number == 2:
            found.number = as_int(value)
        elif number == 8:
            found.name = as_text(value)
        elif number == 13:
            pair = {key: as_text(text) for key, text in fields(as_bytes(value))}
            found.places[pair.get(1, "")] = pair.get(2, "")
        elif number == 14:
            found.external = as_int(value) == _EXTERNAL
        elif number in (_FLOATS, _INT32S, _INT64S, _RAW, _DOUBLES, _UINT64S):
            found.parts.setdefault(number, []).append(value)
    found.shape = tuple(shape)
    return found


def decode_tensor(tensor: OnnxTensor, folder: Optional[Path]) -> np.ndarray:
    """Returns the tensor's values; bfloat16 as uint16 bit patterns.

    Args:
        tensor: From :func:`read_tensor`.
        folder: The ONNX file's folder; None refuses external data.

    Raises:
        DeviceError: "model.type", "model.external-data" or "model.invalid".
    """
    import numpy as np

    if tensor.dtype is None:
        raise DeviceError(
            "{!r} has ONNX type {}, which edgekit_device cannot read".format(
                tensor.name[:80], tensor.number
            ),
            code="model.type",
            where=tensor.name[:80],
        )
    kind = np.dtype("uint16" if tensor.dtype == "bfloat16" else tensor.dtype).newbyteorder("<")
    count = 1
    for size in tensor.shape:
        count *= size
    if tensor.external:
        array = np.frombuffer(_read_external(tensor, folder, count * kind.itemsize), kind)
    elif _RAW in tensor.parts:
        raw = b"".join(as_bytes(part).tobytes() for part in tensor.parts[_RAW][-1:])
        # before frombuffer, whose own error does not name the tensor
        if len(raw) != count * kind.itemsize:
            raise _size_error(tensor, len(raw), count * kind.itemsize)
        array = np.frombuffer(raw, kind)
    else:
        array = _decode_typed(tensor, kind)
    # typed fields, or an external file of another size
    if array.size != count:
        raise _size_error(tensor, array.nbytes, count * kind.itemsize)
    # the file is little-endian; this copies only on other machines
    return array.astype(kind.newbyteorder("="), copy=False).reshape(tensor.shape)


def _decode_typed(tensor: OnnxTensor, kind: Any) -> np.ndarray:
    import numpy as np

    for number, parts in tensor.parts.items():
        if number in _FIXED:
            raw = b"".join(as_bytes(part).tobytes() for part in parts)
            return np.frombuffer(raw, _FIXED[number]).astype(kind)
        numbers: List[int] = []
        for part in parts:
            numbers += [part] if isinstance(part, int) else list(varints(part))
        # a varint has 64 bits; a negative int32 or int64 has the upper bits set. float16 and
        # bfloat16 are bit patterns in int32_data.
        wide = np.array(numbers, np.uint64)
        if kind.kind == "f":
            return wide.astype(np.uint16).view("<f2").astype(kind)
        return wide.view(np.int64).astype(kind)
    return np.empty(0, kind)


def _read_external(tensor: OnnxTensor, folder: Optional[Path], size: int) -> memoryview:
    location = tensor.places.get("location", "")
    if folder is None:
        raise _external_error(
            tensor, "its data lies outside the file, in {!r}".format(location[:80])
        )
    try:
        start = int(tensor.places.get("offset") or "0")
        length = int(tensor.places.get("length") or str(size))
    except ValueError as error:
        raise _external_error(tensor, "its offset is not a number") from error
    # ONNX requires a location relative to the model's folder and inside it. Links are resolved
    # first: a link inside the folder could lead out
    root = os.path.realpath(str(folder))
    path = os.path.realpath(os.path.join(root, location))
    if not location or os.path.isabs(location) or os.path.commonpath([root, path]) != root:
        raise _external_error(tensor, "{!r} is outside the model's folder".format(location[:80]))
    if not os.path.isfile(path):
        raise _external_error(tensor, "{!r} does not exist".format(location[:80]))
    with map_os_errors(path):
        data = map_file(Path(path))
    # exactly the tensor's size: a shorter length leaves values undefined, a longer one is damage
    if start < 0 or length != size or start + length > len(data):
        raise _external_error(
            tensor, "{!r} is too short for its {} bytes".format(location[:80], size)
        )
    return data[start : start + length]


def _external_error(tensor: OnnxTensor, reason: str) -> DeviceError:
    return DeviceError(
        "the values of {!r} cannot be read: {}".format(tensor.name[:80], reason),
        code="model.external-data",
        where=tensor.name[:80],
        hint="put the model's data files next to it, or save it as one file",
    )


def _size_error(tensor: OnnxTensor, found: int, wanted: int) -> DeviceError:
    return DeviceError(
        "{!r} holds {} bytes instead of {}".format(tensor.name[:80], found, wanted),
        code="model.invalid",
        where=tensor.name[:80],
    )
