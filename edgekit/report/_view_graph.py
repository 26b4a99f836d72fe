"""The view of the placement graph: pictures that the page's script draws, and a still one.

The script only draws, pans and zooms: where each box stands and what it says is settled here. The
still picture of the segments is for readers without the script and for paper.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edgekit.report import _text as text
from edgekit.report._charts import device_class
from edgekit.report._layers import shape_words
from edgekit.report._layout import Layout, by_device, by_rank

__all__ = ["graph_view", "short"]

_LINE = 31  # of its second line, which is smaller
_LETTERS = 27  # that fit into a layer's box
_TITLE = 300
NARROW = 2  # segments beside each other where the page is as narrow as a phone


def short(name: str, letters: int = _LETTERS) -> str:
    """Returns the end of a name, which tells layers apart; wide characters count twice."""
    cells = [2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in name[-letters:]]
    if len(name) <= letters and sum(cells) <= letters:
        return name
    room, kept = letters - 1, 0
    for size in reversed(cells):
        room -= size
        if room < 0:
            break
        kept += 1
    return "…" + name[len(name) - kept :]


def graph_view(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the graph's still picture, its data for the script, and its segments as rows.

    None for a document without segments, as they were written before reports had a graph.
    """
    from markupsafe import Markup

    graph = document["graph"]
    if not graph["segments"]:
        return None
    numbers = {row["number"] for row in document["layers"]}
    edges = [(a, b) for a, b in graph["edges"] if a in numbers and b in numbers]
    segments = {one["segment"]: one for one in graph["segments"]}
    between = [(a, b) for a, b, _ in graph["segment_edges"] if a in segments and b in segments]
    devices = {number: one["device"] for number, one in segments.items()}
    order = dict.fromkeys([*document["timeline"]["tracks"], *devices.values()])
    lanes = [device for device in order if device in devices.values()]
    top = by_device(devices, lanes, between)
    narrow = by_device(devices, lanes, between, across=NARROW)
    pictures = {
        "segments": _picture(top, between, lambda segment: -segment - 1),
        "narrow": _picture(narrow, between, lambda segment: -segment - 1),
    }
    pictures["all"] = _picture(by_rank(sorted(numbers), edges), edges, int)
    pictures |= _inside(document["layers"], edges)
    data = {
        "layers": {row["number"]: _layer(row) for row in document["layers"]},
        "segments": {-number - 1: _segment(one) for number, one in segments.items()},
        "pictures": pictures,
    }
    return {
        "still": Markup(_still(top, between, segments)),
        "data": Markup(_inline(data)),
        "rows": [
            {
                "segment": number, "device": text.clean(one["device"]),
                "css": device_class(one["device"]), "layers": text.count(one["layers"]),
                "first": text.clean(one["first"]), "last": text.clean(one["last"]),
                "time": text.microseconds(one["predicted_us"]), "of": _beyond(one),
            }
            for number, one in segments.items()
        ],
        "reformats": [
            {
                "device": text.clean(one["device"]), "css": device_class(one["device"]),
                "what": f"reformats for segment {one['segment']}",
                "time": text.microseconds(one["predicted_us"]),
            }
            for one in graph.get("reformats") or ()
        ],
        "devices": [
            {"device": text.clean(device), "css": device_class(device)}
            for device in lanes
        ],
        "words": f"{text.counted(len(numbers), 'layer')} in "
        + text.counted(len(segments), "segment"),
    }  # fmt: skip


def _inside(
    rows: Sequence[Mapping[str, Any]], edges: Sequence[tuple[int, int]]
) -> dict[str, dict[str, Any]]:
    """Returns a picture of each segment: its layers, and the segments that it reads and feeds."""
    home = {row["number"]: row["segment"] for row in rows}
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
        # what it reads and feeds may be the same segment only in a broken document
        last = [one for one in feeds[segment] if one not in reads[segment]]
        order = [*reads[segment], *sorted(inside), *last]
        found[str(segment)] = _picture(by_rank(order, list(own[segment])), list(own[segment]), int)
    return found


def _picture(layout: Layout, edges: Sequence[tuple[int, int]], name: Any) -> dict[str, Any]:
    index = {item: i for i, item in enumerate(layout.at)}
    return {
        "size": [round(layout.width), round(layout.height)],
        "box": list(layout.box),
        "nodes": [[name(item), round(x), round(y)] for item, (x, y) in layout.at.items()],
        "edges": [[index[a], index[b]] for a, b in edges],
        "turns": layout.turns,
        "lanes": [[*map(round, lane[:4]), text.clean(lane[4])] for lane in layout.lanes],
    }


def _layer(row: Mapping[str, Any]) -> list[Any]:
    """Returns a box's line, style, segment, and what it is in a sentence."""
    name, kind = text.clean(row["name"]), text.clean(row["kind"])
    time = text.microseconds(row["predicted_us"])
    what = " ".join(one for one in (kind, shape_words(row)) if one)
    where = f"{what} on {text.clean(row['device'])}, {time} predicted"
    return [
        short(name), device_class(row["device"]), row["segment"],
        f"{name[:_TITLE]}: {where}", "no" if row["dla_ok"] is False else "",
        short(what, _LINE),
    ]  # fmt: skip


def _segment(one: Mapping[str, Any]) -> list[Any]:
    layers, beyond = text.counted(one["layers"], "layer"), _beyond(one)
    time = text.microseconds(one["predicted_us"])
    first, last = text.clean(one["first"])[:_TITLE], text.clean(one["last"])[:_TITLE]
    title = f"Segment {one['segment']} on {text.clean(one['device'])}: {layers}, {time} predicted, "
    title += f"{beyond}, " if beyond else ""
    return [
        f"Segment {one['segment']}", device_class(one["device"]), f"{layers}, {time}",
        f"{title}{first} to {last}",
    ]  # fmt: skip


def _beyond(one: Mapping[str, Any]) -> str:
    """Returns what of a segment's time is no layer's; "" where all of it is."""
    parts = (("reformats_us", "reformats"), ("launch_us", "to start the loadable"))
    found = [f"{text.microseconds(one[key])} {name}" for key, name in parts if one.get(key)]
    return f"of it {' and '.join(found)}" if found else ""


def _inline(data: Mapping[str, Any]) -> str:
    """Returns JSON that cannot end the element that holds it."""
    written = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _still(
    layout: Layout, edges: Sequence[tuple[int, int]], segments: Mapping[int, Mapping[str, Any]]
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
            turn = max(one for one in layout.turns if one < by)
            d = f"h12V{turn:.0f}H{u - 12:.0f}V{v:.0f}h12"
        parts.append(f'<path class="edge" d="M{x:.0f} {y:.0f}{d}"/>')
    for segment, (x, y) in layout.at.items():
        title, css, line, told = _segment(segments[segment])
        parts.append(
            f'<g><title>{escape(told)}</title><rect class="box fill-{css}" x="{x:.0f}" '
            f'y="{y:.0f}" width="{wide}" height="{high}" rx="6"/>'
            f'<text class="boxname" x="{x + 12:.0f}" y="{y + 24:.0f}">{escape(title)}</text>'
            f'<text class="boxline" x="{x + 12:.0f}" y="{y + 43:.0f}">{escape(line)}</text></g>'
        )
    label = f"Segments by device: {', '.join(one[3] for one in map(_segment, segments.values()))}"
    return (
        f'<svg class="graph" viewBox="-2 -2 {layout.width + 4:.0f} {layout.height + 4:.0f}" '
        f'role="img" aria-label="{escape(label[:4000])}">' + "".join(parts) + "</svg>"
    )
