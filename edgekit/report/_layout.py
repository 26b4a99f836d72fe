"""Where the boxes of the placement graph stand: layers by rank, segments by device.

Layers are ranked by their longest path from an input (the first phase of Sugiyama, Tagawa and Toda,
"Methods for Visual Understanding of Hierarchical System Structures", 1981); each stands near the
mean of what it reads. A long chain continues in a further column, as text in a newspaper does, so
that 2,000 layers are a picture and not a thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Layout", "by_device", "by_rank"]

BOX, SEGMENT_BOX = (196, 44), (168, 58)
_GAP, _ROW, _COLUMN = 18, 68, 64
_WIDE = 8  # boxes beside each other
_ASPECT = 1.7
_SYSTEM = 8  # segments from left to right before the lanes begin again below
_LANE, _SYSTEM_GAP, _LABEL = 82, 34, 64


@dataclass
class Layout:
    """A picture: its size, the boxes' size and corners by name, and lanes behind them.

    ``turns`` are the middles of the gaps above the sets of lanes: an edge that leads into a set
    from one above it goes through its gap.
    """

    width: float = 0.0
    height: float = 0.0
    box: tuple[int, int] = BOX
    at: dict[int, tuple[float, float]] = field(default_factory=dict)
    lanes: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)


def by_rank(items: Sequence[int], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lays boxes from top to bottom, each below what it reads.

    Args:
        items: Boxes in an order in which a box stands behind what it reads.
        edges: [from, to]; what points backwards does not count for the ranks.
    """
    place = {item: i for i, item in enumerate(items)}
    reads: dict[int, list[int]] = {item: [] for item in items}
    for start, end in edges:
        if place[start] < place[end]:
            reads[end].append(start)
    rows = _rows(items, reads)
    x: dict[int, float] = {}
    for row in rows:
        _spread(row, reads, x)
    found = Layout()
    if rows:
        _columns(rows, x, found)
    return found


def _rows(items: Sequence[int], reads: Mapping[int, list[int]]) -> list[list[int]]:
    rank: dict[int, int] = {}
    ranks: dict[int, list[int]] = {}
    for item in items:
        rank[item] = max((rank[one] + 1 for one in reads[item]), default=0)
        ranks.setdefault(rank[item], []).append(item)
    return [
        row[i : i + _WIDE]
        for _, row in sorted(ranks.items())
        for i in range(0, len(row), _WIDE)
    ]  # fmt: skip


def _spread(row: list[int], reads: Mapping[int, list[int]], x: dict[int, float]) -> None:
    """Puts a row's boxes near the mean of what they read, without overlap."""
    step = BOX[0] + _GAP
    wish = {
        item: sum(x[one] for one in reads[item]) / len(reads[item]) if reads[item] else 0.0
        for item in row
    }
    row.sort(key=lambda item: wish[item])
    spots: list[float] = []
    for item in row:
        spots.append(max(wish[item], spots[-1] + step) if spots else wish[item])
    shift = sum(wish[item] - spot for item, spot in zip(row, spots, strict=True)) / len(row)
    for item, spot in zip(row, spots, strict=True):
        x[item] = spot + shift


def _columns(rows: Sequence[Sequence[int]], x: Mapping[int, float], found: Layout) -> None:
    """Breaks the rows into columns so that the picture is about as wide as a screen."""
    spans = [(min(x[i] for i in row), max(x[i] for i in row)) for row in rows]

    def widths(deep: int) -> list[tuple[float, float]]:
        parts = [spans[i : i + deep] for i in range(0, len(spans), deep)]
        return [(min(low for low, _ in part), max(high for _, high in part)) for part in parts]

    def odd(deep: int) -> float:
        wide = sum(high - low + BOX[0] + _COLUMN for low, high in widths(deep))
        return abs(math.log(wide / (deep * _ROW * _ASPECT)))

    deep = min(
        {math.ceil(len(rows) / columns) for columns in range(1, min(len(rows), 60) + 1)}, key=odd
    )
    left = 0.0
    for number, (low, high) in enumerate(widths(deep)):
        for i, row in enumerate(rows[number * deep : (number + 1) * deep]):
            for item in row:
                found.at[item] = (left + x[item] - low, i * _ROW)
        left += high - low + BOX[0] + _COLUMN
    found.width = left - _COLUMN
    found.height = (deep - 1) * _ROW + BOX[1]


def by_device(
    devices: Mapping[int, str],
    lanes: Sequence[str],
    edges: Sequence[tuple[int, int]],
    across: int = _SYSTEM,
) -> Layout:
    """Lays segments from left to right in running order, each in the lane of its device.

    Args:
        devices: Device by segment, in running order.
        lanes: Devices from top to bottom.
        edges: [from, to]; a segment stands to the right of what it reads.
        across: Segments from left to right before the lanes begin again below. Each set of lanes
            has those only in which something stands.
    """
    reads: dict[int, list[int]] = {segment: [] for segment in devices}
    order = {segment: i for i, segment in enumerate(devices)}
    for start, end in edges:
        if order[start] < order[end]:
            reads[end].append(start)
    column: dict[int, int] = {}
    taken: dict[str, int] = {}
    for segment, device in devices.items():
        before = max((column[one] for one in reads[segment]), default=-1)
        column[segment] = max(before, taken.get(device, -1)) + 1
        taken[device] = column[segment]
    found = Layout(box=SEGMENT_BOX)
    gap = 44 if across > 2 else 24
    step = SEGMENT_BOX[0] + gap
    wide = min(max(column.values(), default=0) + 1, across)
    found.width = _LABEL + 28 + wide * step - gap
    top = 0
    for down in range(max(column.values(), default=0) // across + 1):
        members = {one: device for one, device in devices.items() if column[one] // across == down}
        found.turns.append(top - _SYSTEM_GAP / 2)
        for lane in [one for one in lanes if one in members.values()]:
            found.lanes.append((0.0, top + 3, found.width, _LANE - 6, lane))
            for segment, device in members.items():
                if device == lane:
                    right = column[segment] % across
                    corner = (_LABEL + 14 + right * step, top + (_LANE - SEGMENT_BOX[1]) / 2)
                    found.at[segment] = corner
            top += _LANE
        top += _SYSTEM_GAP
    found.height = top - _SYSTEM_GAP
    # as the segments were given: a picture's boxes have this order
    found.at = {segment: found.at[segment] for segment in devices}
    return found
