"""Tensor formats as builders and inspectors print them, in the names of the cost model."""

from __future__ import annotations

import re
from functools import cache

__all__ = ["layout_of", "same_elements"]

_PRINTED = re.compile(r"^([A-Za-z]\w*)\(([^()]*)\)$")
_INSPECTED = re.compile(
    r"^(?:(?P<wide>[A-Z][a-z-]+) wide channel vectorized row major"
    r"|(?P<linear>Row major)(?: linear)?|(?P<last>Channel major)) "
    r"(?P<type>FP32|FP16|Int8)(?: format)?(?: where channel % (?P<multiple>\d+) == 0)?$"
)
_WIDTHS = {"Two": 2, "Four": 4, "Eight": 8, "Sixteen": 16, "Thirty-two": 32}
_TYPES = {"Float": "fp32", "Half": "fp16", "Int8": "int8"}
_IMAGE = 4


@cache
def layout_of(text: str, *, dla: bool = False) -> tuple[str, str] | None:
    """Returns (type, format) of a format with strides, such as ``Int8(3136,49:32,7,1)``.

    Strides are in vectors: a vector of channels whose own stride is 1 before wider rows is a
    channel-last format. None for what is no such text.

    Args:
        text: As the builder prints it, or an engine inspector.
        dla: Of a loadable's border; linear and image formats are the DLA's own there.
    """
    match = _PRINTED.match(text.strip())
    if match is None or match[1] not in _TYPES:
        return _inspected(text.strip(), dla=dla)
    strides, vector, at = [], 1, -1
    for place, part in enumerate(match[2].split(",")):
        number, _, width = part.partition(":")
        if not number.strip().isdigit():
            return None
        strides.append(int(number))
        if width:
            vector, at = int(width), place
    dtype = _TYPES[match[1]]
    if vector == 1:
        last = len(strides) == 4 and strides[1] == 1 and strides[3] > 1
        form = "HWC" if last else "LINEAR"
        return dtype, "DLA_LINEAR" if dla and form == "LINEAR" else form
    if dla and vector == _IMAGE:
        return dtype, "DLA_HWC4"
    channel_last = strides[at] == 1 and at + 1 < len(strides) and strides[-1] > 1
    return dtype, f"{'HWC' if channel_last else 'CHW'}{vector}"


def _inspected(text: str, *, dla: bool) -> tuple[str, str] | None:
    """Reads what an engine inspector prints: "Thirty-two wide channel vectorized row major ..."."""
    match = _INSPECTED.match(text)
    if match is None:
        return None
    dtype = match["type"].lower().replace("float", "fp")
    if match["linear"]:
        return dtype, "DLA_LINEAR" if dla else "LINEAR"
    if match["last"]:
        return dtype, f"HWC{match['multiple'] or ''}"
    width = _WIDTHS.get(match["wide"])
    if width is None:
        return None
    return dtype, "DLA_HWC4" if dla and width == _IMAGE else f"CHW{width}"


@cache
def same_elements(one: str, other: str) -> bool:
    """Whether two formats differ in strides only: the same type and the same vectors."""
    first, second = _PRINTED.match(one), _PRINTED.match(other)
    if first is None or second is None or first[1] != second[1]:
        return False
    return _vectors(first[2]) == _vectors(second[2])


def _vectors(strides: str) -> tuple[str, ...]:
    return tuple(part.partition(":")[2] for part in strides.split(","))
