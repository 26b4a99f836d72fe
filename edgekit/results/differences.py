"""Whether two sides differ in a metric: the metrics with their units, the spread of one run by a
block bootstrap, and the interval of the ratio of two sides with runs as what repeats.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.results.distributions import rank_test, student_quantile
from edgekit.results.store import Result

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]


# How far a run's median, percentile or mean may lie from the truth, its samples being alike.
#
# The latencies of one run are no independent draws: clocks, temperature and queues carry over
# from one inference to the next, and a test that takes them for independent finds differences
# where there are none. Blocks of neighbours are drawn instead (circular block bootstrap: Politis
# and Romano, "A circular block-resampling procedure for stationary data", 1992), as long as the
# samples' autocorrelation requires (Politis and White, "Automatic block-length selection for the
# dependent bootstrap", Econometric Reviews 23, 2004, with the correction by Patton, Politis and
# White, Econometric Reviews 28, 2009). No block is shorter than an eighth of the run: what drifts
# slowly shows in none that is. So few blocks need Student's t instead of the normal
# distribution, which is also what theory has for a bandwidth that is a fixed part of the series
# (Kiefer and Vogelsang, "A new asymptotic theory for heteroskedasticity-autocorrelation robust
# tests", Econometric Theory 21, 2005). ``benchmarks/compare_power.py`` measures what comes of it.


RESAMPLES = 1000
_PARTS = 8  # of a run: no block is shorter than one
_AT_ONCE = 1 << 20  # numbers in memory
_BATCHES = 16
# beyond a percentile: with fewer samples it is an accident of the run
_BEYOND = 20
_FEWEST = 8  # single times that say anything of a run
_SEQUENTIAL_WITHIN = (
    0.02  # relative; the rate of inferences that run one after the other is 1 / mean
)


@dataclass(frozen=True)
class Spread:
    """A statistic of one run, and how sure it is.

    Attributes:
        value: The statistic: for a median what edgekit.bench calls so.
        error: Its logarithm's standard error, as the resamples scatter.
        blocks: Blocks that the run has: so many pieces of it are about independent.
        block: Samples in a block.
    """

    value: float
    error: float
    blocks: int
    block: int

    @property
    def log(self) -> float:
        """The logarithm of the statistic."""
        return math.log(self.value)


def block_length(series: Array) -> int:
    """Returns the block length for the mean of ``series``: 1 for independent values.

    The rule of Politis and White with its published constants; at most a third of the series.
    """
    import numpy as np

    count = len(series)
    most = max(1, min(math.ceil(3 * math.sqrt(count)), count // 3))
    centred = series - series.mean()
    power = float(centred @ centred) / count
    if power <= 0 or count < 8:
        return 1
    near = max(5, math.ceil(math.sqrt(math.log10(count))))
    lags = min(math.ceil(math.sqrt(count)) + near, count - 1)
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(spectrum, size)[: lags + 1] / count
    small = np.abs(covariance[1:] / power) < 2 * math.sqrt(math.log10(count) / count)
    # the first lag after which `near` correlations in a row are none
    bandwidth = next(
        (lag for lag in range(len(small) - near + 1) if small[lag : lag + near].all()), lags
    )
    wide = min(2 * max(bandwidth, 1), lags)
    lag = np.arange(1, wide + 1)
    window = np.minimum(1.0, 2 * (1 - lag / wide))  # flat top
    numerator = 2 * float(np.sum(window * lag * covariance[1 : wide + 1]))
    density = float(covariance[0] + 2 * np.sum(window * covariance[1 : wide + 1]))
    if density <= 0:
        return 1
    length = (2 * numerator**2 / (4 / 3 * density**2)) ** (1 / 3) * count ** (1 / 3)
    return int(min(max(math.ceil(length), 1), most))


def independent(samples: Sequence[float]) -> float | None:
    """Returns how many independent samples would give the mean as precisely, by batch means.

    The variance of the samples over that of their mean, which the means of 16 batches estimate
    (Law and Kelton, "Simulation Modeling and Analysis", section 9.5), taken for an AR(1). None for
    fewer than 128 samples.
    """
    import numpy as np

    values = np.asarray(samples, float)
    size = len(values) // _BATCHES
    if size < 8:
        return None
    means = values[: size * _BATCHES].reshape(_BATCHES, size).mean(axis=1)
    between, within = float(means.var(ddof=1)), float(values.var(ddof=1))
    if not between > 0:
        return float(len(values))
    # what goes on for longer than a batch: a mean says something of the next one
    about = means - means.mean()
    memory = max(float(about[1:] @ about[:-1]) / float(about @ about), 0.0)
    return min(_BATCHES * within / between * (1 - memory) / (1 + memory), float(len(values)))


def spread(samples: Sequence[float], percent: float | None, *, seed: int = 0) -> Spread:
    """Returns the statistic of a run's samples with its standard error.

    Args:
        samples: In the order of their measurement; positive.
        percent: The percentile (50 is the median); None for the mean.
        seed: Of the resamples.

    Raises:
        ValueError: No samples, or one that is not positive.
    """
    import numpy as np

    values = np.asarray(samples, float)
    if not len(values) or not (values > 0).all():
        raise ValueError("positive samples are needed")
    # what a sample adds to the statistic: itself to a mean, its side to a percentile
    ranks = None if percent is None else _ranks(len(values), percent)
    order = np.argsort(values, kind="stable")
    centre = float(values.mean() if ranks is None else values[order[list(ranks)]].mean())
    series = values if ranks is None else (values <= centre).astype(float)
    block = max(block_length(series), math.ceil(len(values) / _PARTS))
    random = np.random.default_rng(seed)
    drawn = (
        _means(values, block, random) if ranks is None else
        _percentiles(values, order, ranks, block, random)
    )  # fmt: skip
    blocks = len(values) // block
    # resamples scatter about the run's own value, from which the blocks are not independent: the
    # same correction as that of a standard deviation
    bias = math.sqrt(blocks / (blocks - 1)) if blocks > 1 else 1.0
    return Spread(centre, float(np.log(drawn).std()) * bias, blocks, block)


def _ranks(count: int, percent: float) -> tuple[int, ...]:
    """The places in sorted samples of edgekit.bench's median, or of trtexec's percentile."""
    if percent == 50 and count % 2 == 0:
        return count // 2 - 1, count // 2
    excluded = math.floor((100 - Fraction(str(percent))) * count / 100)
    return (max(count - 1 - excluded, 0),)


def _means(values: Array, block: int, random: np.random.Generator) -> Array:
    import numpy as np

    count = len(values)
    ring = np.concatenate([values, values[: block - 1]])
    sums = np.concatenate([[0.0], np.cumsum(ring)])
    means = (sums[block:] - sums[:-block]) / block
    starts = random.integers(0, count, (RESAMPLES, math.ceil(count / block)))
    drawn: Array = means[starts].mean(axis=1)
    return drawn


def _percentiles(
    values: Array, order: npt.NDArray[np.intp], ranks: tuple[int, ...], block: int,
    random: np.random.Generator,
) -> Array:  # fmt: skip
    """Percentiles of resamples, which are never sorted: how often each sample is in one says it."""
    import numpy as np

    count = len(values)
    blocks = math.ceil(count / block)
    wanted = [(rank + 0.5) / count * blocks * block for rank in ranks]
    ordered = values[order]
    drawn = np.empty(RESAMPLES)
    rows = max(1, _AT_ONCE // count)
    for first in range(0, RESAMPLES, rows):
        some = min(rows, RESAMPLES - first)
        # +1 where a block begins and -1 after its end, around the ring: the sum says how often
        edges = np.zeros((some, count + block), np.int32)
        row = np.repeat(np.arange(some), blocks)
        begin = random.integers(0, count, some * blocks)
        np.add.at(edges, (row, begin), 1)
        np.add.at(edges, (row, begin + block), -1)
        often = np.cumsum(edges, axis=1)
        often[:, :block] += often[:, count:]
        below = np.cumsum(often[:, order], axis=1)
        drawn[first : first + some] = np.mean(
            [ordered[np.argmax(below >= place, axis=1)] for place in wanted], axis=0
        )
    return drawn


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
        return _one(energy, "energy is a single value per run")
    if metric.name == "throughput":
        return _throughput(result)
    value = result.latency_ms(metric.name.rpartition(".")[2])
    samples = result.samples
    if why := _too_few(samples):
        return _one(value, why)
    beyond = len(samples) * (100 - (metric.percent or 0)) / 100
    found = spread(samples, metric.percent)
    if metric.percent and beyond < _BEYOND:
        needed = math.ceil(_BEYOND * 100 / (100 - metric.percent))
        why = f"it needs {needed:,} inferences, but there are {len(samples):,}"
        # all of eight or more samples are seldom on one side of the median; a tail's may be
        ends = (min(samples), max(samples)) if metric.percent == 50 else None
        return Measure(found.value, None, why, ends)
    return Measure(found.value, found)


def _too_few(samples: Sequence[float]) -> str:
    """Returns why single times say nothing of how sure a value is; empty where they do."""
    if not samples:
        return "its single times were not recorded"
    if len(samples) < _FEWEST:
        return f"it needs at least {_FEWEST} inferences, but there are {len(samples)}"
    return "" if min(samples) > 0 else "one of its times is 0"


def _one(value: float | None, why: str) -> Measure | None:
    return Measure(value, None, why) if value is not None and value > 0 else None


def _throughput(result: Result) -> Measure | None:
    rate, samples = result.document.throughput_qps, result.samples
    if rate is None or rate <= 0:
        return None
    if why := _too_few(samples):
        return _one(rate, why)
    found = spread(samples, None)
    alone = 1000 / found.value
    if abs(alone / rate - 1) < _SEQUENTIAL_WITHIN:
        return Measure(rate, Spread(rate, found.error, found.blocks, found.block))
    return Measure(rate, None, "inferences overlapped, so the rate is a single value per run")


# Whether two sides differ: the interval of the ratio of their values, with runs as what repeats.
#
# One run a side: the resamples' errors, Student's t with as many degrees of freedom as Welch and
# Satterthwaite's formula has for the blocks. Several runs: samples within one run share its
# accidents (memory layout, clocks, temperature at its start), so they are no repetitions of it;
# what repeats is the run, and the interval is Welch's for the means of the runs' logarithms
# (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, section 6). A side
# with one run is taken to vary between runs as the other does. A run that is too short for
# resamples has its lowest and its highest time as the ends of its median: too wide, but ten times
# as slow is beyond it.


@dataclass(frozen=True)
class Difference:
    """The ratio of B to A.

    Attributes:
        ratio: Of the values.
        low: Lower end of its interval; None where nothing says how sure it is.
        high: Upper end.
        method: "block-bootstrap", "welch", "range" or "none".
        freedom: Degrees of freedom of Student's t.
        rank_p: Of the Mann-Whitney test on the runs; None with fewer than four a side.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    method: str = "none"
    freedom: float | None = None
    rank_p: float | None = None


