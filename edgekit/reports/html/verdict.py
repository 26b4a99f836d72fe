"""What stands first on the page: the verdict, its reasons with their remedies, the gates, and
the comparison with a baseline.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.files import regular
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
from edgekit.text import ABSENT, percent
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
    "accuracy": "Accuracy", "refit": "Refit on the board", "memory": "DLA memory",
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
        "unchecked": [text.clean(_unchecked_words(one)) for one in verdict["unchecked"]],
        "gates": [_gate(gate) for gate in verdict["gates"]],
    }


def _unchecked_words(one: Any) -> str:
    """Returns the words of something that was not checked: a sentence, or an object with one."""
    return str(one.get("message") or one.get("code") or one) if isinstance(one, Mapping) else one


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
        case "accuracy":
            value = _metric(gate)
            least = ABSENT if limit is None else f"{limit:g}"
            on = f" ({gate['on']})" if gate.get("on") else ""
            return f"{gate.get('metric', 'cosine')} {value}, at least {least} wanted{on}"
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
                True: "no regression past the threshold",
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
    if not baseline or "ratio" not in baseline:
        return None
    every = compared_metrics(baseline)
    runs = (baseline.get("b") or {}).get("runs") or ()
    clock = runs[0].get("clock") if runs else None
    return {
        "refused": "",
        "clock": clock_tag(clock) if clock else None,
        "rows": [_row(one) for one in every],
        "a": text.clean((baseline.get("a") or {}).get("label") or "baseline"),
        "threshold": percent(baseline.get("threshold"), 0),
        **_runs(baseline),
        "differences": [
            text.clean(_difference_words(one)) for one in baseline.get("differences") or ()
        ],
        "forced": [text.clean(one) for one in baseline.get("forced") or ()],
        "notes": [text.clean(note) for note in compared_notes(baseline)],
    }


def _row(one: Mapping[str, Any]) -> dict[str, str]:
    ratio = one["ratio"]
    low, high = ratio.get("low"), ratio.get("high")
    known = low is not None and high is not None
    verdict = str(one.get("verdict") or "")
    if one.get("regression"):
        verdict += ", past the threshold"
    return {
        "metric": text.clean(metric_name(one["metric"])),
        **dict(zip("ab", map(text.clean, compared_values(one)), strict=True)),
        "change": text.change(100 * (ratio["estimate"] - 1)) if ratio.get("estimate") else "",
        "interval": f"{text.change(100 * (low - 1))} to {text.change(100 * (high - 1))}"
        if known
        else "not known",
        "verdict": text.clean(verdict),
        "css": _CSS.get(str(one.get("direction")), "soft"),
    }  # fmt: skip


def _runs(baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the runs of both sides; a bench.json knows neither its time nor its commit."""
    rows = [_run(side, run) for side in ("a", "b") for run in (baseline[side]["runs"] or ())]
    known = {key: any(row[key] != ABSENT for row in rows) for key in ("when", "commit")}
    return {"runs": rows, "known": known}


def _run(side: str, run: Mapping[str, Any]) -> dict[str, str]:
    when = run.get("at")
    dirty = ", with changes" if run.get("dirty") else ""
    return {
        "side": "baseline" if side == "a" else "this run",
        "label": text.clean(run.get("label") or ""),
        "when": datetime.datetime.fromtimestamp(when, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        if isinstance(when, int | float)
        else ABSENT,
        "commit": text.clean(f"{str(run['commit'])[:12]}{dirty}") if run.get("commit") else ABSENT,
        "board": text.clean(run.get("board") or ABSENT),
        "verdict": text.clean(run.get("verdict") or ABSENT),
        "samples": text.count(run.get("samples")),
    }


def _difference_words(one: Any) -> str:
    if not isinstance(one, Mapping):
        return str(one)
    name = one.get("what") or one.get("name") or one.get("key") or ""
    return f"{name}: {one.get('a')} became {one.get('b')}"


def with_earlier_comparison(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Returns a report with the comparison that was made of the same measurement before.

    Args:
        document: An ``edgekit.report/1`` that was not compared.
        path: The ``report.json`` that it replaces; one that is absent or damaged has none.
    """
    try:
        before = json.loads(regular(path).read_text(encoding="utf-8"))
        compared = before["baseline"]
        # as the file has it: tuples are lists there
        same = before["bench"] == json.loads(json.dumps(document["bench"]))
        if not same or not compared or refused_words(compared):
            return dict(document)
        baseline_view(compared)  # a damaged one cannot be shown
        return document_with_baseline(document, compared, not regression_words(compared))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return dict(document)
