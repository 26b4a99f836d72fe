"""The first part of the page: the verdict, its reasons with their remedies, the gates, and the
comparison with a baseline.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from edgekit.errors import DataError
from edgekit.reports import text
from edgekit.reports.comparison import (
    compared_metrics,
    compared_notes,
    compared_values,
    metric_name,
    refused_words,
    regression_words,
    report_with_baseline,
)
from edgekit.reports.html.view import View
from edgekit.reports.schema import (
    Gate,
    MoreComparison,
    RefusedComparison,
    Report,
    ReportedVerdict,
    read_report,
)
from edgekit.results.comparison import ComparedRun, Comparison
from edgekit.text import ABSENT, percent, sentence
from edgekit_device.runtime.deviation import decibels

if TYPE_CHECKING:
    from pathlib import Path

CLOCKS = {
    "cpu-measured": "measured on a CPU with the reference backend: not a board time",
    "board-measured": "measured on the board",
    "predicted": "all times are predictions of the cost model; no time was measured",
}
_PASSED = {True: ("passed", "yes"), False: ("failed", "no"), None: ("not judged", "soft")}
_NAMES = {
    "bench": "Measurement",
    "accuracy": "Accuracy",
    "refit": "Refit on the board",
    "memory": "DLA memory",
    "steps": "Steps",
    "baseline": "Against the baseline",
}
_CSS = {"better": "yes", "worse": "no"}


def clock_tag(clock: str) -> dict[str, str]:
    """Returns the word and the style of a clock's tag."""
    return {"text": text.clean(clock), "css": "predicted" if clock == "predicted" else "measured"}


def verdict_view(verdict: ReportedVerdict) -> View:
    """Returns status, reasons and gates as words."""
    on_board = verdict.clock == "board-measured"
    return {
        "status": verdict.status,
        "css": {"VALID": "valid", "INVALID": "invalid"}.get(verdict.status, "none"),
        # a CPU's time is not a board's time: its verdict is a footnote
        "leads": on_board and verdict.status in ("VALID", "INVALID"),
        "command": text.clean(verdict.command),
        "clock": CLOCKS[verdict.clock],
        "reasons": [
            {
                "code": text.clean(reason.code),
                "message": text.clean(reason.message),
                "remedy": text.clean(reason.remedy),
            }
            for reason in verdict.reasons
        ],
        "unchecked": [text.clean(fact) for fact in verdict.unchecked],
        "gates": [_gate(gate) for gate in verdict.gates],
    }


def _gate(gate: Gate) -> View:
    answer, css = _PASSED[gate.passed]
    return {
        "name": _NAMES.get(gate.gate, text.clean(gate.gate)),
        "answer": answer,
        "css": css,
        "link": "baseline" if gate.gate == "baseline" else "",
        "reason": text.clean(_gate_text(gate)),
    }


def _metric(gate: Gate) -> str:
    """Returns an accuracy gate's value; a passed gate without an SNR found no error."""
    if gate.metric == "snr_db":
        return decibels(gate.found, gate.found is None and gate.passed is True, "{:.5g}")
    return "not known" if gate.found is None else f"{gate.found:.5g}"


def _gate_text(gate: Gate) -> str:
    match gate.gate:
        case "bench":
            return f"INVALID: {gate.message}"
        case "accuracy":
            least = ABSENT if gate.limit is None else f"{gate.limit:g}"
            on = f" ({gate.on})" if gate.on else ""
            return f"{gate.metric or 'cosine'} {_metric(gate)}, limit {least}{on}"
        case "memory":
            pool = text.POOLS.get(gate.pool, gate.pool)
            return f"fullest pool: {text.size(gate.found)} of {text.size(gate.limit)} {pool}"
        case "refit":
            return {True: "outputs equal bit for bit", False: "outputs differ", None: ""}[
                gate.passed
            ]
        case "steps":
            return "all done" if gate.passed else f"{gate.found} failed"
        case "baseline":
            words = {
                True: "no regression above the threshold",
                False: gate.message or "a regression",
                None: "",
            }
            return words[gate.passed]
    return ""


def baseline_view(baseline: MoreComparison | RefusedComparison | None) -> View | None:
    """Returns a row per metric, other differences and notes, or why it was refused.

    None if no comparison was requested.
    """
    if baseline is None:
        return None
    if isinstance(baseline, RefusedComparison):
        refused = refused_words(baseline)
        return {"refused": text.clean(f"{refused[0].upper()}{refused[1:]}.")}
    clock = baseline.b.runs[0].clock
    return {
        "refused": "",
        "clock": clock_tag(clock) if clock else None,
        "rows": [_row(metric) for metric in compared_metrics(baseline)],
        "a": text.clean(baseline.a.label),
        "threshold": percent(baseline.threshold, 0),
        **_runs(baseline),
        "differences": [
            text.clean(f"{difference.what}: {difference.a} became {difference.b}")
            for difference in baseline.differences
        ],
        "forced": [text.clean(reason) for reason in baseline.forced],
        "notes": [sentence(text.clean(note)) for note in compared_notes(baseline)],
    }


def _row(metric: Comparison) -> View:
    low, high = metric.ratio.low, metric.ratio.high
    a, b = map(text.clean, compared_values(metric))
    return {
        "metric": text.clean(metric_name(metric.metric)),
        "a": a,
        "b": b,
        "change": text.change(100 * (metric.ratio.estimate - 1)),
        "interval": "not known"
        if low is None or high is None
        else f"{text.change(100 * (low - 1))} to {text.change(100 * (high - 1))}",
        "verdict": text.clean(metric.verdict) + ", above the threshold" * metric.regression,
        "css": _CSS.get(metric.direction, "soft"),
    }


def _runs(baseline: Comparison) -> View:
    """Returns the runs of both sides; a bench.json has neither time nor commit."""
    sides = (("baseline", baseline.a), ("this run", baseline.b))
    runs = [run for _, side in sides for run in side.runs]
    known = {
        "when": any(run.at is not None for run in runs),
        "commit": any(run.commit for run in runs),
    }
    return {"runs": [_run(name, run) for name, side in sides for run in side.runs], "known": known}


def _run(side: str, run: ComparedRun) -> View:
    dirty = ", with changes" if run.dirty else ""
    return {
        "side": side,
        "label": text.clean(run.label),
        "when": ABSENT
        if run.at is None
        else datetime.datetime.fromtimestamp(run.at, datetime.timezone.utc).strftime(
            "%Y-%m-%d %H:%M UTC"
        ),
        "commit": text.clean(f"{run.commit[:12]}{dirty}") if run.commit else ABSENT,
        "board": text.clean(run.board or ABSENT),
        "verdict": text.clean(run.verdict or ABSENT),
        "samples": text.count(run.samples),
    }


def with_earlier_comparison(report: Report, path: Path) -> Report:
    """Returns a report with the earlier comparison of the same measurement.

    Args:
        report: A report without comparison.
        path: The ``report.json`` that it replaces; an absent or damaged file has no comparison.
    """
    try:
        before = read_report(path)
    except DataError:
        return report
    compared = before.baseline
    # `edgekit report` writes the page again: the comparison holds only for the same measurement
    if not isinstance(compared, MoreComparison) or before.bench != report.bench:
        return report
    return report_with_baseline(report, compared, not regression_words(compared))
