"""The view of a measurement: latencies, phases, streams, settings and what it cost to start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgekit.report import _charts as charts
from edgekit.report import _text as text
from edgekit.report._bench_facts import (
    cost_facts,
    few_words,
    flat_facts,
    latency_shown,
    serving_words,
)
from edgekit.report._view_verdict import clock_tag

__all__ = ["bench_view"]

PHASES = {
    "enqueue": "enqueue", "h2d": "to the device (H2D)", "compute": "compute",
    "d2h": "from the device (D2H)", "host": "the host's own work",
}  # fmt: skip
_COLUMNS = ("mean", "median", "p99", "max")


def bench_view(bench: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the measurement with its histogram; None when nothing was measured."""
    from markupsafe import Markup

    if not bench or not bench["latency_ms"]:
        return None
    drawing = bench["histogram"]
    shown = latency_shown(bench)
    columns = [key for key in _COLUMNS if key in shown]
    return {
        "on_cpu": bench["clock"] == "cpu-measured",
        "clock": clock_tag(bench["clock"]),
        "note": text.clean(bench["note"]),
        "release": serving_words(bench),
        "latency": [
            {"name": name, "value": text.measured(bench["latency_ms"][key])}
            for key, name in shown.items()
        ],
        "few": few_words(bench),
        "facts": [{"name": n, "value": text.clean(v)} for n, v in _facts(bench) if v],
        "phase_head": [shown[key] if key == "p99" else key for key in columns],
        "phases": _phases(bench.get("phases_ms") or {}, columns),
        "flags": [
            {"name": text.clean(name), "value": text.clean(value)}
            for name, value in flat_facts({**(bench.get("settings") or {}), **_runtime(bench)})
        ],
        "histogram": Markup(charts.histogram(drawing["counts"], "Distribution of the latencies"))
        if drawing
        else "",
        "low": text.measured(drawing["low_ms"]) if drawing else "",
        "high": text.measured(drawing["high_ms"]) if drawing else "",
    }


def _qps(value: float | None) -> str:
    return f"{text.significant(value)} inferences/s"


def _facts(bench: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield "Throughput", _qps(bench["throughput_qps"])
    if bench.get("pipelined"):
        yield "With frames in flight", _qps(bench["pipelined"]["throughput_qps"])
    yield "Iterations", text.count(bench.get("iterations"))
    yield "Coefficient of variation", text.percent(bench.get("coefficient_of_variation"), 2)
    streams = bench.get("streams") or ()
    if len(streams) > 1:
        each = ", ".join(text.significant(one.get("throughput_qps")) for one in streams)
        yield "Streams", f"{len(streams)}: {each} inferences/s"
    yield from cost_facts(bench)
    trtexec = bench.get("trtexec") or {}
    median = (trtexec.get("latency_ms") or {}).get("median")
    if median is not None:
        yield "trtexec, median", text.microseconds(1000 * median)


def _phases(phases: Mapping[str, Any], columns: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "cells": [text.measured(phases[key].get(one)) for one in columns]}
        for key, name in PHASES.items()
        if phases.get(key)
    ]


def _runtime(bench: Mapping[str, Any]) -> dict[str, Any]:
    runtime = bench.get("runtime") or {}
    flags = runtime.get("flags")
    kept = {k: v for k, v in runtime.items() if k not in ("flags", "notes")}
    return kept | (dict(flags) if isinstance(flags, Mapping) else {})
