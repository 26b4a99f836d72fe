"""The kinds of layers that TensorRT's ONNX parser writes for an operator in one release and not in
another (``trt/layers.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from edgekit.knowledge import data_folder, read_knowledge
from edgekit_device.versions import at_least, parse_version

#: The kind of a layer where it is not known which layers the parser writes, or the parser refuses
#: the operator: no type of TensorRT's.
UNKNOWN = "UNKNOWN"


@cache
def by_release(what: str, release: str) -> str:
    """Returns the kind of layer that the parser of a release writes.

    Args:
        what: An ONNX operator, or a case of one, as ``trt/layers.yaml`` names it.
        release: The TensorRT release, such as "10.3".

    Returns:
        TensorRT's layer type; "" for an operator whose layers are of one kind in every release.
    """
    row = _rows().get(what)
    if row is None:
        return ""
    newer = at_least(parse_version(release), parse_version(row["since"]))
    return str(row["kind"] if newer else row["before"])


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    content: Mapping[str, Any] = read_knowledge(data_folder("trt") / "layers.yaml")
    rows: Mapping[str, Mapping[str, Any]] = content["layers"]
    return rows
