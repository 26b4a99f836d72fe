"""The energy of an inference by power rail and over an idle baseline: mean power during the
measurement * seconds / inferences.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field

from edgekit.benchmark.measurement import BOARD_MEASURED
from edgekit.documents import Count, Document, Number
from edgekit.targets.board import PowerRails
from edgekit.text import counted
from edgekit_device.benchmark.statistics import median
from edgekit_device.board.samples import Monitor, Sample
from edgekit_device.protocol.fields import Clock

BUSY = 1.2
"""Least ratio of the power under load to the lowest power, which then counts as the baseline. The
author's summary of the log in tests/data uses the same factor, so that both can be compared.
"""
LEAST = 5
"""Least samples of a baseline (edgekit's own choice): a single sample may be accidental."""
_FEWEST = 3
_Reading = tuple[float, dict[str, float]]

# No rail of an Orin feeds only the DLA: a DLA's power is a rail's power over the baseline.


class Power(Document):
    """Power in milliwatts and energy of an inference in microjoules.

    Attributes:
        uj_per_inference: Microjoules of an inference.
    """

    mean_mw: Number
    median_mw: Number
    idle_mw: Number | None = Field(None, description="at rest; null without a baseline")
    uj_per_inference: Number
    over_idle_uj: Number | None = Field(
        None, description="over the baseline; null where the board drew less than at rest"
    )


class RailEnergy(Power):
    """A rail: the parts that it feeds, and True if it counts in the total."""

    devices: list[str]
    in_total: bool


class TotalEnergy(Power):
    """The sum of the rails that make up the board's power."""

    rails: list[str]


class Energy(Document):
    """The energy of an inference. The rails are always a board's, but the reference backend's power
    is not a board's energy: ``clock`` is the measurement's.

    Attributes:
        samples: Number of used rail samples.
        idle_samples: Number of samples of the baseline.
    """

    by_rail: dict[str, RailEnergy]
    total: TotalEnergy | None = None
    baseline: Literal["idle", "floor"] | None = None
    window_s: list[Number] = Field(description="from the first used sample to the last")
    samples: Count
    idle_samples: Count
    clock: Clock
    notes: list[str] = Field([])


def energy(
    monitor: Monitor,
    rails: PowerRails | None,
    inferences: int,
    seconds: float,
    *,
    begin: float = 0.0,
    clock: Clock = BOARD_MEASURED,
) -> Energy | None:
    """Returns an inference's energy by rail and in total; None if no rail was sampled meanwhile.

    Args:
        monitor: The samples of the board or of a log.
        rails: The board's rails, from its target; without them there is no total.
        inferences: Number of inferences in those seconds.
        seconds: Duration of the measurement, at least.
        begin: Its start, as ``t_s`` of the samples.
        clock: The measurement's clock.
    """
    settle = rails.settle_s if rails else 0.0
    notes: list[str] = []
    sampled = _readings(monitor.samples)
    within = [reading for reading in sampled if begin <= reading[0] <= begin + seconds]
    settled = within
    if monitor.busy_from_s is not None:
        # a rail's sensor averages, so it lags the load
        settled = [reading for reading in within if reading[0] >= monitor.busy_from_s + settle]
        if within and within[-1][0] < monitor.busy_from_s + settle:
            notes.append(f"the load lasted less than {settle:g} s, so the rails had not settled")
        elif 0 < len(settled) < _FEWEST < len(within):
            notes.append(
                f"few samples are later than {settle:g} s after the load started, so all "
                "samples are used"
            )
        if len(settled) < _FEWEST:
            settled = within
    if not settled or inferences <= 0 or seconds <= 0:
        return None
    if len(settled) < _FEWEST:
        notes.append(f"only {counted(len(settled), 'sample')}: take a longer --duration")
    names = list(dict.fromkeys(name for _, values in settled for name in values))
    total = list(rails.total) if rails else []
    missing = [name for name in total if name not in names]
    if missing:
        notes.append(f"no total: the rail {', '.join(missing)} was not sampled")
        total = []
    idle, baseline = _baseline(_readings(monitor.idle), sampled, settled, settle, total, notes)
    each = seconds / inferences * 1e3  # mW to microjoules of one inference
    by_rail = {}
    for name in names:
        devices = [key for key, rail in rails.devices.items() if rail == name] if rails else []
        in_total = name in (rails.total if rails else ())
        by_rail[name] = RailEnergy(
            **dict(_power(settled, idle, [name], each)), devices=devices, in_total=in_total
        )
    whole = TotalEnergy(**dict(_power(settled, idle, total, each)), rails=total) if total else None
    if whole and whole.over_idle_uj is None and whole.idle_mw is not None:
        notes.append(
            f"no energy over {baseline}: the board drew {whole.idle_mw / 1000:.2f} W before "
            f"and {whole.mean_mw / 1000:.2f} W during the measurement; something else was "
            "running before"
        )
    return Energy(
        by_rail=by_rail,
        total=whole,
        baseline=baseline,
        window_s=[settled[0][0], settled[-1][0]],
        samples=len(settled),
        idle_samples=len(idle),
        clock=clock,
        notes=notes,
    )


def _readings(samples: Sequence[Sample]) -> list[_Reading]:
    """Returns the samples with power, in order of time."""
    found = [(float(sample.t_s), sample.rails()) for sample in samples if sample.rails_mw]
    return sorted(found, key=lambda reading: reading[0])


def _baseline(
    idle: list[_Reading],
    sampled: list[_Reading],
    busy: list[_Reading],
    settle: float,
    total: list[str],
    notes: list[str],
) -> tuple[list[_Reading], Literal["idle", "floor"] | None]:
    """Returns the readings of the idle board, and the method ("idle", "floor" or None)."""
    settled = [reading for reading in idle if reading[0] >= idle[0][0] + settle]
    if len(idle) >= LEAST:
        return (settled if len(settled) >= LEAST else idle), "idle"
    if idle:
        few = (
            "no power baseline, because the idle board was sampled only "
            f"{counted(len(idle), 'time')}: "
        )
        notes.append(few + "sample it for longer (--idle 2) or more often (--monitor 100)")
    if len(sampled) < LEAST:
        return [], None
    # without a total add all known rails: only the order of samples matters here
    lowest = min(sampled, key=lambda reading: _sum(reading[1], total or list(reading[1])))
    least = _sum(lowest[1], total or list(lowest[1]))
    mean = _mean([(at, _sum(values, total or list(values))) for at, values in busy])
    # with less difference the lowest sample may be of the load as well
    return ([lowest], "floor") if mean > BUSY * least else ([], None)


def _power(busy: list[_Reading], idle: list[_Reading], names: list[str], each: float) -> Power:
    values = _series(busy, names)
    rest = _series(idle, names)
    mean = _mean(values)
    at_rest = _mean(rest) if rest else None
    return Power(
        mean_mw=mean,
        median_mw=median([value for _, value in values]) if values else 0.0,
        idle_mw=at_rest,
        uj_per_inference=mean * each,
        # less than idle is no energy of this load: other work ran during the baseline
        over_idle_uj=None if at_rest is None or mean < at_rest else (mean - at_rest) * each,
    )


def _series(readings: list[_Reading], names: list[str]) -> list[tuple[float, float]]:
    """Returns the sum of the named rails in every sample that has all these rails."""
    return [
        (at, _sum(values, names))
        for at, values in readings
        if all(name in values for name in names)
    ]


def _sum(values: dict[str, float], names: list[str]) -> float:
    return sum(values.get(name, 0.0) for name in names)


def _mean(values: list[tuple[float, float]]) -> float:
    """Returns the mean over time; a sample's interval ends halfway to its neighbours."""
    if len(values) < 2 or values[-1][0] <= values[0][0]:
        return sum(value for _, value in values) / len(values) if values else 0.0
    area = sum(
        (after[0] - before[0]) * (before[1] + after[1]) / 2 for before, after in pairwise(values)
    )
    return area / (values[-1][0] - values[0][0])
