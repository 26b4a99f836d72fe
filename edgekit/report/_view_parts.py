"""The view of what was timed as a whole: loadables and fusions of layers.

The profiler of an engine sees a loadable as one layer. Its time is told where it was measured, and
never shared out among its layers: nobody knows how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report import _charts as charts
from edgekit.report import _text as text

__all__ = ["part_cells", "parts_view", "within_words"]

_MOST = 15


def within_words(
    row: Mapping[str, Any], letters: int = 80, labels: Mapping[str, str] | None = None
) -> str:
    """Returns of which whole a layer's time is a part; "" where it has a time of its own, or none.

    Args:
        row: A layer.
        letters: A longer name is cut in its middle, for its ends name the first and last layer.
        labels: Shorter ones of wholes that stand in a table, by their names.
    """
    within = row.get("within")
    if not within:
        return ""
    name = (labels or {}).get(within["name"]) or text.clean(within["name"])
    if len(name) > letters:
        name = f"{name[: letters // 2]}…{name[-letters // 2 :]}"
    return f"in {name}, {text.microseconds(within['us'])} together"


def _kind(name: str) -> str:
    return "loadable" if name.startswith("{ForeignNode") else "fusion"


def part_cells(
    parts: Sequence[Mapping[str, Any]], total: float, most: int = _MOST
) -> list[dict[str, Any]]:
    """Returns a row a part, the longest first.

    Args:
        parts: ``measured_parts`` of the report.
        total: Microseconds of all that was timed.
        most: Rows at most.
    """
    known = sorted(parts, key=lambda one: -float(one["us"]))
    found = [
        {
            "label": f"{_kind(one['name'])} {number}", "whole": one["name"],
            "name": text.clean(one["name"]), "device": text.clean(one["device"]),
            "layers": text.count(len(one["layers"])), "us": one["us"],
        }
        for number, one in enumerate(known[:most], start=1)
    ]  # fmt: skip
    if rest := known[most:]:
        found.append({
            "label": "", "whole": "", "name": f"{len(rest):,} more, in report.json", "device": "",
            "layers": text.count(sum(len(one["layers"]) for one in rest)),
            "us": sum(one["us"] for one in rest),
        })  # fmt: skip
    return [
        {**one, "time": text.microseconds(one["us"]),
         "share": text.percent(one["us"] / total if total > 0 else None)}
        for one in found
    ]  # fmt: skip


def parts_view(parts: Sequence[Mapping[str, Any]], total: float) -> list[dict[str, Any]]:
    """Returns the rows of the page's table."""
    return [
        {**one, "css": charts.device_class(one["device"]) if one["device"] else ""}
        for one in part_cells(parts, total)
    ]
