"""The types of layers that TensorRT's ONNX parser creates only in some releases
(``trt/layers.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from edgekit.knowledge import data_folder, read_document
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    mapping,
    member,
    record,
)
from edgekit_device.versions import at_least, parse_version

#: The kind of a layer if the parser's layers are unknown, or the parser refuses the operator. It is
#: not a TensorRT layer type.
UNKNOWN = "UNKNOWN"
#: The kind of a plugin's layer.
PLUGIN = "PLUGIN_V2"


@document(frozen=True, eq=False)
class _ChangedKind:
    """An operator's layer type from the release ``since`` on, and the type ``before``."""

    before: str = member(long_text)
    kind: str = member(long_text)
    since: str = member(long_text)
    source: tuple[str, ...] = member(array(long_text, 1))
    interpolated: bool = member(flag, absent=False)


@document(frozen=True, eq=False)
class _LayersFile:
    """``trt/layers.yaml``."""

    schema: str = member(choice("edgekit.tensorrt-layers/1"))
    layers: Mapping[str, _ChangedKind] = member(mapping(record(_ChangedKind)))


@cache
def kind_in_release(what: str, release: str) -> str:
    """Returns the type of layer that the parser of a release creates.

    Args:
        what: An ONNX operator, or a case of an operator, as ``trt/layers.yaml`` names it.
        release: The TensorRT release, such as "10.3".

    Returns:
        TensorRT's layer type; "" for an operator whose layer type is the same in every release.
    """
    row = _layers_file().layers.get(what)
    if row is None:
        return ""
    newer = at_least(parse_version(release), parse_version(row.since))
    return row.kind if newer else row.before


@cache
def _layers_file() -> _LayersFile:
    return read_document(_LayersFile, data_folder("trt") / "layers.yaml")
