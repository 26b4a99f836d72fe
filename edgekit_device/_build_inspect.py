"""What the engine inspector says: layers with their devices, and reformatting at the borders."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence, Tuple

__all__ = ["inspect_text", "reformats", "summary"]

_DLA = "DLA"
_REFORMATS = tuple(
    "Reformatting CopyNode for Network {} ".format(what) for what in ("Input", "Output")
)


def inspect_text(trt: Any, engine: Any) -> str:
    """The inspector's JSON of a whole engine; "" where it gives none."""
    inspector = engine.create_engine_inspector()
    if inspector is None:
        return ""
    return str(inspector.get_engine_information(trt.LayerInformationFormat.JSON) or "")


def summary(text: str) -> Tuple[List[Dict[str, str]], List[str]]:
    """Layers as ``{"name", "type", "device"}``, and what could not be read.

    Read tolerantly: up to 10.x and 11 differ in what they say of tensors, which is not needed here;
    built without details, layers are their names alone. A DLA's part is one layer of the type
    "DLA"; its name alone does not tell, since Myelin's parts of the GPU are called alike.
    """
    if not text.strip():
        return [], ["the inspector gave nothing"]
    try:
        found = json.loads(text, strict=False)
        layers = found["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return [], ["the inspector's JSON cannot be read: {}".format(error)]
    if not isinstance(layers, list):
        return [], ["the inspector's layers are no list"]
    told, odd = [], 0
    for layer in layers:
        if isinstance(layer, str):
            told.append({"name": layer, "type": "", "device": ""})
        elif isinstance(layer, dict) and isinstance(layer.get("Name"), str):
            kind = str(layer.get("LayerType", ""))
            device = _DLA if kind.upper() == _DLA else "GPU" if kind else ""
            told.append({"name": layer["Name"], "type": kind, "device": device})
        else:
            odd += 1
    notes = ["the inspector lists {} layers without a name".format(odd)] if odd else []
    return told, notes


def reformats(text: str, borders: Sequence[str]) -> List[str]:
    """Names of layers that do nothing but reformat one of the engine's inputs or outputs."""
    try:
        layers = json.loads(text, strict=False)["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    names, found = set(borders), []
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, str):
            # names alone: of "Input Tensor 0 to conv1" nobody knows whether it is at a border
            if any(layer == text + name for text in _REFORMATS for name in names):
                found.append(layer)
            continue
        if not isinstance(layer, dict) or layer.get("LayerType") != "Reformat":
            continue
        touched = {
            tensor.get("Name")
            for side in ("Inputs", "Outputs")
            for tensor in layer.get(side) or ()
            if isinstance(tensor, dict)
        }
        if touched & names:
            found.append(str(layer.get("Name", "")))
    return found
