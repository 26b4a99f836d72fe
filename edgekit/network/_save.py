"""Writes a model as a plain ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from edgekit._files import replacing
from edgekit.errors import ModelError
from edgekit.network._deferred import entries
from edgekit.network._digest import chunks
from edgekit.network._wire import GRAPH, INITIALIZER, RAW_DATA, key, varint

if TYPE_CHECKING:
    import onnx

    from edgekit.network._types import Model

__all__ = ["save"]

# protobuf cannot write 2 GiB; above this the weights go into a file beside the model
_LARGEST_INLINE = 1_800_000_000
# what ONNX Runtime and the onnx package align external data to, so that it can be mapped
_ALIGNMENT = 4096


def save(model: Model, path: str | Path) -> None:
    """Writes ``model`` with its weights, replacing ``path`` in one step.

    Over about 1.8 GB the weights go into ``<name>.<digest>.data`` beside it, which is complete
    before the model that names it appears.

    Raises:
        ModelError: ``model.unwritable`` when the folder is missing or full; nothing is left behind.
    """
    import onnx

    target = Path(path)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    total = sum(array.nbytes for array in entries(model.weights).values())
    try:
        if total > _LARGEST_INLINE:
            data = target.with_name(f"{target.name}.{model.digest[:12]}.data")
            _replace(data, lambda file: _write_external(model, proto, data.name, file))
            _replace(target, lambda file: file.write(proto.SerializeToString()))
        else:
            _replace(target, lambda file: _write_inline(model, proto, file))
    except OSError as error:
        raise ModelError(
            f"the model cannot be written: {error.strerror or error}",
            code="model.unwritable",
            where=str(target),
            hint="the folder must exist, be writable and have room for the weights",
        ) from error


def _write_inline(model: Model, proto: onnx.ModelProto, file: IO[bytes]) -> None:
    """Writes what ``SerializeToString`` would return, with one piece of a weight in memory."""
    weights = entries(model.weights)
    tensors: list[tuple[bytes, str, bytes]] = []
    total = 0
    for tensor in proto.graph.initializer:
        name, size, head, tail = "", 0, b"", b""
        if tensor.name in weights:
            name, size = tensor.name, weights[tensor.name].nbytes
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            head, tail = _around(tensor, RAW_DATA)
            head += key(RAW_DATA) + varint(size)
        else:
            head = tensor.SerializeToString()
        head = key(INITIALIZER) + varint(len(head) + size + len(tail)) + head
        tensors.append((head, name, tail))
        total += len(head) + size + len(tail)
    before, behind = _around(proto.graph, INITIALIZER)
    head, end = _around(proto, GRAPH)
    file.write(head + key(GRAPH) + varint(len(before) + total + len(behind)) + before)
    for head, name, tail in tensors:
        file.write(head)
        for chunk in chunks(model.weights[name]) if name else ():
            file.write(chunk)
        file.write(tail)
    file.write(behind + end)


def _around(
    message: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto, number: int
) -> tuple[bytes, bytes]:
    """Returns a message's fields before and behind the field ``number``, as they are written."""
    before, behind = type(message)(), type(message)()
    before.CopyFrom(message)
    behind.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.number >= number:
            before.ClearField(field.name)
        if field.number <= number:
            behind.ClearField(field.name)
    return before.SerializeToString(), behind.SerializeToString()


def _write_external(model: Model, proto: onnx.ModelProto, name: str, file: IO[bytes]) -> None:
    for tensor in proto.graph.initializer:
        if tensor.name not in model.weights:
            continue
        file.write(bytes(-file.tell() % _ALIGNMENT))
        offset = file.tell()
        for chunk in chunks(model.weights[tensor.name]):
            file.write(chunk)
        del tensor.external_data[:]
        length = file.tell() - offset
        rows = (("location", name), ("offset", str(offset)), ("length", str(length)))
        for item, value in rows:
            tensor.external_data.add(key=item, value=value)


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes beside ``path`` under a temporary name and renames when all of it is on the disk."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
