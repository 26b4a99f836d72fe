"""What stands first on the page: the verdict, its reasons with their remedies, the gates, and
the comparison with a baseline.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.documents import load_json
from edgekit.reports import text
from edgekit.reports.comparison import (
    compared_metrics,
    compared_notes,
    compared_values,
    document_with_baseline,
    metric_name,
    refused_words,
    regression_words,
)
from edgekit.reports.schema import LARGEST
from edgekit.results.comparison import Comparison
from edgekit.text import ABSENT, percent, sentence
from edgekit_device.arrays.deviation import decibels

if TYPE_CHECKING:
    from pathlib import Path


CLOCKS = {
    "cpu-measured": "measured on a CPU with the reference backend: not a board time",
    "board-measured": "measured on the board",
    "predicted": "nothing was measured; all times are predictions of the cost model",
}
_PASSED = {True: ("passed", "yes"), False: ("failed", "no"), None: ("not judged", "soft")}
_NAMES = {
    "bench": "Measurement", "accuracy": "Accuracy",
    "refit": "Refit on the board", "memory": "DLA memory",
    "steps": "Steps", "baseline": "Against the baseline",
}  # fmt: skip
_CSS = {"better": "yes", "worse": "no"}


def clock_tag(clock: str) -> dict[str, str]:
    """Returns the word and the style of a clock's tag."""
    return {"text": text.clean(clock), "css": "predicted" if clock == "predicted" else "measured"}


def verdict_view(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns status, reasons and gates as words."""
    status = verdict["status"]
    on_board = verdict["clock"] == "board-measured"
    return {
        "status": status,
        "css": {"VALID": "valid", "INVALID": "invalid"}.get(status, "none"),
        # a CPU's time says nothing about a board: its verdict is a footnote
        "leads": on_board and status in ("VALID", "INVALID"),
        "command": text.clean(verdict.get("command") or ""),
        "clock": CLOCKS.get(verdict["clock"], text.clean(verdict["clock"])),
        "reasons": [
            {
                "code": text.clean(reason.get("code", "")),
                "message": text.clean(reason["message"]),
                "remedy": text.clean(reason.get("remedy", "")),
            }
            for reason in verdict["reasons"]
        ],
        "unchecked": [text.clean(one) for one in verdict["unchecked"]],
        "gates": [_gate(gate) for gate in verdict["gates"]],
    }


def _gate(gate: Mapping[str, Any]) -> dict[str, str]:
    answer, css = _PASSED[gate.get("passed")]
    return {
        "name": _NAMES.get(gate["gate"], text.clean(gate["gate"])),
        "answer": answer,
        "css": css,
        "link": "baseline" if gate["gate"] == "baseline" else "",
        "reason": text.clean(_words(gate)),
    }


def _metric(gate: Mapping[str, Any]) -> str:
    """Returns what an accuracy gate found; a passed one without an SNR found no error."""
    found, passed = gate.get("found"), gate.get("passed")
    if gate.get("metric") == "snr_db":
        return decibels(found, found is None and passed is True, "{:.5g}")
    return "not known" if found is None else f"{found:.5g}"


def _words(gate: Mapping[str, Any]) -> str:
    found, limit = gate.get("found"), gate.get("limit")
    match gate["gate"]:
        case "bench":
            return f"INVALID: {gate.get('told')}"
        case "accuracy":
            value = _metric(gate)
            least = ABSENT if limit is None else f"{limit:g}"
            on = f" ({gate['on']})" if gate.get("on") else ""
            return f"{gate.get('metric', 'cosine')} {value}, limit {least}{on}"
        case "memory":
            pool = text.POOLS.get(str(gate.get("pool")), str(gate.get("pool")))
            return f"fullest pool: {text.size(found)} of {text.size(limit)} {pool}"
        case "refit":
            words = {True: "outputs equal bit for bit", False: "outputs differ"}
            return words.get(gate.get("passed"), "")  # type: ignore[arg-type]
        case "steps":
            return "all done" if gate.get("passed") else f"{found} failed"
        case "baseline":
            words = {
                True: "no regression above the threshold",
                False: str(gate.get("told") or "a regression"),
            }
            return words.get(gate.get("passed"), "")  # type: ignore[arg-type]
    return ""


def baseline_view(baseline: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns a row a metric, what else differs, and notes, or why it was refused.

    None if no comparison was requested.

    Args:
        baseline: The ``edgekit.compare/1`` of a metric with further ones in "more".
    """
    if baseline and (refused := refused_words(baseline)):
        return {"refused": text.clean(f"{refused[0].upper()}{refused[1:]}.")}
    if not baseline:
        return None
    clock = baseline["b"]["runs"][0]["clock"]
    return {
        "refused": "",
        "clock": clock_tag(clock) if clock else None,
        "rows": [_row(one) for one in compared_metrics(baseline)],
        "a": text.clean(baseline["a"]["label"]),
        "threshold": percent(baseline["threshold"], 0),
        **_runs(baseline),
        "differences": [
            text.clean(f"{one['what']}: {one['a']} became {one['b']}")
            for one in baseline["differences"]
        ],
        "forced": [text.clean(one) for one in baseline["forced"]],
        "notes": [sentence(text.clean(note)) for note in compared_notes(baseline)],
    }


def _row(one: Mapping[str, Any]) -> dict[str, str]:
    ratio = one["ratio"]
    low, high = ratio["low"], ratio["high"]
    return {
        "metric": text.clean(metric_name(one["metric"])),
        **dict(zip("ab", map(text.clean, compared_values(one)), strict=True)),
        "change": text.change(100 * (ratio["estimate"] - 1)),
        "interval": "not known"
        if low is None or high is None
        else f"{text.change(100 * (low - 1))} to {text.change(100 * (high - 1))}",
        "verdict": text.clean(one["verdict"]) + ", above the threshold" * one["regression"],
        "css": _CSS.get(one["direction"], "soft"),
    }


def _runs(baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the runs of both sides; a bench.json knows neither its time nor its commit."""
    rows = [_run(side, run) for side in ("a", "b") for run in baseline[side]["runs"]]
    known = {key: any(row[key] != ABSENT for row in rows) for key in ("when", "commit")}
    return {"runs": rows, "known": known}


def _run(side: str, run: Mapping[str, Any]) -> dict[str, str]:
    when, commit = run["at"], run["commit"]
    dirty = ", with changes" if run["dirty"] else ""
    return {
        "side": "baseline" if side == "a" else "this run",
        "label": text.clean(run["label"]),
        "when": ABSENT
        if when is None
        else datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime(
            "%Y-%m-%d %H:%M UTC"
        ),
        "commit": text.clean(f"{commit[:12]}{dirty}") if commit else ABSENT,
        "board": text.clean(run["board"] or ABSENT),
        "verdict": text.clean(run["verdict"] or ABSENT),
        "samples": text.count(run["samples"]),
    }


def with_earlier_comparison(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Returns a report with the comparison that was made of the same measurement before.

    Args:
        document: An ``edgekit.report/1`` that was not compared.
        path: The ``report.json`` that it replaces; one that is absent or damaged has none.
    """
    try:
        before = load_json(path, LARGEST)
        compared = before["baseline"]
        same = before["bench"] == document["bench"]
        if not same or not compared or refused_words(compared):
            return dict(document)
        Comparison.model_validate(compared)
        return document_with_baseline(document, compared, not regression_words(compared))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return dict(document)
