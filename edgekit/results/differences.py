"""Whether two sides differ in a metric: the metrics with their units, and the interval of the ratio
of two sides over what repeats: the runs, or for one run a side earlier runs of one release.
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
_FEW_RUNS = 5  # how much wider the spread of few runs is taken: simulated
_USUAL = 0.95  # the confidence for that
# beyond a percentile: with fewer samples it is an accident of the run
_BEYOND = 20
_SEQUENTIAL_WITHIN = (
    0.02  # relative; the rate of inferences that run one after the other is 1 / mean
)


Repeating = Literal["runs", "history", "parts", "none"]
"""What repeats: runs, earlier runs of one release, the eighths of one run a side (documents of
former versions only), or nothing."""


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
        parts: The metric of each eighth of the run; empty where single times do not give it.
    """

    value: float
    parts: tuple[float, ...] = ()


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
        return _one(result.energy_uj)
    if metric.name == "throughput":
        return _throughput(result)
    samples = result.samples
    if _too_few(samples):
        return _one(result.latency_ms(metric.name.rpartition(".")[2]))
    value = _statistic(samples, metric.percent)
    percent = metric.percent or 0
    if percent > 50 and len(samples) * (100 - percent) / 100 < _BEYOND:
        return Measure(value)
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


def _too_few(samples: Sequence[float]) -> bool:
    """Returns whether single times say nothing of how much a run's value varies."""
    return len(samples) < _FEWEST or min(samples) <= 0


def _one(value: float | None) -> Measure | None:
    return Measure(value) if value is not None and value > 0 else None


def _throughput(result: Result) -> Measure | None:
    rate, samples = result.document.throughput_qps, result.samples
    if rate is None or rate <= 0:
        return None
    if _too_few(samples):
        return _one(rate)
    if abs(1000 / mean(samples) / rate - 1) < _SEQUENTIAL_WITHIN:
        return Measure(rate, tuple(1000 / part for part in parts(samples, None)))
    return _one(rate)  # inferences overlapped


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


@dataclass(frozen=True)
class Spread:
    """How far runs of one release were apart.

    Attributes:
        runs: How many runs.
        largest: The largest ratio of two runs of one release.
        freedom: How many runs there are in addition to each release's first.
    """

    runs: int
    largest: float
    freedom: int

    def reach(self, confidence: float) -> float:
        """Returns the ratio that two runs of one release stay below.

        It is never below the largest ratio seen, and the larger the fewer the runs were: few runs
        seldom show a noisy machine's slowest one. ``benchmarks/compare_power.py`` measures its
        false alarms.
        """
        normal = statistics.NormalDist()
        wider = normal.inv_cdf((1 + confidence) / 2) / normal.inv_cdf((1 + _USUAL) / 2)
        return math.pow(self.largest, (1 + _FEW_RUNS / self.freedom) * max(1.0, wider))


def spread_of(releases: Sequence[Sequence[float]]) -> Spread | None:
    """Returns the spread of runs of one release; None for fewer than four runs of one.

    Several releases count together, by the runs that each has in addition to its first.

    Args:
        releases: The positive values of each release's runs.
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
    """Returns how B's values relate to A's.

    Samples within one run share its accidents (memory layout, clocks, temperature at its start), so
    they do not repeat it: of several runs the run is what repeats (Kalibera and Jones, "Rigorous
    benchmarking in reasonable time", ISMM 2013, section 6). One run a side cannot say how another
    run would differ: its interval comes from earlier runs, and without them there is none. It is no
    narrower than that of the runs' eighths, which are long enough to be nearly independent.

    Args:
        a: The runs of A, at least one.
        b: Those of B.
        confidence: Of the interval, 0 to 1.
        spread: Of earlier runs of one release, for one run a side.
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
    reach = spread.reach(confidence)
    within = ratio_interval(a[0].parts, b[0].parts, confidence) or (ratio, ratio)
    return Difference(
        ratio, min(within[0], ratio / reach), max(within[1], ratio * reach), "history"
    )


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
