"""Writes ONNX files: ``save`` a plain file, with external data if large, and ``save_annotated`` a
file with the device and time of each node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

import onnx

from edgekit.errors import ModelError
from edgekit.files import regular_file, replacing
from edgekit.network.files import GRAPH, INITIALIZER, RAW_DATA, key, varint
from edgekit.network.model import Model, chunks, entries
from edgekit.network.protos import name_nodes

#: Bytes of weights above which they go into a file next to the model: protobuf cannot write 2 GiB.
LARGEST_INLINE = 1_800_000_000
# alignment of external data for memory-mapping, as in ONNX Runtime and the onnx package
_ALIGNMENT = 4096
_OWN = "edgekit."  # of a node
_MODEL = "edgekit:"  # of the model; loading keeps "edgekit." only
Notes = Mapping[str, Mapping[str, str]]


def save(model: Model, path: str | Path) -> None:
    """Writes ``model`` with its weights, replacing ``path`` atomically.

    Weights above about 1.8 GB are written to ``<name>.<digest>.data`` next to it, which is complete
    before the model file appears.

    Raises:
        ModelError: ``model.unwritable`` if the folder is missing or full; no partial file remains.
    """
    target = Path(path)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    total = sum(array.nbytes for array in entries(model.weights).values())
    try:
        if total > LARGEST_INLINE:
            data = target.with_name(f"{target.name}.{model.digest[:12]}.data")
            _write_synced(data, lambda file: _write_external(model, proto, data.name, file))
            _write_synced(target, lambda file: file.write(proto.SerializeToString()))
        else:
            _write_synced(target, lambda file: _write_inline(model, proto, file))
    except OSError as error:
        raise ModelError(
            f"the model cannot be written: {error.strerror or error}",
            code="model.unwritable",
            where=str(target),
            hint="check that the folder exists, is writable and has space for the weights",
        ) from error


def _write_inline(model: Model, proto: onnx.ModelProto, file: IO[bytes]) -> None:
    """Writes the bytes of ``SerializeToString`` with only a chunk of a weight in memory."""
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
    # protobuf writes fields by number: the initializers go between these two
    before, after = _around(proto.graph, INITIALIZER)
    head, end = _around(proto, GRAPH)
    file.write(head + key(GRAPH) + varint(len(before) + total + len(after)) + before)
    for head, name, tail in tensors:
        file.write(head)
        for chunk in chunks(model.weights[name]) if name else ():
            file.write(chunk)
        file.write(tail)
    file.write(after + end)


def _around(
    message: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto, number: int
) -> tuple[bytes, bytes]:
    """Returns the serialised fields of a message before and after the field ``number``."""
    before, after = type(message)(), type(message)()
    before.CopyFrom(message)
    after.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.number >= number:
            before.ClearField(field.name)
        if field.number <= number:
            after.ClearField(field.name)
    return before.SerializeToString(), after.SerializeToString()


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


def _write_synced(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes next to ``path`` under a temporary name and renames the file when it is on disk."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def save_annotated(model: Model, path: Path, notes: Notes, about: Mapping[str, str]) -> None:
    """Writes a model with notes at its nodes.

    ``NodeProto.metadata_props`` exists since ONNX IR version 10 (onnx 1.16, docs/IR.md "Metadata").
    A file of an older IR version keeps that version, which determines the meaning of its graph;
    protobuf readers that do not know the field skip it (seen with the checker of onnx 1.14 and ONNX
    Runtime 1.15).

    Netron shows 95 pixels of a name: keys are short enough to be read.

    Args:
        model: The model that was placed.
        path: The file, which is replaced atomically.
        notes: Keys without "edgekit." and values, by name of the node.
        about: Keys without "edgekit:" and values for the whole model.

    Raises:
        ModelError: The file cannot be written.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _write_notes(proto, notes, about)
    save(replace(model, proto=proto, stored_digest=None), path)


def annotate_file(source: Path, path: Path, notes: Notes, about: Mapping[str, str]) -> None:
    """Writes a copy of an ONNX file with notes at its nodes and no other change.

    The copy refers to the external data of the source, so it must be in the same folder.

    Args:
        source: The file that was loaded.
        path: The copy.
        notes: As for :func:`save_annotated`; unnamed nodes have the names that loading gives them.
        about: The same for the whole model.

    Raises:
        ModelError: The source cannot be read, or the copy cannot be written there.
    """
    try:
        data = regular_file(source).read_bytes()
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's own exceptions, and those of the file
        raise ModelError(
            f"it cannot be read: {error}", code="model.unreadable", where=str(source)
        ) from error
    same_folder = os.path.realpath(path.parent) == os.path.realpath(source.parent)
    if not same_folder and any(tensor.external_data for tensor in proto.graph.initializer):
        raise ModelError(
            "the model's weights are in separate files, which are not copied",
            code="model.external",
            where=str(path),
            hint="write it to the same folder: "
            f"{source.with_name(f'{source.stem}.annotated.onnx')}",
        )
    _write_notes(proto, notes, about)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(proto.SerializeToString())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the model cannot be written: {error}",
            code="model.unwritable",
            where=str(path),
            hint="give a file in a folder that can be written",
        ) from error


def _write_notes(proto: onnx.ModelProto, notes: Notes, about: Mapping[str, str]) -> None:
    # the names that loading gives, without writing them into the file
    named = [onnx.NodeProto(name=node.name, op_type=node.op_type) for node in proto.graph.node]
    name_nodes(named)
    for node, known in zip(proto.graph.node, named, strict=True):
        retained = [item for item in node.metadata_props if not item.key.startswith(_OWN)]
        own = [
            onnx.StringStringEntryProto(key=_OWN + key, value=value)
            for key, value in notes.get(known.name, {}).items()
        ]
        del node.metadata_props[:]
        node.metadata_props.extend([*retained, *own])
    others = [item for item in proto.metadata_props if not item.key.startswith(_MODEL)]
    new = [
        onnx.StringStringEntryProto(key=_MODEL + key, value=value) for key, value in about.items()
    ]
    del proto.metadata_props[:]
    proto.metadata_props.extend([*others, *new])
