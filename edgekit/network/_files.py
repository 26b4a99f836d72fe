"""Reads an ONNX file and its external data with the weights left in the files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgekit._files import map_array, regular
from edgekit.errors import ModelError
from edgekit.network._foreign import refuse_foreign
from edgekit.network._graph import subgraphs

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["embed", "external_values", "read"]


def read(path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Parses a model; larger inline tensors come back as memory maps by name, out of the proto.

    Raises:
        ModelError: ``model.missing``, ``model.directory``, ``model.unreadable``, ``model.empty``,
            ``model.truncated`` or ``model.not_onnx``.
    """
    import numpy as np
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from edgekit.network import _wire

    hint = "give the path of an .onnx file, as torch.onnx.export or onnx.save writes it"
    where = str(path)
    try:
        if path.is_dir():
            refuse_foreign(path)
        size = regular(path).stat().st_size
        refuse_foreign(path)
        if size == 0:
            raise ModelError("the file is empty", code="model.empty", where=where, hint=hint)
        # one file: map_array, for many of them, would import what nothing else of a check needs
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except FileNotFoundError as error:
        raise ModelError(
            "there is no such file", code="model.missing", where=where, hint=hint
        ) from error
    except IsADirectoryError as error:
        raise ModelError(
            "it is a folder", code="model.directory", where=where, hint=hint
        ) from error
    except OSError as error:
        raise ModelError(
            f"it cannot be read: {error.strerror}", code="model.unreadable", where=where, hint=hint
        ) from error
    try:
        found = _wire.outline(memoryview(cast("Any", data)))
        proto = onnx.ModelProto.FromString(found.model)
    except _wire.Truncated as error:
        raise ModelError(
            f"the file is truncated after {size} bytes: {error}",
            code="model.truncated",
            where=where,
            hint="copy or export it again, and compare sizes and checksums",
        ) from error
    except (_wire.NotOnnx, DecodeError) as error:
        raise ModelError(
            f"the file is not an ONNX model: {error}", code="model.not_onnx", where=where, hint=hint
        ) from error
    values = {}
    for index, (offset, length) in found.raw.items():
        tensor = proto.graph.initializer[index]
        values[tensor.name] = as_array(tensor, data[offset : offset + length])
    return proto, values


def external_values(tensors: list[onnx.TensorProto], folder: Path | None) -> dict[str, np.ndarray]:
    """Memory-maps the external data of ``tensors``, which lies in ``folder``.

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
            maps[path] = map_array(path)
        data = maps[path]
        try:
            offset = int(entry.get("offset") or 0)
            length = int(entry.get("length") or len(data) - offset)
        except ValueError:
            offset = length = -1
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ModelError(
                f"tensor {tensor.name!r} reaches past the end of {path.name} "
                f"({len(data)} bytes; offset {entry.get('offset', 0)}, "
                f"length {entry.get('length', 'unset')})",
                code="model.external_truncated",
                where=str(path),
                hint="copy the data file again, whole",
            )
        if not entry.get("length"):
            length = min(length, _byte_length(tensor))
        values[tensor.name] = as_array(tensor, data[offset : offset + length])
    return values


def embed(graph: onnx.GraphProto, folder: Path | None) -> None:
    """Reads external data of Constant nodes and of bodies into the graph, where it lies otherwise.

    Raises:
        ModelError: As :func:`external_values`.
    """
    from onnx import TensorProto

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
            f"tensor {tensor!r} has external data ({location!r}) and the model has no folder",
            code="model.external_missing",
        )
    base = folder.resolve()
    nul = "\0" in location
    path = base if nul else Path(os.path.realpath(base / location))
    if not location or nul or Path(location).is_absolute() or not path.is_relative_to(base):
        raise ModelError(
            f"the external data of tensor {tensor!r} lies outside the model's folder: {location!r}",
            code="model.external_escape",
            where=str(folder),
            hint="keep data files beside or below the model; links out of the folder do not count",
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
    from onnx import helper

    count = 1
    for size in tensor.dims:
        count *= size
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def as_array(tensor: onnx.TensorProto, data: np.ndarray) -> np.ndarray:
    """Views raw bytes as the tensor's array (which may be unaligned); packed data is copied."""
    from onnx import TensorProto, helper, numpy_helper

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
            f"initializer {tensor.name!r} does not hold what its shape {list(tensor.dims)} "
            f"and type {tensor.data_type} say: {error}",
            code="model.tensor_size",
            where=tensor.name,
            hint="the exporter wrote a broken tensor, or the file is damaged",
        ) from error
    array.flags.writeable = False
    return array
