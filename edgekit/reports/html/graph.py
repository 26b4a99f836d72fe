"""The placement graph on the page: positions of its boxes (layers by rank, segments by device),
their texts, and the still picture for readers without the script and for paper.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

from edgekit.reports import text
from edgekit.reports.charts import device_class
from edgekit.reports.html.view import View
from edgekit.reports.layers import shape_words
from edgekit.reports.schema import Report, ReportedLayer, ReportedSegment
from edgekit.text import counted

# Positions of the boxes of the placement graph: layers by rank, segments by device.
#
# Layers are ranked by their longest path from an input (the first phase of Sugiyama, Tagawa and
# Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981); each is placed
# near the mean of its producers. A long chain continues in a further column, like text in a
# newspaper, so that 2,000 layers fit into a picture.


BOX, SEGMENT_BOX = (196, 44), (168, 58)
_GAP, _ROW, _COLUMN = 18, 68, 64
_WIDE = 8  # boxes side by side
_ASPECT = 1.7
_SYSTEM = 8  # segments from left to right before the lanes begin again below
_LANE, _SYSTEM_GAP, _LABEL = 82, 34, 64
_LINE = 31  # letters in the box's second line, which is smaller
_LETTERS = 27  # letters that fit into a layer's box
_TITLE = 300
NARROW = 2  # segments side by side on a page as narrow as a phone


@dataclass
class GraphLayout:
    """A picture: its size, the boxes' size and corners by name, and the lanes drawn under them.

    ``turns`` are the middles of the gaps above the sets of lanes: an edge from a set above passes
    through the gap.
    """

    width: float = 0.0
    height: float = 0.0
    box: tuple[int, int] = BOX
    at: dict[int, tuple[float, float]] = field(default_factory=dict)
    lanes: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)


def layout_by_rank(items: Sequence[int], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Places boxes from top to bottom, each below its producers.

    Args:
        items: Boxes, each after its producers.
        edges: [from, to]; backward edges do not count for the ranks.
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
    found = GraphLayout()
    if rows:
        _columns(rows, x, found)
    return found


def _rows(items: Sequence[int], reads: Mapping[int, list[int]]) -> list[list[int]]:
    rank: dict[int, int] = {}
    ranks: dict[int, list[int]] = {}
    for item in items:
        rank[item] = max((rank[producer] + 1 for producer in reads[item]), default=0)
        ranks.setdefault(rank[item], []).append(item)
    return [
        row[i : i + _WIDE] for _, row in sorted(ranks.items()) for i in range(0, len(row), _WIDE)
    ]


def _spread(row: list[int], reads: Mapping[int, list[int]], x: dict[int, float]) -> None:
    """Places a row's boxes near the mean of their producers, without overlap."""
    step = BOX[0] + _GAP
    wanted = {
        item: sum(x[producer] for producer in reads[item]) / len(reads[item])
        if reads[item]
        else 0.0
        for item in row
    }
    row.sort(key=lambda item: wanted[item])
    spots: list[float] = []
    for item in row:
        spots.append(max(wanted[item], spots[-1] + step) if spots else wanted[item])
    # without overlap they moved to the right: the row is centred again
    shift = sum(wanted[item] - spot for item, spot in zip(row, spots, strict=True)) / len(row)
    for item, spot in zip(row, spots, strict=True):
        x[item] = spot + shift