@dataclass(frozen=True)
class _LogMean:
    log: float
    variance: float | None
    freedom: float


def difference(a: Sequence[Measure], b: Sequence[Measure], confidence: float) -> Difference:
    """Returns how B's values relate to A's.

    Args:
        a: The runs of A, at least one.
        b: Those of B.
        confidence: Of the interval, 0 to 1.
    """
    several = len(a) > 1 or len(b) > 1
    sides = (_runs(a), _runs(b)) if several else (_run(a[0]), _run(b[0]))
    if several and 1 in (len(a), len(b)):
        sides = _lend(sides, len(a), len(b))
    log = sides[1].log - sides[0].log
    first, second = (side.variance for side in sides)
    if first is None or second is None:
        return Difference(math.exp(log)) if several else _ranges(a[0], b[0], confidence)
    total = first + second
    freedom = (
        total**2 / (first**2 / sides[0].freedom + second**2 / sides[1].freedom)
        if total > 0
        else max(sides[0].freedom, sides[1].freedom)
    )
    if several and 1 in (len(a), len(b)):
        freedom = max(len(a), len(b)) - 1.0
    reach = student_quantile(freedom, (1 + confidence) / 2) * math.sqrt(total)
    return Difference(
        math.exp(log), math.exp(log - reach), math.exp(log + reach),
        "welch" if several else "block-bootstrap", freedom, _rank_test(a, b),
    )  # fmt: skip


