"""The page's charts: small inline SVG without text, so that they stretch to any width.

All words stand beside them in HTML. Colours are classes of the page's style sheet, which knows
light and dark; titles and labels that hold a model's names are escaped here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from edgekit.report._text import clean, microseconds, percent, plural

__all__ = ["bar", "device_class", "histogram", "shares", "track"]


def device_class(device: str) -> str:
    """Returns the style class of a device: "gpu", "dla0", "dla1"; others look like the GPU."""
    name = device.lower()
    return name if name in ("gpu", "dla0", "dla1") else "gpu"


def _figure(width: float, height: float, label: str, shapes: Sequence[str], css: str) -> str:
    """Wraps shapes; an empty label marks a drawing that only repeats the text beside it."""
    role = f'role="img" aria-label="{escape(clean(label))}"' if label else 'aria-hidden="true"'
    return (
        f'<svg class="{css}" viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" {role}>'
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


def track(timeline: Mapping[str, Any], device: str) -> str:
    """Draws when one device works; the whole width is the timeline's ``end_us``."""
    end = timeline["end_us"]
    slots = [slot for slot in timeline["slots"] if slot["device"] == device]
    scale = 1000 / end if end > 0 else 0.0
    shapes = [
        _rect(
            slot["start_us"] * scale, slot["duration_us"] * scale, 0, 24,
            f"slot fill-{device_class(device)}",
            f"segment {slot['segment']} on {device}: {plural(slot['layers'], 'layer')}, "
            f"{slot['first']} to {slot['last']}, {microseconds(slot['duration_us'])} predicted",
        )
        for slot in slots
    ]  # fmt: skip
    busy = microseconds(sum(slot["duration_us"] for slot in slots))
    label = f"{device}: {plural(len(slots), 'segment')}, busy for {busy} of {microseconds(end)}"
    return _figure(1000, 24, label, shapes, "track")


def histogram(counts: Sequence[int], label: str) -> str:
    """Draws one column a bin, the highest over the full height."""
    top = max(counts, default=0) or 1
    shapes = [
        _rect(10 * i + 0.5, 9, 100 - 100 * n / top, 100 * n / top, "fill-measured", str(n))
        for i, n in enumerate(counts)
        if n
    ]
    return _figure(10 * len(counts), 100, label, shapes, "histogram")
