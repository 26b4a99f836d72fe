"""Metrics with their units, and the confidence interval of the ratio of two sides: over several
runs a side, or, for one run a side, from earlier runs of one release.
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

_PARTS = 8  # parts of a run
_FEWEST = 8  # single times below which a run's own variation is unknown
FEWEST_RUNS = 4  # on both sides together
_FEW_RUNS = 5  # factor on the spread of few runs, found by simulation for _USUAL
_USUAL = 0.95  # confidence
# samples beyond a percentile: with fewer, single outliers decide it
_BEYOND = 20
_SEQUENTIAL_WITHIN = (
    0.02  # relative; the rate of inferences that run one after the other is 1 / mean
)


Repeating = Literal["runs", "history", "parts", "none"]
"""The repeated unit: runs, earlier runs of one release, the eighths of one run a side (documents of
former versions only), or none."""


@dataclass(frozen=True)
class Metric:
    """A quantity of a measurement.

    Attributes:
        name: Its name on the command line.
        unit: Unit of the values.
        percent: Percentile of the samples; None if the metric is no percentile.
        lower: True if lower values are better.
        words: Verdicts for a better B and for a worse B.
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
        value: Value in the metric's unit.
        parts: The metric of each eighth of the run; empty if single times do not give it.
    """

    value: float
    parts: tuple[float, ...] = ()


def find_metric(name: str) -> Metric:
    """Returns a metric by name; "median" and "p99" mean "latency.median" and "latency.p99".

    Raises:
        UsageError: The name is unknown.
    """
    found = METRICS.get(name) or METRICS.get(f"latency.{name}")
    if found is None:
        raise UsageError(f"there is no metric {name!r}", hint=f"one of {', '.join(METRICS)}")
    return found


def measure(result: Result, metric: Metric) -> Measure | None:
    """Returns a metric of a run; None if the run lacks it."""
    if metric.name == "energy":
        return _positive_measure(result.energy_uj)
    if metric.name == "throughput":
        return _throughput(result)
    samples = result.samples
    if _has_few_samples(samples):
        return _positive_measure(result.latency_ms(metric.name.rpartition(".")[2]))
    value = _statistic(samples, metric.percent)
    percent = metric.percent or 0
    # an eighth of the run has even fewer samples above the percentile
    if percent > 50 and len(samples) * (100 - percent) / 100 < _BEYOND:
        return Measure(value)
    return Measure(value, parts(samples, metric.percent))


def parts(samples: Sequence[float], percent: float | None) -> tuple[float, ...]:
    """Returns a statistic of each eighth of a run, in order.

    Args:
        samples: At least eight times, in the order of their measurement.
        percent: The percentile (50 is the median); None for the mean.
    """
    cuts = [len(samples) * number // _PARTS for number in range(_PARTS + 1)]
    return tuple(_statistic(samples[a:b], percent) for a, b in pairwise(cuts))


def _statistic(samples: Sequence[float], percent: float | None) -> float:
    """Returns the mean, the median or trtexec's percentile, as edgekit.bench computes them."""
    if percent is None:
        return mean(samples)
    return statistics.median(samples) if percent == 50 else percentile(samples, percent)


def _has_few_samples(samples: Sequence[float]) -> bool:
    """Returns True if a run has too few single times to estimate its variation."""
    return len(samples) < _FEWEST or min(samples) <= 0


def _positive_measure(value: float | None) -> Measure | None:
    return Measure(value) if value is not None and value > 0 else None


def _throughput(result: Result) -> Measure | None:
    rate, samples = result.document.throughput_qps, result.samples
    if rate is None or rate <= 0:
        return None
    if _has_few_samples(samples):
        return _positive_measure(rate)
    if abs(1000 / mean(samples) / rate - 1) < _SEQUENTIAL_WITHIN:
        return Measure(rate, tuple(1000 / part for part in parts(samples, None)))
    return _positive_measure(rate)  # inferences overlapped