def _columns(rows: Sequence[Sequence[int]], x: Mapping[int, float], found: GraphLayout) -> None:
    """Breaks the rows into columns so that the picture is about as wide as a screen."""
    spans = [(min(x[i] for i in row), max(x[i] for i in row)) for row in rows]

    def widths(deep: int) -> list[tuple[float, float]]:
        parts = [spans[i : i + deep] for i in range(0, len(spans), deep)]
        return [(min(low for low, _ in part), max(high for _, high in part)) for part in parts]

    def aspect_error(deep: int) -> float:
        wide = sum(high - low + BOX[0] + _COLUMN for low, high in widths(deep))
        # logarithm: twice as wide is as bad as twice as high
        return abs(math.log(wide / (deep * _ROW * _ASPECT)))

    deep = min(
        {math.ceil(len(rows) / columns) for columns in range(1, min(len(rows), 60) + 1)},
        key=aspect_error,
    )
    left = 0.0
    for number, (low, high) in enumerate(widths(deep)):
        for i, row in enumerate(rows[number * deep : (number + 1) * deep]):
            for item in row:
                found.at[item] = (left + x[item] - low, i * _ROW)
        left += high - low + BOX[0] + _COLUMN
    found.width = left - _COLUMN
    found.height = (deep - 1) * _ROW + BOX[1]


