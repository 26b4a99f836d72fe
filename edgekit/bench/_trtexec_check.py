"""Compares a measurement with trtexec's of the same plans (``--with-trtexec``).

Like is compared with like: where our segments' times are CUDA events, their median stands beside
trtexec's "GPU Compute Time", otherwise beside its "Latency", which has the copies in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.bench._stats import latency_summary
from edgekit.bench._trtexec_times import parse_times
from edgekit.errors import DataError

__all__ = ["compared"]


def compared(told: object, measurement: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns "trtexec" of the bench document.

    Args:
        told: The board's "trtexec", or a document's, which is compared already; None where none was
            asked for.
        measurement: The rest of what the board measured, with "segments" and "segments_clock".

    Returns:
        {"program", "why", "engines": [{"lane", "index", "device", "command", "compared" ("compute"
        or "latency"), "ours_ms", "trtexec_ms" (medians), "difference" (share of trtexec's, or
        None), "throughput_qps", "times_ms" (a summary each), "warnings", "why"}]}
    """
    if not isinstance(told, Mapping):
        return None
    events = measurement.get("segments_clock") == "gpu"
    rows = [one for one in told.get("engines") or () if isinstance(one, Mapping)]
    return {
        "program": told.get("program"),
        "why": told.get("why"),
        "engines": [
            dict(one) if "compared" in one else _engine(one, _ours(one, measurement), events)
            for one in rows
        ],
    }


def _engine(told: Mapping[str, Any], ours: float | None, events: bool) -> dict[str, Any]:
    from edgekit.buildlog import parse_summary

    what = "compute" if events else "latency"
    said = parse_summary(str(told.get("console") or "").splitlines())
    times = {key: dict(value) for key, value in said.times_ms.items()}
    why = told.get("why")
    if told.get("times"):
        try:
            times |= _exact(str(told["times"]))
        except DataError as error:
            why = why or error.message
    theirs = (times.get(what) or {}).get("median")
    if why and said.errors:
        why = f"{why}: {said.errors[-1]}"
    if theirs is None and why is None:
        why = "it printed no times"
    known = ours is not None and theirs is not None and theirs > 0
    return {
        **{key: told.get(key) for key in ("lane", "index", "device", "command")},
        "compared": what,
        "ours_ms": ours,
        "trtexec_ms": theirs,
        "difference": (ours - theirs) / theirs if known else None,  # type: ignore[operator]
        "throughput_qps": said.throughput_qps,
        "times_ms": times,
        "warnings": list(said.warnings),
        "why": why,
    }


def _exact(text: str) -> dict[str, dict[str, float]]:
    """Summaries of the single times, which the console has rounded and without p99.9."""
    rows = parse_times(text)
    columns: dict[str, Sequence[float]] = {
        "latency": [row.latency_ms for row in rows],
        "enqueue": [row.enqueue_ms for row in rows],
        "h2d": [row.h2d_ms for row in rows],
        "compute": [row.compute_ms for row in rows],
        "d2h": [row.d2h_ms for row in rows],
    }
    return {name: latency_summary(values) for name, values in columns.items()}


def _ours(told: Mapping[str, Any], measurement: Mapping[str, Any]) -> float | None:
    key = (told.get("lane"), told.get("index"))
    for one in measurement.get("segments") or ():
        if (one.get("lane"), one.get("index")) == key:
            found = (one.get("latency_ms") or {}).get("median")
            return float(found) if isinstance(found, int | float) else None
    return None
