"""Reads ONNX files without loading their weights: start with ``read``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.files import map_array, regular_file
from edgekit.network.protos import subgraphs
from edgekit.network.source import missing_model, refuse_foreign
from edgekit_device.protocol.codec import document

# Reads an ONNX file's outline without its weights.
#
# A protobuf message is a sequence of (key, value) records, so a walk over three levels
# (ModelProto.graph, GraphProto.initializer, TensorProto.raw_data; field numbers from onnx.proto3)
# can locate and skip the raw bytes of each initializer. The rest of a model of any size is small
# enough to parse, and the weights stay memory-mapped in the file.


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
# shorter tensors are read, which is faster than mapping
_KEEP_BELOW = 1024


class NotOnnx(ValueError):
    """The bytes are not a ModelProto."""


class Truncated(ValueError):
    """The bytes begin like a ModelProto but are truncated."""


@document(frozen=True)
class Outline:
    """A model without its larger raw tensors.

    Attributes:
        model: Serialized ModelProto, parseable by onnx.
        raw: (offset, length) in the file of the omitted raw data, by index of the initializer.
    """

    model: bytes
    raw: dict[int, tuple[int, int]]


def outline(data: memoryview) -> Outline:
    """Walks a serialized ModelProto.

    Raises:
        NotOnnx: if the bytes are not a ModelProto.
        Truncated: if a record exceeds the end.
    """
    pieces: list[memoryview | bytes] = []
    raw: dict[int, tuple[int, int]] = {}
    count = 0
    graphs = 0
    for field, wire, start, value, end in _records(data, 0, len(data)):
        # strict at the outermost level: files of other formats seldom pass by chance
        if _MODEL_FIELDS.get(field) != wire:
            raise NotOnnx(f"field {field} with wire type {wire} is not part of an ONNX model")
        if end > len(data):
            raise Truncated(f"a record of {end - value} bytes at byte {value} ends after the file")
        if field != GRAPH:
            pieces.append(data[start:end])
            continue
        graphs += 1
        body, count = _graph_outline(data, value, end, raw, count)
        # the graph is shorter now, so its length is written again
        pieces.append(key(GRAPH) + varint(sum(len(piece) for piece in body)))
        pieces.extend(body)
    if not graphs:
        # protobuf writes fields in order, so truncation before the graph leaves a valid message
        raise Truncated("the file contains no graph")
    return Outline(b"".join(pieces), raw)


def _graph_outline(
    data: memoryview, start: int, end: int, raw: dict[int, tuple[int, int]], count: int
) -> tuple[list[memoryview | bytes], int]:
    pieces: list[memoryview | bytes] = []
    copied = start
    for field, wire, begin, value, stop in _records(data, start, end):
        if stop > end:
            raise NotOnnx(f"a record of the graph at byte {begin} ends after the graph")
        if field != INITIALIZER or wire != _BYTES:
            continue
        tensor = _tensor_outline(data, value, stop)
        if tensor is not None:
            retained, raw[count] = tensor
            pieces.append(data[copied:begin])
            pieces.append(key(INITIALIZER) + varint(len(retained)) + retained)
            copied = stop
        count += 1
    pieces.append(data[copied:end])
    return pieces, count


def _tensor_outline(data: memoryview, start: int, end: int) -> tuple[bytes, tuple[int, int]] | None:
    """Returns a TensorProto without its raw data, and their (offset, length); None if not large."""
    if end - start < _KEEP_BELOW:
        return None
    retained: list[memoryview] = []
    found: tuple[int, int] | None = None
    for field, wire, begin, value, stop in _records(data, start, end):
        if stop > end:
            raise NotOnnx(f"a record of an initializer at byte {begin} ends after the initializer")
        if field == RAW_DATA and wire == _BYTES:
            found = (value, stop - value)
        else:
            retained.append(data[begin:stop])
    # small, or in a typed field such as float_data
    if found is None or found[1] < _KEEP_BELOW:
        return None
    return b"".join(retained), found


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
        # a varint has at most ten bytes of seven bits
        if shift > 63:
            raise NotOnnx(f"no number at byte {position}")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def key(field: int) -> bytes:
    """Returns the key of a length-delimited field, which precedes its length."""
    return varint(field << 3 | _BYTES)


def varint(value: int) -> bytes:
    """Returns a number in protobuf's varint encoding."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read(path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Parses a model; larger inline tensors are returned separately, as memory maps by name.

    Raises:
        ModelError: ``model.missing``, ``model.directory``, ``model.unreadable``, ``model.empty``,
            ``model.truncated`` or ``model.not_onnx``.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    hint = "give the path of an .onnx file, for example from torch.onnx.export"
    where = str(path)
    try:
        # first, since regular_file refuses folders: it may be another framework's model
        if path.is_dir():
            refuse_foreign(path)
        size = regular_file(path).stat().st_size
        refuse_foreign(path)
        if size == 0:
            raise ModelError("the file is empty", code="model.empty", where=where, hint=hint)
        # map_array, for many files, would import modules that a check does not need otherwise
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except FileNotFoundError as error:
        raise missing_model(path) from error
    except IsADirectoryError as error:
        raise ModelError(
            "this is a folder", code="model.directory", where=where, hint=hint
        ) from error
    except OSError as error:
        raise ModelError(
            f"it cannot be read: {error.strerror}", code="model.unreadable", where=where, hint=hint
        ) from error
    try:
        found = outline(memoryview(cast("Any", data)))
        proto = onnx.ModelProto.FromString(found.model)
    except Truncated as error:
        raise ModelError(
            f"the file is truncated after {size} bytes: {error}",
            code="model.truncated",
            where=where,
            hint="copy or export it again, then compare size and checksum",
        ) from error
    except (NotOnnx, DecodeError) as error:
        raise ModelError(
            f"the file is not an ONNX model: {error}", code="model.not_onnx", where=where, hint=hint
        ) from error
    values = {}
    for index, (offset, length) in found.raw.items():
        tensor = proto.graph.initializer[index]
        values[tensor.name] = as_array(tensor, data[offset : offset + length])
    return proto, values


