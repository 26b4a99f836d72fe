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
        else:
            _fill_inline(model, proto)
        _replace(target, lambda file: file.write(proto.SerializeToString()))
    except OSError as error:
        raise ModelError(
            f"the model cannot be written: {error.strerror or error}",
            code="model.unwritable",
            where=str(target),
            hint="the folder must exist, be writable and have room for the weights",
        ) from error


def _fill_inline(model: Model, proto: onnx.ModelProto) -> None:
    for tensor in proto.graph.initializer:
        if tensor.name in model.weights:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = b"".join(chunks(model.weights[tensor.name]))


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
        entries = (("location", name), ("offset", str(offset)), ("length", str(length)))
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes beside ``path`` under a temporary name and renames when all of it is on the disk."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
