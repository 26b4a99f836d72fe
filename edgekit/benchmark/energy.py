"""The board's monitor document, and from it the energy of an inference by power rail and over an
idle baseline: mean power while it is measured * seconds / inferences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

from edgekit.benchmark.measurement import BOARD_MEASURED
from edgekit.targets.board import PowerRails
from edgekit.targets.jetpack import jetpack_of_l4t
from edgekit.text import counted

SCHEMA = "edgekit.monitor/1"
BUSY = 1.2
LEAST = 5
"""Samples of a baseline at least (edgekit's own choice): one line of a sensor is an accident."""
_FEWEST = 3
_Reading = tuple[float, dict[str, float]]


def samples_of(monitor: Mapping[str, Any], name: str = "samples") -> list[Mapping[str, Any]]:
    """Returns the samples called "samples" or "idle" that have a time, in its order."""
    value = monitor.get(name)
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    found = [
        one for one in listed if isinstance(one, Mapping) and number_of(one, "t_s") is not None
    ]
    return sorted(found, key=lambda one: float(one["t_s"]))


def rails_of(sample: Mapping[str, Any]) -> dict[str, float]:
    """Returns the power of each rail in milliwatts, as it was when the sample was taken."""
    group = sample.get("rails_mw")
    return dict(_readings(group)) if isinstance(group, Mapping) else {}


def number_of(group: Mapping[str, Any], key: str) -> float | None:
    """Returns a finite number, or None."""
    value = group.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if isfinite(value) else None


def with_release_warning(monitor: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the document, whose "warnings" say once that its Jetson Linux is not known."""
    warning, said = unknown_release(monitor), monitor.get("warnings")
    warnings = list(said) if isinstance(said, Sequence) and not isinstance(said, str) else []
    more = [warning] if warning and warning not in warnings else []
    return {**monitor, "warnings": [*warnings, *more]}


def unknown_release(monitor: Mapping[str, Any]) -> str:
    """Returns a warning where the board's Jetson Linux is none that ``targets/`` knows, or ""."""
    facts = monitor.get("facts")
    l4t = facts.get("l4t") if isinstance(facts, Mapping) else None
    if not isinstance(l4t, str) or not l4t or jetpack_of_l4t(l4t):
        return ""
    return (
        f"Jetson Linux {l4t[:40]!r} is none that edgekit knows (targets/_jetpack.yaml): "
        "what its monitors say is read as the nearest release's"
    )


def _readings(group: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, values in group.items():
        now = number_of(values, "now") if isinstance(values, Mapping) else None
        if isinstance(name, str) and now is not None:
            yield name, now


# Energy of an inference by power rail, and over an idle baseline.
#
#     energy of an inference = mean power while it is measured * seconds / inferences
#
# The mean is over time (trapezoids between samples). A rail's sensor averages, so it lags
# the load: samples sooner than ``settle_s`` after the load began are left out where others remain.
# The baseline is what the board drew before the warm-up ("idle", ``LEAST`` samples of it), or,
# where too little was sampled then, the least that it drew at all ("floor"), if the load draws
# ``BUSY`` times as much. That factor and the median are what the author of the log in tests/data
# summarised it by (the median of the total while it is above 1.2 times its lowest), so that both
# can be compared.
#
# No rail of an Orin is the DLA's alone: what a DLA uses is what a rail draws over the baseline.


def energy(
    monitor: Mapping[str, Any],
    rails: PowerRails | None,
    inferences: int,
    seconds: float,
    *,
    begin: float = 0.0,
    clock: str = BOARD_MEASURED,
) -> dict[str, Any] | None:
    """Returns what an inference costs, in microjoules, by rail and in all.

    Args:
        monitor: An ``edgekit.monitor/1`` document.
        rails: The board's, from its target; without them there is no total.
        inferences: How many were done in those seconds.
        seconds: How long the measurement took, at least.
        begin: When it began, ``t_s`` of the samples.
        clock: Of the measurement. The rails are the board's always, but what the reference backend
            draws for an inference is no board's energy: the answer has the measurement's clock.

    Returns:
        ``{"by_rail": {name: {"mean_mw", "median_mw", "idle_mw", "uj_per_inference",
        "over_idle_uj", "devices", "in_total"}}, "total": the same with "rails" or None,
        "baseline": "idle", "floor" or None, "window_s", "samples", "idle_samples", "clock",
        "notes"}``; None if no rail was sampled meanwhile.
    """
    settle = rails.settle_s if rails else 0.0
    notes: list[str] = []
    within = _within(samples_of(monitor), begin, begin + seconds)
    busy_from = number_of(monitor, "busy_from_s")
    settled = within
    if busy_from is not None:
        settled = [one for one in within if one[0] >= busy_from + settle]
        if within and within[-1][0] < busy_from + settle:
            notes.append(f"the load had not lasted {settle:g} s: the rails still lag behind it")
        elif 0 < len(settled) < _FEWEST < len(within):
            notes.append(f"few samples are {settle:g} s after the load began: all are taken")
        if len(settled) < _FEWEST:
            settled = within
    if not settled or inferences <= 0 or seconds <= 0:
        return None
    if len(settled) < _FEWEST:
        notes.append(f"only {counted(len(settled), 'sample')}: take a longer --duration")
    names = list(dict.fromkeys(name for _, values in settled for name in values))
    total = rails.total if rails else ()
    missing = [name for name in total if name not in names]
    if missing:
        notes.append(f"no total: the rail {', '.join(missing)} was not sampled")
    idle, baseline = _baseline(monitor, settled, settle, tuple(total) if not missing else (), notes)
    each = seconds / inferences * 1e3  # mW to microjoules of one inference
    known = {name: _one(settled, idle, (name,), each) for name in names}
    whole = _one(settled, idle, total, each) if total and not missing else None
    if whole is not None and (at_rest := whole["idle_mw"]) is not None:
        mean = whole["mean_mw"]
        if mean < at_rest:
            notes.append(
                f"nothing over {baseline}: the board drew {at_rest / 1000:.2f} W before and "
                f"{mean / 1000:.2f} W while it was measured; something else ran then"
            )
    for name, row in known.items():
        row["devices"] = (
            [key for key, rail in rails.devices.items() if rail == name] if rails else []
        )
        row["in_total"] = name in total
    return {
        "by_rail": known,
        "total": None if whole is None else {**whole, "rails": list(total)},
        "baseline": baseline,
        "window_s": [settled[0][0], settled[-1][0]],
        "samples": len(settled),
        "idle_samples": len(idle),
        "clock": clock,
        "notes": notes,
    }


def _within(samples: Sequence[Mapping[str, Any]], begin: float, end: float) -> list[_Reading]:
    readings = [(float(one["t_s"]), rails_of(one)) for one in samples]
    return [(at, values) for at, values in readings if begin <= at <= end and values]


def _baseline(
    monitor: Mapping[str, Any], busy: list[_Reading], settle: float, total: tuple[str, ...],
    notes: list[str],
) -> tuple[list[_Reading], str | None]:  # fmt: skip
    """The readings of the board at rest, and how they were found."""
    idle = [one for one in _all(monitor, "idle") if one[1]]
    settled = [one for one in idle if one[0] >= idle[0][0] + settle]
    if len(idle) >= LEAST:
        return (settled if len(settled) >= LEAST else idle), "idle"
    if idle:
        few = f"the board was sampled idle {counted(len(idle), 'time')} only, no baseline: "
        notes.append(few + "watch it for longer (--idle 2) or more often (--monitor 100)")
    every = [one for one in _all(monitor, "samples") if one[1]]
    if len(every) < LEAST:
        return [], None
    # without a total all that is known is added: only the order of samples matters here
    lowest = min(every, key=lambda one: _sum(one[1], total or tuple(one[1])))
    least = _sum(lowest[1], total or tuple(lowest[1]))
    mean = _mean([(at, _sum(values, total or tuple(values))) for at, values in busy])
    return ([lowest], "floor") if mean > BUSY * least else ([], None)


def _all(monitor: Mapping[str, Any], name: str) -> list[_Reading]:
    return [(float(one["t_s"]), rails_of(one)) for one in samples_of(monitor, name)]


def _one(
    busy: list[_Reading], idle: list[_Reading], names: Sequence[str], each: float
) -> dict[str, Any]:
    values = _series(busy, names)
    rest = _series(idle, names)
    mean = _mean(values)
    at_rest = _mean(rest) if rest else None
    return {
        "mean_mw": mean,
        "median_mw": _median([value for _, value in values]),
        "idle_mw": at_rest,
        "uj_per_inference": mean * each,
        # less than at rest is no energy of this load: something else ran then
        "over_idle_uj": None if at_rest is None or mean < at_rest else (mean - at_rest) * each,
    }


def _series(readings: list[_Reading], names: Sequence[str]) -> list[tuple[float, float]]:
    """The sum of some rails in every sample that has them all."""
    return [
        (at, _sum(values, names))
        for at, values in readings
        if all(name in values for name in names)
    ]


def _sum(values: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(values.get(name, 0.0) for name in names)


def _mean(values: list[tuple[float, float]]) -> float:
    """The mean over time; each sample holds from and to halfway between its neighbours."""
    if len(values) < 2 or values[-1][0] <= values[0][0]:
        return sum(value for _, value in values) / len(values) if values else 0.0
    area = sum(
        (after[0] - before[0]) * (before[1] + after[1]) / 2 for before, after in pairwise(values)
    )
    return area / (values[-1][0] - values[0][0])


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
