"""How far a run's median, percentile or mean may lie from the truth, its samples being alike.

The latencies of one run are no independent draws: clocks, temperature and queues carry over from
one inference to the next, and a test that takes them for independent finds differences where there
are none. Blocks of neighbours are drawn instead (circular block bootstrap: Politis and Romano,
"A circular block-resampling procedure for stationary data", 1992), as long as the samples'
autocorrelation asks (Politis and White, "Automatic block-length selection for the dependent
bootstrap", Econometric Reviews 23, 2004, with the correction by Patton, Politis and White,
Econometric Reviews 28, 2009). No block is shorter than an eighth of the run: what drifts slowly
shows in none that is. So few blocks ask for Student's t instead of the normal distribution, which
is also what theory has for a bandwidth that is a fixed part of the series (Kiefer and Vogelsang,
"A new asymptotic theory for heteroskedasticity-autocorrelation robust tests", Econometric Theory
21, 2005). ``benchmarks/compare_power.py`` measures what comes of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

__all__ = ["RESAMPLES", "Spread", "block_length", "independent", "spread"]

RESAMPLES = 1000
_PARTS = 8  # of a run: no block is shorter than one
_AT_ONCE = 1 << 20  # numbers in memory
_BATCHES = 16


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
    """Returns how many independent samples would know the mean as well: batch means tell.

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
    from fractions import Fraction

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
        # +1 where a block begins and -1 behind its end, around the ring: the sum says how often
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
