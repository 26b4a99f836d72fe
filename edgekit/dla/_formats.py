"""Sizes and strides of tensors in the formats that cross a loadable's border.

The formats, their paddings and their sources stand in ``dla/formats.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgekit.dla._rules import format_facts, load_rules
from edgekit.dla._types import Reason

__all__ = [
    "FORMATS",
    "element_strides",
    "four",
    "legal",
    "nbytes",
    "refused_type",
    "stored_shape",
    "strides",
]

FORMATS: tuple[str, ...] = tuple(format_facts()["formats"])
ROLES = ("input", "output")
_ELEMENT = {
    "bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4,
    "int64": 8, "float64": 8,
}  # fmt: skip
_CHW = 3


def strides(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the distance in bytes between neighbours along each axis of ``shape``.

    For the DLA formats the tensor is (N, C, H, W): leading dimensions of a larger tensor are one
    batch and a smaller one gets ones in front, so that four numbers come back. In CHW16 and CHW32
    the second number is the distance between vectors of 16 or 32 channels; within a vector the
    channels lie next to each other.

    Args:
        shape: Static shape.
        dtype: NumPy type name.
        format: One of ``FORMATS``.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).

    Raises:
        ValueError: Unknown format, type or generation, or a shape that the format cannot hold.
    """
    size = _size(dtype)
    return tuple(step * size for step in element_strides(shape, dtype, format, generation))


def element_strides(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the strides in elements; as :func:`strides` in everything else."""
    if format == "LINEAR":
        _size(dtype)
        return _packed(shape)
    stored = _packed(stored_shape(shape, dtype, format, generation))
    if _facts(format)["layout"] == "hwc":
        batch, line, pixel, channel = stored
        return (batch, channel, line, pixel)
    return stored[: _CHW + 1]


def nbytes(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> int:
    """Returns the bytes of a tensor, padding included; arguments as for :func:`strides`."""
    return math.prod(stored_shape(shape, dtype, format, generation)) * _size(dtype)


def stored_shape(
    shape: Sequence[int], dtype: str, format: str = "LINEAR", generation: str = "2.0"
) -> tuple[int, ...]:
    """Returns the shape of the memory that holds a tensor, padding included.

    (N, C, H, line) for DLA_LINEAR, (N, H, line, 1 or 4) for DLA_HWC4, (N, C/v, H, W, v) for CHW16
    and CHW32 with C rounded up, ``shape`` itself for LINEAR. Arguments as for :func:`strides`.

    Raises:
        ValueError: As :func:`strides`.
    """
    size = _size(dtype)
    facts = _facts(format)
    if format == "LINEAR":
        return tuple(shape)
    batch, channels, height, width = four(shape)
    if facts["layout"] == "vector":
        vector = facts["vector"]
        return (batch, -(-channels // vector), height, width, vector)
    if generation not in facts["line_bytes"]:
        known = ", ".join(facts["line_bytes"])
        raise ValueError(f"unknown DLA generation {generation!r}, there are {known}")
    line = facts["line_bytes"][generation]
    if facts["layout"] == "hwc":
        if str(channels) not in facts["held"]:
            raise ValueError(f"{format} holds {_listed(facts['held'])} channels, not {channels}")
        held = facts["held"][str(channels)]
        return (batch, height, _round_up(width * held * size, line) // (held * size), held)
    return (batch, channels, height, _round_up(width * size, line) // size)


def legal(
    format: str,
    dtype: str,
    role: str,
    *,
    channels: int,
    readers: Sequence[str] = (),
    reader_dtype: str | None = None,
    groups: int = 1,
) -> Reason | None:
    """Says why a tensor cannot cross a loadable's border in a format; None where it can.

    The same holds for both DLA generations; they differ in sizes (:func:`strides`).

    Args:
        format: One of ``FORMATS``.
        dtype: NumPy type name.
        role: "input" or "output" of the loadable.
        channels: Channels of the tensor.
        readers: Kinds of the loadable's layers that read an input; empty where none is known.
        reader_dtype: Type in which these compute ("int8", "float16"); None where unknown.
        groups: Most groups of the convolutions among them.

    Raises:
        ValueError: Unknown format or role.
    """
    facts = _facts(format)
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}, there are {', '.join(ROLES)}")
    wanted = facts.get("readers")
    others = [kind for kind in readers if wanted and kind not in wanted]
    if not facts["roles"]:
        return _reason("formats.native", format)
    if wrong_type := refused_type(format, dtype):
        return wrong_type
    if "held" in facts and str(channels) not in facts["held"]:
        return _reason("formats.channels", f"{channels} channels", _listed(facts["held"]))
    if role not in facts["roles"]:
        return _reason("formats.role", f"{format} as {role}", _listed(facts["roles"]))
    if role == "input" and others:
        return _reason("formats.reader", f"read by {others[0]}", _listed(wanted))
    if role == "input" and groups > facts.get("most_groups", groups):
        return _reason("convolution.groups_hwc4", f"{groups} groups", f"1..{facts['most_groups']}")
    if role == "input" and "readers_type" in facts and reader_dtype not in {None, dtype}:
        return _reason("convolution.hwc4_type", f"{dtype} read by {reader_dtype}", dtype)
    return None


def refused_type(format: str, dtype: str) -> Reason | None:
    """Says why a format cannot hold a NumPy type; None where it can (LINEAR holds all)."""
    types = _facts(format).get("types", (dtype,))
    if dtype in types:
        return None
    return _reason("formats.type", f"{format} with {dtype}", _listed(types))


def four(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """A shape as (N, C, H, W): leading dimensions are one batch, missing ones are ones."""
    full = (1,) * (_CHW + 1 - len(shape)) + tuple(shape)
    return (math.prod(full[:-_CHW]), full[-3], full[-2], full[-1])


def _facts(format: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = format_facts()["formats"]
    if format not in known:
        raise ValueError(f"unknown format {format!r}, the formats are {', '.join(known)}")
    return known[format]


def _reason(rule_id: str, found: str, limit: str = "") -> Reason:
    rule = load_rules().rules[rule_id]
    message = f"{rule.text.rstrip('.')}: {found}"
    return Reason(rule_id, message, found, limit or rule.limit, "; ".join(rule.sources), rule.fix)


def _listed(values: Any) -> str:
    *most, last = (str(value) for value in values)
    return f"{', '.join(most)} or {last}" if most else last


def _size(dtype: str) -> int:
    if dtype not in _ELEMENT:
        raise ValueError(f"no element size known for {dtype!r}")
    return _ELEMENT[dtype]


def _packed(shape: Sequence[int]) -> tuple[int, ...]:
    found: list[int] = []
    step = 1
    for length in reversed(shape):
        found.insert(0, step)
        step *= length
    return tuple(found)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
