"""The layers on the page: the table with its filters, the skyline, the slowest, what was timed
as a whole (loadables and fusions), and why a layer is not on a DLA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from edgekit.reports import charts, text
from edgekit.reports.layers import (
    board_us,
    by_time,
    order_words,
    part_cells,
    shape_words,
    within_words,
)
from edgekit.text import ABSENT, counted

SLOWEST = 15
_LETTERS = 24  # of a whole that has no row of its own to be found in
ON_PAPER = 100  # rows of the table that are printed, as many as a page of it has on the screen
RULE_ON_PAPER = 40  # the same of a rule's layers; templates/page_print.css has it, too
DLA_WORDS = {True: "yes", False: "no", None: ABSENT}


def layers_view(
    rows: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Returns the rows, the choices of the filters and the pictures of the times.

    ``parts`` are what was timed as a whole: their layers have no measured times of their own.
    """
    slowest = max((row["predicted_us"] for row in rows), default=0.0)
    measured = [row["measured"] for row in rows if row["measured"]]
    longest = max((one["us"] for one in measured), default=0.0)
    wholes = parts_view(parts, sum(one["us"] for one in (*measured, *parts)))
    labels = {one["whole"]: one["label"] for one in wholes if one["label"]}
    shown = [_row(row, slowest, labels) for row in rows]
    light = sorted(shown, key=lambda row: -row["weight"])[ON_PAPER:]
    for row in light:
        row["light"] = True
    clock = next((text.clean(one.get("clock") or "") for one in (*measured, *parts)), "")
    label = f"Predicted time of {counted(len(rows), 'layer')} in graph order"
    worst = by_time(rows)[:SLOWEST]
    return {
        "rows": shown,
        "paper": ON_PAPER,
        "left": text.count(len(light)) if light else "",
        "count": counted(len(rows), "layer"),
        "clock": clock,
        "order": order_words(rows),
        "parts": wholes,
        "skyline": Markup(
            charts.skyline([(row["device"], row["predicted_us"]) for row in rows], label)
        ),
        "slowest": [
            _slow(row, slowest, longest)
            for row in worst
            if row["predicted_us"] > 0 or row["measured"]
        ],
        "devices": _choices(row["device"] for row in shown),
        "kinds": _choices(row["kind"] for row in shown),
        "rules": _choices(rule for row in shown for rule in row["rules"]),
        "top": text.microseconds(slowest),
    }  # fmt: skip


def _choices(values: Any) -> list[str]:
    return sorted({value for value in values if value})


def _row(row: Mapping[str, Any], slowest: float, wholes: Mapping[str, str]) -> dict[str, Any]:
    css = charts.device_class(row["device"])
    measured = row["measured"]
    return {
        "number": row["number"], "name": text.clean(row["name"]),
        "kind": text.clean(row["kind"]), "type": text.clean(row.get("op") or ""),
        "shape": text.clean(shape_words(row)), "device": text.clean(row["device"]), "css": css,
        "precision": text.clean(row["precision"]), "segment": row["segment"],
        "dla": "disputed" if row["certainty"] == "disputed" else DLA_WORDS[row["dla_ok"]],
        "rules": list(dict.fromkeys(
            text.clean(reason["rule"])
            for reason in (*row["reasons"], *([row["on_gpu"]] if row.get("on_gpu") else ()))
        )),
        "reasons": [
            {"message": text.clean(reason["message"]), "fix": text.clean(reason["fix"])}
            for reason in row["reasons"]
        ],
        "on_gpu": text.clean((row.get("on_gpu") or {}).get("rule", "")),
        "macs": text.macs(row["macs"]), "macs_value": row["macs"],
        "time": text.microseconds(row["predicted_us"]), "time_value": row["predicted_us"],
        "measured": text.microseconds(measured["us"]) if measured else ABSENT,
        "within": "" if measured else within_words(row, _LETTERS, wholes),
        "whole": wholes.get((row.get("within") or {}).get("name", ""), "").replace(" ", "-"),
        "weight": board_us(row), "light": False,
        "measured_value": measured["us"] if measured else -1,
        "bar": Markup(charts.bar(
            row["predicted_us"] / slowest if slowest > 0 else 0.0, f"fill-{css}"
        )),
    }  # fmt: skip


def _slow(row: Mapping[str, Any], slowest: float, longest: float) -> dict[str, Any]:
    css = charts.device_class(row["device"])
    measured = row["measured"]
    return {
        "number": row["number"], "name": text.clean(row["name"]), "css": css,
        "device": text.clean(row["device"]), "time": text.microseconds(row["predicted_us"]),
        "bar": Markup(charts.bar(
            row["predicted_us"] / slowest if slowest > 0 else 0.0, f"fill-{css}"
        )),
        "measured": text.microseconds(measured["us"])
        if measured
        else "timed as a whole, below"
        if row.get("within")
        else "",
        "measured_bar": Markup(charts.bar(measured["us"] / longest, "fill-measured"))
        if measured and longest > 0
        else "",
    }  # fmt: skip


def why_not_view(groups: Sequence[Mapping[str, Any]], numbers: Mapping[str, int]) -> list[Any]:
    """Returns the rules with their layers; ``numbers`` are the layers' by name, for links."""
    return [
        {
            "rule": text.clean(group["rule"]),
            "count": counted(group["count"], "layer"),
            "left": text.count(left) if (left := len(group["layers"]) - RULE_ON_PAPER) > 0 else "",
            "fixes": [text.clean(fix) for fix in group["fixes"]],
            "sources": [text.clean(source) for source in group["sources"]],
            "layers": [
                {
                    "number": numbers.get(layer["name"], 0),
                    **{
                        key: text.clean(layer[key]) for key in ("name", "message", "found", "limit")
                    },
                }
                for layer in group["layers"]
            ],
        }
        for group in groups
    ]


# The view of what was timed as a whole: loadables and fusions of layers.
#
# The profiler of an engine sees a loadable as one layer. Its time is shown where it was measured,
# and never divided among its layers: the shares are unknown.


def parts_view(parts: Sequence[Mapping[str, Any]], total: float) -> list[dict[str, Any]]:
    """Returns the rows of the page's table."""
    return [
        {**one, "css": charts.device_class(one["device"]) if one["device"] else ""}
        for one in part_cells(parts, total)
    ]
