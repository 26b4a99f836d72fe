"""Whether two sides differ in a metric: the metrics with their units, and the interval of the ratio
of two sides, distribution-free and over what repeats: runs, or the eighths of one run each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from edgekit.benchmark.statistics import mean
from edgekit.errors import UsageError
from edgekit.results.store import Result
from edgekit_device.benchmark.statistics import percentile

_PARTS = 8  # of a run
_FEWEST = 8  # single times that say anything of a run
FEWEST_RUNS = 4  # on both sides together
# beyond a percentile: with fewer samples it is an accident of the run
_BEYOND = 20
_SEQUENTIAL_WITHIN = (
    0.02  # relative; the rate of inferences that run one after the other is 1 / mean
)


Repeating = Literal["runs", "parts", "none"]
"""What repeats: runs, the eighths of one run a side, or nothing."""


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
        parts: The metric of each eighth of the run; empty if they are not known.
        why: Why they are not known, for people.
    """

    value: float
    parts: tuple[float, ...] = ()
    why: str = ""


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
    """Returns a metric of a run; None if the run does not have it."""
    if metric.name == "energy":
        return _one(result.energy_uj, "energy is a single value per run")
    if metric.name == "throughput":
        return _throughput(result)
    samples = result.samples
    if why := _too_few(samples):
        return _one(result.latency_ms(metric.name.rpartition(".")[2]), why)
    value = _statistic(samples, metric.percent)
    percent = metric.percent or 0
    if percent > 50 and len(samples) * (100 - percent) / 100 < _BEYOND:
        needed = math.ceil(_BEYOND * 100 / (100 - percent))
        why = f"it needs {needed:,} inferences, but there are {len(samples):,}"
        return Measure(value, why=why)
    return Measure(value, parts(samples, metric.percent))


def parts(samples: Sequence[float], percent: float | None) -> tuple[float, ...]:
    """Returns a statistic of each eighth of a run, in order.

    Args:
        samples: In the order of their measurement, at least eight.
        percent: The percentile (50 is the median); None for the mean.
    """
    cuts = [len(samples) * number // _PARTS for number in range(_PARTS + 1)]
    return tuple(_statistic(samples[a:b], percent) for a, b in pairwise(cuts))


def _statistic(samples: Sequence[float], percent: float | None) -> float:
    """Returns what edgekit.bench calls so: its mean, its median or trtexec's percentile."""
    if percent is None:
        return mean(samples)
    return statistics.median(samples) if percent == 50 else percentile(samples, percent)


def _too_few(samples: Sequence[float]) -> str:
    """Returns why single times say nothing of how sure a value is; empty if they do."""
    if not samples:
        return "its single times were not recorded"
    if len(samples) < _FEWEST:
        return f"it needs at least {_FEWEST} inferences, but there are {len(samples)}"
    return "" if min(samples) > 0 else "one of its times is 0"


def _one(value: float | None, why: str) -> Measure | None:
    return Measure(value, why=why) if value is not None and value > 0 else None


def _throughput(result: Result) -> Measure | None:
    rate, samples = result.document.throughput_qps, result.samples
    if rate is None or rate <= 0:
        return None
    if why := _too_few(samples):
        return _one(rate, why)
    if abs(1000 / mean(samples) / rate - 1) < _SEQUENTIAL_WITHIN:
        return Measure(rate, tuple(1000 / part for part in parts(samples, None)))
    return _one(rate, "inferences overlapped, so the rate is a single value per run")


@dataclass(frozen=True)
class Difference:
    """The ratio of B to A.

    Attributes:
        ratio: Of the medians of the runs' values.
        low: Lower end of its interval; None if nothing says how sure it is.
        high: Upper end.
        method: What repeats.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    method: Repeating = "none"


def difference(a: Sequence[Measure], b: Sequence[Measure], confidence: float) -> Difference:
    """Returns how B's values relate to A's.

    Samples within one run share its accidents (memory layout, clocks, temperature at its start), so
    they do not repeat it: of several runs the run is what repeats (Kalibera and Jones, "Rigorous
    benchmarking in reasonable time", ISMM 2013, section 6). One run a side is cut into eighths,
    which are long enough to be nearly independent; it cannot say how another run would differ.

    Args:
        a: The runs of A, at least one.
        b: Those of B.
        confidence: Of the interval, 0 to 1.
    """
    one, other = [run.value for run in a], [run.value for run in b]
    ratio = statistics.median(other) / statistics.median(one)
    method: Repeating = "runs"
    if len(a) == len(b) == 1:
        method, one, other = "parts", [*a[0].parts], [*b[0].parts]
    ends = ratio_interval(one, other, confidence)
    if ends is None:
        return Difference(ratio)
    return Difference(ratio, min(ends[0], ratio), max(ends[1], ratio), method)


def ratio_interval(
    a: Sequence[float], b: Sequence[float], confidence: float
) -> tuple[float, float] | None:
    """Returns the interval of the ratio of B to A; None for fewer than four values.

    Its ends are two of all the ratios of a value of B to one of A, in their order (Hodges and
    Lehmann, "Estimates of location based on rank tests", 1963; the places by the normal
    approximation). No distribution is assumed, and of eight values a side one that is far out moves
    them little. Where the values are too few for the confidence (below four a side for 95 %), the
    lowest and the highest ratio are taken, widened by the range of the side that varies more, the
    wider the fewer the values are. ``benchmarks/compare_power.py`` measures its false alarms.

    Args:
        a: Positive values that repeat each other.
        b: Likewise.
        confidence: Of the interval, 0 to 1.
    """
    import numpy as np

    count, pairs = len(a) + len(b), len(a) * len(b)
    if not pairs or count < FEWEST_RUNS:
        return None
    ratios = np.sort(np.divide.outer(np.asarray(b, float), np.asarray(a, float)), axis=None)
    sure = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    place = math.floor(pairs / 2 - sure * math.sqrt(pairs * (count + 1) / 12) - 0.5)
    if place >= 0:
        return float(ratios[place]), float(ratios[-1 - place])
    spread = max(max(side) / min(side) for side in (a, b))
    reach = spread ** (4 / (count - 2))
    return float(ratios[0]) / reach, float(ratios[-1]) * reach