def external_values(tensors: list[onnx.TensorProto], folder: Path | None) -> dict[str, np.ndarray]:
    """Memory-maps the external data of ``tensors`` in ``folder``.

    Raises:
        ModelError: ``model.external_missing``, ``model.external_escape`` or
            ``model.external_truncated``, naming the tensor and the file.
    """
    maps: dict[Path, np.ndarray] = {}
    values = {}
    for tensor in tensors:
        entry = {item.key: item.value for item in tensor.external_data}
        path = _external_path(tensor.name, entry.get("location", ""), folder)
        if path not in maps:
            # a file often has the data of hundreds of tensors
            maps[path] = map_array(path)
        data = maps[path]
        try:
            offset = int(entry.get("offset") or 0)
            length = int(entry.get("length") or len(data) - offset)
        except ValueError:
            # a text that is no number is refused below, like a number out of range
            offset = length = -1
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ModelError(
                f"tensor {tensor.name!r} ends after the end of {path.name} ({len(data)} bytes; "
                f"offset {entry.get('offset', 0)}, length {entry.get('length', 'unset')})",
                code="model.external_truncated",
                where=str(path),
                hint="copy the complete data file again",
            )
        if not entry.get("length"):
            # without a length the tensor's own size counts, not the rest of the file
            length = min(length, _byte_length(tensor))
        values[tensor.name] = as_array(tensor, data[offset : offset + length])
    return values


def embed(graph: onnx.GraphProto, folder: Path | None) -> None:
    """Reads external data of Constant nodes and of bodies into the graph.

    Raises:
        ModelError: As :func:`external_values`.
    """
    for node in graph.node:
        if node.op_type == "Constant":
            tensors = [item.t for item in node.attribute if item.HasField("t")]
        else:
            tensors = []
            for body in subgraphs(node):
                tensors += body.initializer
                embed(body, folder)
        for tensor in tensors:
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            array = external_values([tensor], folder)[tensor.name]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = array.tobytes()


def _external_path(tensor: str, location: str, folder: Path | None) -> Path:
    if folder is None:
        raise ModelError(
            f"tensor {tensor!r} has external data ({location!r}), but the model has no folder",
            code="model.external_missing",
        )
    base = folder.resolve()
    # realpath raises ValueError for a NUL character
    nul = "\0" in location
    # with links resolved: a link must not lead out of the folder
    path = base if nul else Path(os.path.realpath(base / location))
    if not location or nul or Path(location).is_absolute() or not path.is_relative_to(base):
        raise ModelError(
            f"the external data of tensor {tensor!r} is outside the model's folder: {location!r}",
            code="model.external_escape",
            where=str(folder),
            hint="put data files beside or below the model; links out of the folder are refused",
        )
    if not path.is_file():
        raise ModelError(
            f"the external data of tensor {tensor!r} is missing: {location!r}",
            code="model.external_missing",
            where=str(path),
            hint="copy the model together with its data files",
        )
    return path


def _byte_length(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def as_array(tensor: onnx.TensorProto, data: np.ndarray) -> np.ndarray:
    """Returns raw bytes as a view of the tensor's (possibly unaligned) array; packed data is
    copied."""
    # several values a byte: NumPy has no view of these
    packed = {TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1}
    packed |= {
        getattr(TensorProto, name) for name in ("INT2", "UINT2") if hasattr(TensorProto, name)
    }
    try:
        if tensor.data_type in packed:
            whole = type(tensor)()
            whole.CopyFrom(tensor)
            whole.ClearField("external_data")
            whole.ClearField("data_location")
            whole.raw_data = data.tobytes()
            return numpy_helper.to_array(whole)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if data.size != _byte_length(tensor):
            raise ValueError(f"{data.size} bytes for {_byte_length(tensor)}")
        array: np.ndarray = data.view(dtype).reshape(tuple(tensor.dims))
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"the data of initializer {tensor.name!r} do not match its shape {list(tensor.dims)} "
            f"and type {tensor.data_type}: {error}",
            code="model.tensor_size",
            where=tensor.name,
            hint="export the model again; the tensor or the file is damaged",
        ) from error
    array.flags.writeable = False
    return array