def _ranges(a: Measure, b: Measure, confidence: float) -> Difference:
    """The widest ratio of one run's ends to the other's."""
    one, other = _ends(a, confidence), _ends(b, confidence)
    ratio = b.value / a.value
    if one is None or other is None:
        return Difference(ratio)
    return Difference(ratio, other[0] / one[1], other[1] / one[0], "range")


def _ends(measure: Measure, confidence: float) -> tuple[float, float] | None:
    if measure.spread is None:
        return measure.ends
    freedom = max(measure.spread.blocks - 1, 1)
    reach = math.exp(student_quantile(freedom, (1 + confidence) / 2) * measure.spread.error)
    return measure.value / reach, measure.value * reach


def _run(measure: Measure) -> _LogMean:
    if measure.spread is None:
        return _LogMean(math.log(measure.value), None, 1)
    return _LogMean(
        math.log(measure.value), measure.spread.error**2, max(measure.spread.blocks - 1, 1)
    )


def _runs(measures: Sequence[Measure]) -> _LogMean:
    """The mean of the runs; two that agree by chance are no surer than each is by itself."""
    logs = [math.log(measure.value) for measure in measures]
    count, within = len(logs), _within(measures)
    if count == 1:
        return _LogMean(logs[0], within or None, 1)
    between = statistics.variance(logs)
    return _LogMean(statistics.fmean(logs), max(between, within) / count, count - 1)


def _within(measures: Sequence[Measure]) -> float:
    """The mean variance of a run's value, as far as the runs themselves say."""
    known = [measure.spread.error**2 for measure in measures if measure.spread is not None]
    return sum(known) / len(known) if known else 0.0


def _lend(sides: tuple[_LogMean, _LogMean], a: int, b: int) -> tuple[_LogMean, _LogMean]:
    """Gives the side with one run the other's variance between runs."""
    known, count = (sides[1], b) if a == 1 else (sides[0], a)
    one = sides[0] if a == 1 else sides[1]
    between = (known.variance or 0.0) * count
    lent = _LogMean(one.log, max(between, one.variance or 0.0), known.freedom)
    return (lent, known) if a == 1 else (known, lent)


def _rank_test(a: Sequence[Measure], b: Sequence[Measure]) -> float | None:
    if min(len(a), len(b)) < 4:  # with fewer no outcome is rarer than 1 in 20
        return None
    return rank_test([measure.value for measure in a], [measure.value for measure in b])
