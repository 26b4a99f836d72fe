"""edgekit's own notes in a model's metadata, which loading, editing and saving keep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from edgekit.network._types import Model

__all__ = ["copy_metadata", "metadata", "with_metadata"]

# what others wrote says nothing about the model that edgekit makes of the file
_PREFIX = "edgekit."


def metadata(model: Model, key: str) -> str | None:
    """Returns the text that stands in a model's metadata under ``key``; None when there is none."""
    for item in model.proto.metadata_props:
        if item.key == key:
            return str(item.value)
    return None


def with_metadata(model: Model, key: str, value: str) -> Model:
    """Returns the model with a text in its metadata.

    Args:
        model: The model, which is left as it is.
        key: Begins with "edgekit.": no other key survives.
        value: Replaces what stands under the key. It is a part of the model's digest, so it must
            not hold anything that changes from run to run.
    """
    import onnx

    if not key.startswith(_PREFIX):
        raise ValueError(f"a key must begin with {_PREFIX!r}, and {key!r} does not")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _write(proto, {**_kept(proto), key: value})
    return replace(model, proto=proto, stored_digest=None)


def copy_metadata(source: onnx.ModelProto, target: onnx.ModelProto) -> None:
    """Gives ``target`` edgekit's own metadata of ``source``, sorted by key, and no other."""
    _write(target, _kept(source))


def _kept(proto: onnx.ModelProto) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in proto.metadata_props:
        if item.key.startswith(_PREFIX):
            found.setdefault(item.key, item.value)
    return found


def _write(proto: onnx.ModelProto, entries: dict[str, str]) -> None:
    del proto.metadata_props[:]
    for key in sorted(entries):
        proto.metadata_props.add(key=key, value=entries[key])
