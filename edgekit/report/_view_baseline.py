"""The view of a comparison with a baseline: what changed, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report import _text as text
from edgekit.report._baseline import (
    compared_metrics,
    compared_notes,
    metric_name,
    refused_words,
)
from edgekit.report._history import compared_values
from edgekit.report._view_verdict import clock_tag

__all__ = ["baseline_view"]

_CSS = {"better": "yes", "worse": "no"}


def baseline_view(baseline: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns a row a metric, what differs beside, and notes, or why it was refused.

    None where nobody asked for a comparison.

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
        "threshold": text.percent(baseline.get("threshold"), 0),
        **_runs(baseline),
        "differences": [text.clean(_told(one)) for one in baseline.get("differences") or ()],
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
    known = {key: any(row[key] != text.ABSENT for row in rows) for key in ("when", "commit")}
    return {"runs": rows, "known": known}


def _run(side: str, run: Mapping[str, Any]) -> dict[str, str]:
    import datetime

    when = run.get("at")
    dirty = ", with changes" if run.get("dirty") else ""
    return {
        "side": "baseline" if side == "a" else "this run",
        "label": text.clean(run.get("label") or ""),
        "when": datetime.datetime.fromtimestamp(when, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        if isinstance(when, int | float)
        else text.ABSENT,
        "commit": text.clean(f"{str(run['commit'])[:12]}{dirty}")
        if run.get("commit")
        else text.ABSENT,
        "board": text.clean(run.get("board") or text.ABSENT),
        "verdict": text.clean(run.get("verdict") or text.ABSENT),
        "samples": text.count(run.get("samples")),
    }


def _told(one: Any) -> str:
    if not isinstance(one, Mapping):
        return str(one)
    name = one.get("what") or one.get("name") or one.get("key") or ""
    return f"{name}: {one.get('a')} became {one.get('b')}"