def layout_by_device(
    devices: Mapping[int, str],
    lanes: Sequence[str],
    edges: Sequence[tuple[int, int]],
    across: int = _SYSTEM,
) -> GraphLayout:
    """Places segments from left to right in running order, each in the lane of its device.

    Args:
        devices: Device by segment, in running order.
        lanes: Devices from top to bottom.
        edges: [from, to]; a segment is to the right of its producers.
        across: Segments from left to right before the lanes begin again below. Each set has only
            the lanes that contain segments.
    """
    reads: dict[int, list[int]] = {segment: [] for segment in devices}
    order = {segment: i for i, segment in enumerate(devices)}
    for start, end in edges:
        # a damaged document may have cycles: backward edges place nothing
        if order[start] < order[end]:
            reads[end].append(start)
    column: dict[int, int] = {}
    taken: dict[str, int] = {}
    for segment, device in devices.items():
        before = max((column[producer] for producer in reads[segment]), default=-1)
        column[segment] = max(before, taken.get(device, -1)) + 1
        taken[device] = column[segment]
    found = GraphLayout(box=SEGMENT_BOX)
    gap = 44 if across > 2 else 24
    step = SEGMENT_BOX[0] + gap
    wide = min(max(column.values(), default=0) + 1, across)
    found.width = _LABEL + 28 + wide * step - gap
    top = 0
    for down in range(max(column.values(), default=0) // across + 1):
        members = {
            segment: device
            for segment, device in devices.items()
            if column[segment] // across == down
        }
        found.turns.append(top - _SYSTEM_GAP / 2)
        for lane in [device for device in lanes if device in members.values()]:
            found.lanes.append((0.0, top + 3, found.width, _LANE - 6, lane))
            for segment, device in members.items():
                if device == lane:
                    right = column[segment] % across
                    corner = (_LABEL + 14 + right * step, top + (_LANE - SEGMENT_BOX[1]) / 2)
                    found.at[segment] = corner
            top += _LANE
        top += _SYSTEM_GAP
    found.height = top - _SYSTEM_GAP
    # in the order of the segments: a picture's boxes have this order
    found.at = {segment: found.at[segment] for segment in devices}
    return found


def shorten(name: str, letters: int = _LETTERS) -> str:
    """Returns the end of a name, which distinguishes layers; wide characters count twice."""
    cells = [2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in name[-letters:]]
    if len(name) <= letters and sum(cells) <= letters:
        return name
    space, length = letters - 1, 0
    for size in reversed(cells):
        space -= size
        if space < 0:
            break
        length += 1
    return "…" + name[len(name) - length :]


def graph_view(report: Report) -> View | None:
    """Returns the graph's still picture, its data for the script, and its segments as rows.

    None for an older document, which has no segments.

    The script only draws, pans and zooms: positions and texts of the boxes are computed here. The
    still picture of the segments is for readers without the script and for paper.
    """
    graph = report.graph
    if not graph.segments:
        return None
    numbers = {row.number for row in report.layers}
    edges = [(a, b) for a, b in graph.edges if a in numbers and b in numbers]
    segments = {segment.segment: segment for segment in graph.segments}
    between = [(a, b) for a, b, _ in graph.segment_edges if a in segments and b in segments]
    devices = {number: segment.device for number, segment in segments.items()}
    order = dict.fromkeys([*report.timeline.tracks, *devices.values()])
    lanes = [device for device in order if device in devices.values()]
    top = layout_by_device(devices, lanes, between)
    narrow = layout_by_device(devices, lanes, between, across=NARROW)
    pictures = {
        "segments": _picture(top, between, lambda segment: -segment - 1),
        "narrow": _picture(narrow, between, lambda segment: -segment - 1),
    }
    pictures["all"] = _picture(layout_by_rank(sorted(numbers), edges), edges, int)
    pictures |= _segment_pictures(report.layers, edges)
    data = {
        # a segment's picture has layers and segments: segments have negative numbers
        "layers": {row.number: _layer(row) for row in report.layers},
        "segments": {-number - 1: _segment(segment) for number, segment in segments.items()},
        "pictures": pictures,
    }
    return {
        "still": Markup(_static_svg(top, between, segments)),
        "data": Markup(_script_json(data)),
        "rows": [
            {
                "segment": number,
                "device": text.clean(segment.device),
                "css": device_class(segment.device),
                "layers": text.count(segment.layers),
                "first": text.clean(segment.first),
                "last": text.clean(segment.last),
                "time": text.microseconds(segment.predicted_us),
                "of": _unbooked_text(segment),
            }
            for number, segment in segments.items()
        ],
        "reformats": [
            {
                "device": text.clean(reformat.device),
                "css": device_class(reformat.device),
                "what": f"reformats for segment {reformat.segment}",
                "time": text.microseconds(reformat.predicted_us),
            }
            for reformat in graph.reformats
        ],
        "devices": [
            {"device": text.clean(device), "css": device_class(device)} for device in lanes
        ],
        "words": f"{counted(len(numbers), 'layer')} in " + counted(len(segments), "segment"),
    }


def _segment_pictures(
    rows: Sequence[ReportedLayer], edges: Sequence[tuple[int, int]]
) -> dict[str, View]:
    """Returns a picture of each segment: its layers, and the segments before and after it."""
    home = {row.number: row.segment for row in rows}
    members: dict[int, list[int]] = {}
    for number, segment in home.items():
        members.setdefault(segment, []).append(number)
    own: dict[int, dict[tuple[int, int], None]] = {segment: {} for segment in members}
    reads: dict[int, dict[int, None]] = {segment: {} for segment in members}
    feeds: dict[int, dict[int, None]] = {segment: {} for segment in members}
    for start, end in edges:
        here, there = home[start], home[end]
        if here == there:
            own[here][start, end] = None
        else:
            own[here][start, -there - 1] = feeds[here][-there - 1] = None
            own[there][-here - 1, end] = reads[there][-here - 1] = None
    found = {}
    for segment, inside in members.items():
        # the segments before and after it are the same only in a broken document
        last = [other for other in feeds[segment] if other not in reads[segment]]
        order = [*reads[segment], *sorted(inside), *last]
        found[str(segment)] = _picture(
            layout_by_rank(order, list(own[segment])), list(own[segment]), int
        )
    return found


def _picture(
    layout: GraphLayout, edges: Sequence[tuple[int, int]], name: Callable[[int], int]
) -> View:
    index = {item: i for i, item in enumerate(layout.at)}
    return {
        "size": [round(layout.width), round(layout.height)],
        "box": list(layout.box),
        "nodes": [[name(item), round(x), round(y)] for item, (x, y) in layout.at.items()],
        "edges": [[index[a], index[b]] for a, b in edges],
        "turns": layout.turns,
        "lanes": [[*map(round, lane[:4]), text.clean(lane[4])] for lane in layout.lanes],
    }


def _layer(row: ReportedLayer) -> list[object]:
    """Returns a box's line, style, segment, and a sentence that describes it."""
    name, kind = text.clean(row.name), text.clean(row.kind)
    time = text.microseconds(row.predicted_us)
    what = " ".join(filter(None, (kind, shape_words(row))))
    where = f"{what} on {text.clean(row.device)}, {time} predicted"
    return [
        shorten(name),
        device_class(row.device),
        row.segment,
        f"{name[:_TITLE]}: {where}",
        "no" if row.dla_ok is False else "",
        shorten(what, _LINE),
    ]


def _segment(segment: ReportedSegment) -> tuple[str, str, str, str]:
    """Returns a box's title, style, line, and a sentence that describes it."""
    layers, beyond = counted(segment.layers, "layer"), _unbooked_text(segment)
    time = text.microseconds(segment.predicted_us)
    first, last = text.clean(segment.first)[:_TITLE], text.clean(segment.last)[:_TITLE]
    title = (
        f"Segment {segment.segment} on {text.clean(segment.device)}: {layers}, {time} predicted, "
    )
    title += f"{beyond}, " if beyond else ""
    return (
        f"Segment {segment.segment}",
        device_class(segment.device),
        f"{layers}, {time}",
        f"{title}{first} to {last}",
    )


def _unbooked_text(segment: ReportedSegment) -> str:
    """Returns the part of a segment's time that is no layer's, as text; "" if there is none."""
    parts = ((segment.reformats_us, "reformats"), (segment.launch_us, "to start the loadable"))
    found = [f"{text.microseconds(us)} {name}" for us, name in parts if us]
    return f"of it {' and '.join(found)}" if found else ""


def _script_json(data: View) -> str:
    """Returns JSON that cannot end the element that holds it."""
    # in a script element only <, > and & could end it; JSON allows their escapes
    written = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _static_svg(
    layout: GraphLayout, edges: Sequence[tuple[int, int]], segments: Mapping[int, ReportedSegment]
) -> str:
    wide, high = layout.box
    parts = [
        f'<rect class="lane" x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="6"/>'
        f'<text class="lanename" x="12" y="{y + h / 2 + 4:.0f}">{escape(text.clean(device))}</text>'
        for x, y, w, h, device in layout.lanes
    ]
    for start, end in edges:
        (ax, ay), (bx, by) = layout.at[start], layout.at[end]
        x, y, u, v = ax + wide, ay + high / 2, bx, by + high / 2
        bend = max(abs(u - x) / 2, 22)
        if u > x:
            d = f"C{x + bend:.0f} {y:.0f} {u - bend:.0f} {v:.0f} {u:.0f} {v:.0f}"
        else:  # into the lanes below: through the gap above them
            turn = max(gap for gap in layout.turns if gap < by)
            d = f"h12V{turn:.0f}H{u - 12:.0f}V{v:.0f}h12"
        parts.append(f'<path class="edge" d="M{x:.0f} {y:.0f}{d}"/>')
    for segment, (x, y) in layout.at.items():
        title, css, line, tooltip = _segment(segments[segment])
        parts.append(
            f'<g><title>{escape(tooltip)}</title><rect class="box fill-{css}" x="{x:.0f}" '
            f'y="{y:.0f}" width="{wide}" height="{high}" rx="6"/>'
            f'<text class="boxname" x="{x + 12:.0f}" y="{y + 24:.0f}">{escape(title)}</text>'
            f'<text class="boxline" x="{x + 12:.0f}" y="{y + 43:.0f}">{escape(line)}</text></g>'
        )
    label = (
        f"Segments by device: {', '.join(words for *_, words in map(_segment, segments.values()))}"
    )
    return (
        f'<svg class="graph" viewBox="-2 -2 {layout.width + 4:.0f} {layout.height + 4:.0f}" '
        f'role="img" aria-label="{escape(label[:4000])}">' + "".join(parts) + "</svg>"
    )
