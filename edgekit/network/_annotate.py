"""An ONNX file whose nodes say where they run and how long: Netron shows it as their metadata.

``NodeProto.metadata_props`` came with ONNX IR version 10 (onnx 1.16, docs/IR.md "Metadata"). A file
of an older IR version keeps that version, which says how its graph is meant; protobuf readers that
do not know the field skip it (seen with the checker of onnx 1.14 and ONNX Runtime 1.15).

Netron has 95 pixels for a name and cuts the rest: keys are short enough to be read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import regular
from edgekit.errors import ModelError
from edgekit.network._graph import name_nodes
from edgekit.network._save import save

if TYPE_CHECKING:
    import onnx

    from edgekit.network._types import Model

__all__ = ["annotate_file", "save_annotated"]

_OWN = "edgekit."  # of a node
_MODEL = "edgekit:"  # of the model; "edgekit." is what loading keeps (`_metadata`)

Notes = Mapping[str, Mapping[str, str]]


def save_annotated(model: Model, path: Path, notes: Notes, about: Mapping[str, str]) -> None:
    """Writes a model with notes at its nodes.

    Args:
        model: As it was placed.
        path: The file; replaced in one step.
        notes: By name of the node: keys without "edgekit." and values.
        about: The same for the whole model, keys without "edgekit:".

    Raises:
        ModelError: The file cannot be written.
    """
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _write(proto, notes, about)
    save(replace(model, proto=proto, stored_digest=None), path)


def annotate_file(source: Path, path: Path, notes: Notes, about: Mapping[str, str]) -> None:
    """Writes a copy of an ONNX file with notes at its nodes, everything else being as it is.

    Weights in files beside it stay there and are referred to, so the copy goes beside them, too.

    Args:
        source: The file that was loaded.
        path: The copy.
        notes: As for :func:`save_annotated`; unnamed nodes have the names that loading gives them.
        about: The same for the whole model.

    Raises:
        ModelError: The source cannot be read, or the copy not written there.
    """
    import onnx

    from edgekit._files import replacing

    try:
        data = regular(source).read_bytes()
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's own, and the file's
        raise ModelError(
            f"it cannot be read: {error}", code="model.unreadable", where=str(source)
        ) from error
    beside = os.path.realpath(path.parent) == os.path.realpath(source.parent)
    if not beside and any(tensor.external_data for tensor in proto.graph.initializer):
        raise ModelError(
            "the weights lie in files beside the model, and are not copied",
            code="model.external", where=str(path),
            hint=f"write it beside them: {source.with_name(f'{source.stem}.annotated.onnx')}",
        )  # fmt: skip
    _write(proto, notes, about)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(proto.SerializeToString())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the model cannot be written: {error}", code="model.unwritable", where=str(path)
        ) from error


def _write(proto: onnx.ModelProto, notes: Notes, about: Mapping[str, str]) -> None:
    import onnx

    named = [onnx.NodeProto(name=node.name, op_type=node.op_type) for node in proto.graph.node]
    name_nodes(named)
    for node, known in zip(proto.graph.node, named, strict=True):
        kept = [item for item in node.metadata_props if not item.key.startswith(_OWN)]
        own = [
            onnx.StringStringEntryProto(key=_OWN + key, value=value)
            for key, value in notes.get(known.name, {}).items()
        ]
        del node.metadata_props[:]
        node.metadata_props.extend([*kept, *own])
    others = [item for item in proto.metadata_props if not item.key.startswith(_MODEL)]
    new = [
        onnx.StringStringEntryProto(key=_MODEL + key, value=value) for key, value in about.items()
    ]
    del proto.metadata_props[:]
    proto.metadata_props.extend([*others, *new])
