"""Layer information of a finished engine (trtexec --exportLayerInfo): types and tensor formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LayerInfo", "layer_infos"]


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """A layer's type, and names and formats of its tensors, where the engine was built detailed."""

    kind: str
    inputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def layer_infos(document: Any) -> dict[str, LayerInfo]:
    """Returns the layers by name; names alone (the default verbosity) tell nothing."""
    layers = document.get("Layers") if isinstance(document, dict) else None
    found = {}
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, dict) or not isinstance(layer.get("Name"), str):
            continue
        inputs, outputs = _tensors(layer.get("Inputs")), _tensors(layer.get("Outputs"))
        found[layer["Name"]] = LayerInfo(
            str(layer.get("LayerType", "")),
            tuple(str(tensor.get("Name", "")) for tensor in inputs),
            tuple(map(_format, inputs)),
            tuple(map(_format, outputs)),
            tuple(str(tensor.get("Name", "")) for tensor in outputs),
        )
    return found


def _tensors(entry: Any) -> list[Mapping[str, Any]]:
    listed = entry if isinstance(entry, list) else []
    return [tensor for tensor in listed if isinstance(tensor, dict)]


def _format(tensor: Mapping[str, Any]) -> str:
    """Up to TensorRT 10 one text; from 11 on two."""
    both = tensor.get("Format/Datatype")
    if isinstance(both, str):
        return both
    return f"{tensor.get('Format', '')} {tensor.get('DataType', '')}".strip()