@dataclass(frozen=True)
class Difference:
    """The ratio of B to A.

    Attributes:
        ratio: Ratio of the medians of the runs' values.
        low: Lower end of the confidence interval; None if it cannot be computed.
        high: Upper end.
        method: How the interval was computed.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    method: Repeating = "none"


@dataclass(frozen=True)
class Spread:
    """The spread between runs of one release.

    Attributes:
        runs: Number of runs.
        largest: The largest ratio of two runs of one release.
        freedom: Degrees of freedom: runs minus releases.
    """

    runs: int
    largest: float
    freedom: int

    def reach(self, confidence: float) -> float:
        """Returns a ratio that two runs of one release exceed with probability 1 - confidence.

        It is at least the largest ratio seen, and grows as runs get fewer, because few runs seldom
        include the slowest. ``benchmarks/compare_power.py`` measures the false alarms.
        """
        normal = statistics.NormalDist()
        wider = normal.inv_cdf((1 + confidence) / 2) / normal.inv_cdf((1 + _USUAL) / 2)
        return math.pow(self.largest, (1 + _FEW_RUNS / self.freedom) * max(1.0, wider))


def spread_between_runs(releases: Sequence[Sequence[float]]) -> Spread | None:
    """Returns the spread between runs of one release; None with fewer than four runs.

    Releases are pooled by their degrees of freedom (runs minus one).

    Args:
        releases: Positive values of the runs, by release.
    """
    repeated = [runs for runs in releases if len(runs) > 1]
    freedom = sum(len(runs) - 1 for runs in repeated)
    if freedom < FEWEST_RUNS - 1:
        return None
    largest = max(max(runs) / min(runs) for runs in repeated)
    return Spread(sum(map(len, repeated)), largest, freedom)


def difference(
    a: Sequence[Measure], b: Sequence[Measure], confidence: float, spread: Spread | None = None
) -> Difference:
    """Returns the ratio of B's values to A's with its interval.

    Samples of one run share its conditions (memory layout, clocks, temperature at the start), so
    the run is the unit of repetition (Kalibera and Jones, "Rigorous benchmarking in reasonable
    time", ISMM 2013, section 6). For one run a side the interval comes from the spread of earlier
    runs; without earlier runs there is no interval. It is at least as wide as the interval over the
    runs' eighths, which are long enough to be nearly independent.

    Args:
        a: The runs of A, at least one.
        b: The runs of B, at least one.
        confidence: Confidence of the interval, 0 to 1.
        spread: Spread of earlier runs of one release, for one run a side.
    """
    one, other = [run.value for run in a], [run.value for run in b]
    ratio = statistics.median(other) / statistics.median(one)
    if len(a) > 1 or len(b) > 1:
        ends = ratio_interval(one, other, confidence)
        if ends is None:
            return Difference(ratio)
        return Difference(ratio, min(ends[0], ratio), max(ends[1], ratio), "runs")
    if spread is None:
        return Difference(ratio)
    # one run a side: how far apart earlier runs were, but no less than the variation within the
    # runs
    reach = spread.reach(confidence)
    within = ratio_interval(a[0].parts, b[0].parts, confidence) or (ratio, ratio)
    return Difference(
        ratio, min(within[0], ratio / reach), max(within[1], ratio * reach), "history"
    )


def ratio_interval(
    a: Sequence[float], b: Sequence[float], confidence: float
) -> tuple[float, float] | None:
    """Returns the interval of the ratio of B to A; None for fewer than four values.

    The ends are order statistics of all ratios of a value of B to a value of A (Hodges and Lehmann,
    "Estimates of location based on rank tests", 1963, with the normal approximation for the ranks).
    No distribution is assumed, and a single outlier among eight values a side moves the ends
    little. With too few values for the confidence (below four a side for 95 %), the interval spans
    the lowest to the highest ratio, widened by the range of the side that varies more; fewer values
    widen it more. ``benchmarks/compare_power.py`` measures the false alarms.

    Args:
        a: Positive values of repeated runs.
        b: Positive values of repeated runs.
        confidence: Confidence of the interval, 0 to 1.
    """
    import numpy as np

    count, pairs = len(a) + len(b), len(a) * len(b)
    if not pairs or count < FEWEST_RUNS:
        return None
    ratios = np.sort(np.divide.outer(np.asarray(b, float), np.asarray(a, float)), axis=None)
    # Mann and Whitney's statistic has mean pairs / 2 and variance pairs * (count + 1) / 12; 0.5
    # corrects its continuity
    sure = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    place = math.floor(pairs / 2 - sure * math.sqrt(pairs * (count + 1) / 12) - 0.5)
    if place >= 0:
        return float(ratios[place]), float(ratios[-1 - place])
    spread = max(max(side) / min(side) for side in (a, b))
    # the square of the spread for four values, the fewest, and less with each further value
    reach = spread ** (4 / (count - 2))
    return float(ratios[0]) / reach, float(ratios[-1]) * reach
