"""The page's charts: small inline SVG without text, so that they stretch to any width.

All words stand beside them in HTML. Colours are classes of the page's style sheet, which knows
light and dark; titles and labels that hold a model's names are escaped here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from edgekit.report._text import clean, counted, microseconds, percent

__all__ = [
    "LINES", "bar", "device_class", "histogram", "limit_bar", "lines", "shares", "skyline", "track",
]  # fmt: skip

LINES = 8
"""Colours of lines in the style sheet; further lines are dashed in the same colours."""


def device_class(device: str) -> str:
    """Returns the style class of a device: "gpu", "dla0", "dla1"; others look like the GPU."""
    name = device.lower()
    return name if name in ("gpu", "dla0", "dla1") else "gpu"


def _figure(
    width: float, height: float, label: str, shapes: Sequence[str], css: str, role: str = "img"
) -> str:
    """Wraps shapes; an empty label marks a drawing that only repeats the text beside it."""
    said = f'role="{role}" aria-label="{escape(clean(label))}"' if label else 'aria-hidden="true"'
    return (
        f'<svg class="{css}" viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" {said}>'
        + "".join(shapes)
        + "</svg>"
    )


def _rect(x: float, width: float, y: float, height: float, css: str, title: str = "") -> str:
    inner = f"<title>{escape(clean(title))}</title>" if title else ""
    return (
        f'<rect x="{x:.3f}" y="{y:.2f}" width="{max(width, 0):.3f}" height="{height:.2f}" '
        f'class="{css}">{inner}</rect>'
    )


def bar(fraction: float, css: str) -> str:
    """Draws one horizontal bar; ``fraction`` (0 to 1) of the cell's width."""
    width = 100 * min(max(fraction, 0.0), 1.0)
    return _figure(100, 10, "", [_rect(0, width, 0, 10, css)], "bar")


def shares(devices: Sequence[Mapping[str, Any]]) -> str:
    """Draws the MACs of each device as parts of one bar."""
    shapes, x = [], 0.0
    for row in devices:
        width = 1000 * row["macs_fraction"]
        title = f"{row['device']}: {percent(row['macs_fraction'])} of the MACs"
        shapes.append(_rect(x, width, 0, 20, f"fill-{device_class(row['device'])}", title))
        x += width
    label = "Share of the MACs: " + ", ".join(
        f"{row['device']} {percent(row['macs_fraction'])}" for row in devices
    )
    return _figure(1000, 20, label, shapes, "shares")


def limit_bar(fraction: float, css: str) -> str:
    """Draws a bar against its limit, which is four fifths of the cell, so that excess shows."""
    width = 80 * min(max(fraction, 0.0), 1.25)
    shapes = [_rect(0, width, 0, 10, "fill-over" if fraction > 1 else css)]
    return _figure(100, 10, "", [*shapes, _rect(79.5, 1, 0, 10, "fill-limit")], "bar")


def track(
    slots: Sequence[Mapping[str, Any]], device: str, end: float, clock: str = "predicted",
    linked: Collection[int] = (),
) -> str:  # fmt: skip
    """Draws when one device works; the whole width is ``end``, microseconds.

    A segment of the first plan that is in ``linked`` is a link to its row.
    """
    slots = [slot for slot in slots if slot["device"] == device]
    scale = 1000 / end if end > 0 else 0.0
    shapes = []
    for slot in slots:
        title = _slot_title(slot, device, clock)
        shape = _rect(
            slot["start_us"] * scale, slot["duration_us"] * scale, 0, 24,
            f"slot fill-{device_class(device)}", title,
        )  # fmt: skip
        if slot["plan"] == 0 and slot["segment"] in linked and slot.get("layers") != 0:
            name = escape(clean(title))
            shape = f'<a href="#segment-{slot["segment"]:d}" aria-label="{name}">{shape}</a>'
        shapes.append(shape)
    busy = microseconds(sum(slot["duration_us"] for slot in slots))
    many = counted(sum(slot.get("layers") != 0 for slot in slots), "segment")
    label = f"{device}: {many}, busy for {busy} of {microseconds(end)}"
    return _figure(1000, 24, label, shapes, "track", role="group" if linked else "img")


def _slot_title(slot: Mapping[str, Any], device: str, clock: str) -> str:
    time = f"{microseconds(slot['duration_us'])} {clock}"
    layers = slot.get("layers")
    if layers == 0:
        return f"reformats on {device} for segment {slot['segment']}: {time}"
    what = f"segment {slot['segment']} on {device}: "
    if layers:
        what += f"{counted(layers, 'layer')}, {slot['first'][:200]} to {slot['last'][:200]}, "
    if us := slot.get("reformats_us"):
        time += f", {microseconds(us)} of it reformats"
    return what + time


def skyline(rows: Sequence[tuple[str, float]], label: str) -> str:
    """Draws one column a layer from left to right, the slowest over the full height.

    Args:
        rows: Device and microseconds of each layer, in graph order.
        label: What the picture shows.
    """
    top = max((time for _, time in rows), default=0.0) or 1.0
    wide = 1000 / max(len(rows), 1)
    gap = 0.12 * wide if len(rows) <= 400 else 0.0
    paths: dict[str, list[str]] = {}
    for i, (device, time) in enumerate(rows):
        high = 100 * time / top
        if high > 0:
            paths.setdefault(device_class(device), []).append(
                f"M{i * wide:.2f} 100v{-max(high, 0.5):.2f}h{wide - gap:.2f}V100z"
            )
    shapes = [f'<path class="fill-{css}" d="{"".join(d)}"/>' for css, d in sorted(paths.items())]
    return _figure(1000, 100, label, shapes, "skyline")


def lines(
    series: Sequence[Mapping[str, Any]], span: tuple[float, float], top: float, label: str
) -> str:
    """Draws values over time from 0 to ``top``; ``span`` is from the left to the right edge.

    A dashed upright marks second 0, where the measurement begins.
    """
    begin, end = span
    across, up = 1000 / ((end - begin) or 1.0), 200 / (top or 1.0)
    shapes = []
    if begin < 0 < end:
        shapes.append(f'<path class="begin" d="M{-begin * across:.1f} 0V200"/>')
    for number, one in enumerate(series):
        points = " ".join(
            f"{(t - begin) * across:.1f},{200 - min(max(v, 0.0) * up, 200):.1f}"
            for t, v in one["points"]
        )
        dash = " dash" if number >= LINES else ""
        shapes.append(f'<polyline class="line net{number % LINES}{dash}" points="{points}"/>')
    return _figure(1000, 200, label, shapes, "lines")


def histogram(counts: Sequence[int], label: str) -> str:
    """Draws one column a bin, the highest over the full height."""
    top = max(counts, default=0) or 1
    shapes = [
        _rect(10 * i + 0.5, 9, 100 - 100 * n / top, 100 * n / top, "fill-measured", str(n))
        for i, n in enumerate(counts)
        if n
    ]
    return _figure(10 * len(counts), 100, label, shapes, "histogram")
