"""The layers on the page: the table with its filters, the skyline, the slowest layers, loadables
and fusions that were timed as a whole, and why a layer is not on a DLA. The profiler of an engine
sees a loadable as one layer. Its measured time is never divided among its layers: the shares are
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from markupsafe import Markup

from edgekit.network.module_tree import ModuleTotals, tree_rows
from edgekit.placement.gpu_reasons import Why
from edgekit.reports import charts, text
from edgekit.reports.html.view import View
from edgekit.reports.layers import (
    board_us,
    order_words,
    part_cells,
    shape_words,
    sort_by_time,
    within_words,
)
from edgekit.reports.schema import MeasuredPart, ReportedLayer
from edgekit.text import ABSENT, counted

SLOWEST = 15
_LETTERS = 24  # letters of the name of a loadable or fusion without a row
ON_PAPER = 100  # rows of the table that are printed, as many as a page on the screen
RULE_ON_PAPER = 40  # printed layers of a rule; also in templates/page_print.css
DLA_WORDS = {True: "yes", False: "no", None: ABSENT}


def layers_view(rows: Sequence[ReportedLayer], parts: Sequence[MeasuredPart] = ()) -> View:
    """Returns the rows, the choices of the filters and the pictures of the times.

    ``parts`` are loadables and fusions timed as a whole: their layers have no measured times.
    """
    slowest = max((row.predicted_us for row in rows), default=0.0)
    measured = [row.measured for row in rows if row.measured]
    times = [time.us for time in measured]
    wholes = part_cells(parts, sum(times) + sum(part.us for part in parts))
    labels = {whole.whole: whole.label for whole in wholes if whole.label}
    # paper has the slowest layers only
    light = {row.number for row in sorted(rows, key=lambda row: -board_us(row))[ON_PAPER:]}
    clocks = [*(time.clock for time in measured), *(part.clock for part in parts)]
    label = f"Predicted time of {counted(len(rows), 'layer')} in graph order"
    return {
        "rows": [_row(row, slowest, labels, light=row.number in light) for row in rows],
        "paper": ON_PAPER,
        "left": text.count(len(light)) if light else "",
        "count": counted(len(rows), "layer"),
        "clock": text.clean(clocks[0]) if clocks else "",
        "order": order_words(rows),
        "parts": [
            {**asdict(whole), "css": charts.device_class(whole.device) if whole.device else ""}
            for whole in wholes
        ],
        "skyline": Markup(charts.skyline([(row.device, row.predicted_us) for row in rows], label)),
        "slowest": [
            _slow_layer(row, slowest, max(times, default=0.0))
            for row in sort_by_time(rows)[:SLOWEST]
            if row.predicted_us > 0 or row.measured
        ],
        "devices": _choices(row.device for row in rows),
        "kinds": _choices(row.kind for row in rows),
        "rules": _choices(rule for row in rows for rule in _rules(row)),
        "top": text.microseconds(slowest),
    }


def _choices(values: Iterable[str]) -> list[str]:
    return sorted({text.clean(value) for value in values if value})


def _rules(row: ReportedLayer) -> list[str]:
    """Returns the rules that keep a layer off the DLA, each once."""
    rules = [reason.rule for reason in row.reasons]
    return list(dict.fromkeys([*rules, row.on_gpu.rule] if row.on_gpu else rules))


def _row(row: ReportedLayer, slowest: float, wholes: Mapping[str, str], *, light: bool) -> View:
    css = charts.device_class(row.device)
    measured, within = row.measured, row.within
    return {
        "number": row.number,
        "name": text.clean(row.name),
        "kind": text.clean(row.kind),
        "type": text.clean(row.op),
        "shape": text.clean(shape_words(row)),
        "device": text.clean(row.device),
        "css": css,
        "precision": text.clean(row.precision),
        "segment": row.segment,
        "dla": "disputed" if row.certainty == "disputed" else DLA_WORDS[row.dla_ok],
        "rules": [text.clean(rule) for rule in _rules(row)],
        "reasons": [
            {"message": text.clean(reason.message), "fix": text.clean(reason.fix)}
            for reason in row.reasons
        ],
        "on_gpu": text.clean(row.on_gpu.rule) if row.on_gpu else "",
        "macs": text.macs(row.macs),
        "macs_value": row.macs,
        "time": text.microseconds(row.predicted_us),
        "time_value": row.predicted_us,
        "measured": text.microseconds(measured.us) if measured else ABSENT,
        "within": "" if measured else within_words(row, _LETTERS, wholes),
        "whole": wholes.get(within.name, "").replace(" ", "-") if within else "",
        "weight": board_us(row),
        "light": light,
        # sorts below every measured time
        "measured_value": measured.us if measured else -1,
        "bar": _bar(row, slowest),
    }


def _bar(row: ReportedLayer, slowest: float) -> Markup:
    part = row.predicted_us / slowest if slowest > 0 else 0.0
    return Markup(charts.bar(part, f"fill-{charts.device_class(row.device)}"))


def _slow_layer(row: ReportedLayer, slowest: float, longest: float) -> View:
    measured = row.measured
    return {
        "number": row.number,
        "name": text.clean(row.name),
        "css": charts.device_class(row.device),
        "device": text.clean(row.device),
        "time": text.microseconds(row.predicted_us),
        "bar": _bar(row, slowest),
        "measured": text.microseconds(measured.us)
        if measured
        else "timed as a whole, below"
        if row.within
        else "",
        "measured_bar": Markup(charts.bar(measured.us / longest, "fill-measured"))
        if measured and longest > 0
        else "",
    }


def modules_view(modules: Sequence[ModuleTotals]) -> list[View]:
    """Returns the lines of the tree of modules, each with its depth; empty without modules."""
    clocks = {module.clock for module in modules}
    measured = "" if clocks == {"predicted"} else "measured on the board if measured whole"
    return [
        {
            "name": text.clean(row["module"].strip()),
            "depth": (len(row["module"]) - len(row["module"].lstrip())) // 2,
            "kind": text.clean(row["class"]),
            "layers": row["layers"],
            "devices": text.clean(row["on"]),
            "us": row["µs"],
            "why": text.clean(row["why not on the DLA"]),
            "measured": measured,
        }
        for row in tree_rows(modules)
    ]


def why_not_view(groups: Sequence[Why], numbers: Mapping[str, int]) -> list[View]:
    """Returns the rules with their layers; ``numbers`` are layer numbers by name, for links."""
    return [
        {
            "rule": text.clean(group.rule),
            "count": counted(group.count, "layer"),
            "left": text.count(left) if (left := len(group.layers) - RULE_ON_PAPER) > 0 else "",
            "fixes": [text.clean(fix) for fix in group.fixes],
            "sources": [text.clean(source) for source in group.sources],
            "layers": [
                {
                    "number": numbers.get(layer.name, 0),
                    "name": text.clean(layer.name),
                    "message": text.clean(layer.message),
                    "found": text.clean(layer.found),
                    "limit": text.clean(layer.limit),
                }
                for layer in group.layers
            ],
        }
        for group in groups
    ]
