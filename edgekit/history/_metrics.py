"""What can be compared: the metrics, their units and which way is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.errors import UsageError
from edgekit.history._bootstrap import Spread, spread
from edgekit.history._types import Result

__all__ = ["METRICS", "Measure", "Metric", "measure", "metric_of"]

# beyond a percentile: with fewer samples it is an accident of the run
_BEYOND = 20
_FEWEST = 8  # single times that tell anything of a run
_ALIKE = 0.02  # relative; the rate of inferences that run one after the other is 1 / mean


@dataclass(frozen=True)
class Metric:
    """A number of a measurement.

    Attributes:
        name: As on the command line.
        unit: Of its values.
        percent: The percentile of the samples, None where it is none.
        lower: Whether less is better.
        words: When B is better and when it is worse than A.
    """

    name: str
    unit: str
    percent: float | None = None
    lower: bool = True
    words: tuple[str, str] = ("faster", "slower")


METRICS = {
    metric.name: metric
    for metric in (
        Metric("latency.median", "ms", 50),
        Metric("latency.mean", "ms"),
        Metric("latency.p90", "ms", 90),
        Metric("latency.p95", "ms", 95),
        Metric("latency.p99", "ms", 99),
        Metric("throughput", "inferences/s", lower=False),
        Metric("energy", "uJ", words=("less energy", "more energy")),
    )
}


@dataclass(frozen=True)
class Measure:
    """A metric of one run.

    Attributes:
        value: In the metric's unit.
        spread: How sure the run itself makes it; None where that is not known.
        why: Why it is not known, for people.
        ends: Between which the value is all the same; None where nothing says so.
    """

    value: float
    spread: Spread | None = None
    why: str = ""
    ends: tuple[float, float] | None = None


def metric_of(name: str) -> Metric:
    """Returns a metric; "median" and "p99" do for "latency.median" and "latency.p99".

    Raises:
        UsageError: There is none of that name.
    """
    found = METRICS.get(name) or METRICS.get(f"latency.{name}")
    if found is None:
        raise UsageError(f"there is no metric {name!r}", hint=f"one of {', '.join(METRICS)}")
    return found


def measure(result: Result, metric: Metric) -> Measure | None:
    """Returns a metric of a run; None where the run does not have it."""
    if metric.name == "energy":
        energy = result.energy_uj
        return _one(energy, "energy is one number of a run")
    if metric.name == "throughput":
        return _throughput(result)
    told = result.latency_ms(metric.name.rpartition(".")[2])
    samples = result.samples
    if why := _too_few(samples):
        return _one(told, why)
    beyond = len(samples) * (100 - (metric.percent or 0)) / 100
    found = spread(samples, metric.percent)
    if metric.percent and beyond < _BEYOND:
        needed = math.ceil(_BEYOND * 100 / (100 - metric.percent))
        why = f"it needs {needed:,} inferences, there are {len(samples):,}"
        # all of eight or more samples are seldom on one side of the median; a tail's may be
        ends = (min(samples), max(samples)) if metric.percent == 50 else None
        return Measure(found.value, None, why, ends)
    return Measure(found.value, found)


def _too_few(samples: Sequence[float]) -> str:
    """Returns why single times say nothing of how sure a value is; empty where they do."""
    if not samples:
        return "its single times were not kept"
    if len(samples) < _FEWEST:
        return f"it needs {_FEWEST} inferences at least, there are {len(samples)}"
    return "" if min(samples) > 0 else "one of its times is 0"


def _one(value: float | None, why: str) -> Measure | None:
    return Measure(value, None, why) if value is not None and value > 0 else None


def _throughput(result: Result) -> Measure | None:
    rate, samples = result.throughput_qps, result.samples
    if rate is None or rate <= 0:
        return None
    if why := _too_few(samples):
        return _one(rate, why)
    found = spread(samples, None)
    alone = 1000 / found.value
    if abs(alone / rate - 1) < _ALIKE:
        return Measure(rate, Spread(rate, found.error, found.blocks, found.block))
    return Measure(rate, None, "inferences overlapped, and the rate is one number of a run")
