"""Reads the measured reformat kernels and works out the bytes that each one read and wrote.

TensorRT writes a tensor as type and strides, "Int8(3136,49:32,7,1)": strides of N, C, H and W in
elements, in vectors of 32 channels here. That gives channels, height, width and padding, but
neither the batch nor, where all of a tensor's strides are 1, its rows; those are left unknown.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from edgekit.placement.costs.kernel_costs import BYTES
from edgekit.placement.costs.reformat import is_aligned, sectors

__all__ = ["Row", "read_rows"]

TYPES = {"Float": "fp32", "Half": "fp16", "Int8": "int8"}
TABLE = Path(__file__).parent / "data" / "reformat_orin.csv"
LINE = 64


@dataclass(frozen=True)
class _Side:
    """One side's strides: kind is LINEAR, CHW (vectors by plane) or HWC; None: not written."""

    dtype: str
    kind: str
    vector: int
    channels: int
    height: int | None
    width: int


@dataclass(frozen=True)
class Row:
    """One measured kernel; bytes and microseconds of one item of the batch.

    Attributes:
        source, goal: (type, class of layout), ("int8", "CHW").
        formats: The same with the vector, for tables: ("int8 CHW32", "fp32 LINEAR").
        read, written: Bytes; reading stops at the sectors that hold real channels.
        us: The builder's time.
        geometry: Channels, height and width.
        unknown: The key that rows of the same unknown batch share; None if the batch is 1.
        aligned: Whether lines are whole vectors for the kernel.
    """

    source: tuple[str, str]
    goal: tuple[str, str]
    formats: tuple[str, str]
    read: int
    written: int
    us: float
    geometry: tuple[int, int, int]
    unknown: Hashable | None
    aligned: bool


def read_rows() -> list[Row]:
    """Returns the table's rows."""
    with TABLE.open(encoding="utf-8") as file:
        lines = csv.reader(line for line in file if not line.startswith("#"))
        next(lines)
        return [_row(source, goal, float(ms) * 1e3) for source, goal, ms, _ in lines]


def _row(source: str, goal: str, us: float) -> Row:
    sides = (_side(source), _side(goal))
    channels = min(side.channels for side in sides)
    heights = [side.height for side in sides if side.height is not None]
    height = min(heights, default=1)
    width = min(side.width for side in sides)
    found = [_layout(side, channels, height, width) for side in sides]
    strided = "long-strided" in source + goal
    unknown: Hashable | None = None
    if not heights:
        unknown = ("rows", width)
    elif height == width == 1 and channels > 1:
        lines = any(kind == "DLA" for kind, _, _ in found)
        widest = 0 if lines else max(_stride(side) for side in (source, goal))
        unknown = (channels, strided, lines, widest if widest > 2 * channels else 0)
    names = tuple(
        f"{side.dtype} DLA_LINEAR"
        if kind == "DLA"
        else f"{side.dtype} {kind}{side.vector if side.vector > 1 else ''}"
        for side, (kind, _, _) in zip(sides, found, strict=True)
    )
    return Row(
        (sides[0].dtype, found[0][0]),
        (sides[1].dtype, found[1][0]),
        (names[0], names[1]),
        found[0][1],
        found[1][2],
        us,
        (channels, height, width),
        unknown,
        is_aligned(width),
    )


def _side(text: str) -> _Side:
    match = re.match(r"(\w+)\((.*?)\)", text)
    assert match is not None, text
    dtype, inner = TYPES[match[1]], match[2]
    vector, strides = 1, []
    for part in inner.split(",") if inner else []:
        stride, _, lanes = part.partition(":")
        strides.append(int(stride or 1))
        vector = int(lanes or vector)
    if len(strides) == 4:
        return _side4(dtype, vector, strides)
    if len(strides) == 3:  # C, H, W without a batch; channels are 1
        hidden = strides[0] == 1
        kind = "LINEAR" if vector == 1 else "HWC" if hidden else "CHW"
        height = None if hidden else strides[0] // max(strides[1], 1)
        return _Side(dtype, kind, vector, 1, height, strides[1])
    width = strides[0] if strides else 1
    return _Side(dtype, "LINEAR", 1, 1, 1, width)


def _side4(dtype: str, vector: int, strides: list[int]) -> _Side:
    batch, channel, line, pixel = strides
    single = channel == line == pixel == 1
    if single:
        return _Side(dtype, "LINEAR" if vector == 1 else "CHW", vector, batch * vector, 1, 1)
    if channel == 1 and (vector > 1 or pixel > 1):
        return _Side(dtype, "HWC", vector, pixel * vector, batch // line, line // pixel)
    kind = "CHW" if vector > 1 else "LINEAR"
    return _Side(dtype, kind, vector, batch // channel * vector, channel // line, line)


def _layout(side: _Side, channels: int, height: int, width: int) -> tuple[str, int, int]:
    """Returns the class of a side's layout, and the bytes that reading and writing it moves."""
    size = BYTES[side.dtype]
    pixels = height * width
    if side.kind == "LINEAR":
        if side.width > width or (side.height or height) > height:
            moved = channels * height * -(-width * size // LINE) * LINE
            return "DLA", moved, moved
        return "LINEAR", channels * pixels * size, channels * pixels * size
    written = -(-channels // side.vector) * side.vector * pixels * size
    return side.kind, sectors(channels, side.vector, size) * pixels, written


def _stride(text: str) -> int:
    match = re.match(r"\w+\((\d*)(?:,[^:)]*:(\d+))?", text)
    assert match is not None, text
    return int(match[1] or 1) * int(match[2] or 1)
