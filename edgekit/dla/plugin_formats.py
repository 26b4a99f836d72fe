"""The types and formats that a user's plugin declares ("int8:chw32"): its layer's precision on the
GPU, and the formats that it can read and write.
"""

from __future__ import annotations

from edgekit.dla.fact_files import format_facts
from edgekit.network.model import Layer

# trtexec's names of the formats whose reformats have a cost; other formats are taken as linear
_LAYOUTS = {"chw": "LINEAR", "chw4": "CHW4", "chw32": "CHW32", "hwc8": "HWC8"}
_WORDS = {layout: word for word, layout in _LAYOUTS.items()}
#: Formats that a DLA's loadables read and write, by type.
DLA_VECTOR = {"int8": "CHW32", "fp16": "CHW16"}
# a plugin runs in the narrowest type that it declares and the build allows
_TRIED = {
    "int8": ("int8", "fp16", "fp32"),
    "fp16": ("fp16", "fp32", "int8"),
    "fp32": ("fp32", "fp16", "int8"),
}


def possible_formats() -> tuple[str, ...]:
    """Returns the types and formats that a plugin's tensors can have: "fp32:chw", ..."""
    taken = format_facts().plugins.taken
    return tuple(f"{kind}:{form}" for kind, forms in taken.items() for form in forms)


def declared_formats(layer: Layer) -> tuple[tuple[str, str], ...]:
    """Returns the (type, format) pairs that a plugin's layer declares; empty for other layers."""
    pairs = (text.partition(":") for text in layer.params.get("formats", ()))
    return tuple((kind, form) for kind, _, form in pairs)


def takes_int8(layer: Layer) -> bool:
    """Returns True if a layer is a plugin that declares INT8."""
    return any(kind == "int8" for kind, _ in declared_formats(layer))


def plugin_precision(layer: Layer, precision: str, *, scaled: bool) -> str:
    """Returns the precision of an opaque layer on the GPU.

    Args:
        layer: The layer.
        precision: The build's.
        scaled: True if all tensors that it reads and writes have INT8 scales.
    """
    types = {kind for kind, _ in declared_formats(layer)}
    tried = _TRIED["fp16" if precision == "int8" and not scaled else precision]
    usual = "fp16" if precision == "int8" else precision
    return next((kind for kind in tried if kind in types), usual)


def plugin_layouts(layer: Layer, precision: str) -> tuple[str, ...]:
    """Returns the formats ("LINEAR", "CHW32") that a plugin declares in a precision.

    Formats without cost are left out; empty for a layer that declares none.
    """
    forms = (form for kind, form in declared_formats(layer) if kind == precision)
    return tuple(dict.fromkeys(_LAYOUTS[form] for form in forms if form in _LAYOUTS))


def declaration(layout: str) -> str | None:
    """Returns a plugin's declaration of a layout ("int8:CHW32"); None if not possible.

    For a DLA's linear layout it is the DLA's vector format, which a plugin can declare too.
    """
    kind, _, form = layout.partition(":")
    if form == "DLA_LINEAR":
        form = DLA_VECTOR.get(kind, form)
    found = f"{kind}:{_WORDS.get(form, '')}"
    return found if found in possible_formats() else None
