"""From a histogram to the magnitude at which a tensor is clipped (amax)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.quantize._histogram import Histogram

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LEVELS", "METHODS", "PERCENTILE", "amax_of"]

LEVELS = 127
PERCENTILE = 99.99

# one candidate every STEP bins: 4096 bins give about a thousand, far finer than INT8 notices
_STEP = 4
_QUANTISED_BINS = 128
# a candidate that clips nearly everything piles it into one bin, which one level represents
# without loss; values far from zero (a classifier's pooled features) would be clipped away
_LARGEST_CLIPPED_SHARE = 0.01
# with fewer values a divergence over thousands of bins measures the sampling noise, and clipping
# by it loses several dB (pooled features, logits): their whole range is kept
_FEWEST_VALUES = 1 << 16


def amax_of(histogram: Histogram, method: str) -> float:
    """Returns the clipping magnitude of a tensor; 0 when all its values are zero.

    Raises:
        UsageError: The method is not one of ``METHODS``.
    """
    if method not in METHODS:
        raise UsageError(
            f"unknown calibration method {method!r}",
            code="calibration.method",
            hint=f"use one of {', '.join(METHODS)}",
        )
    if histogram.counts is None:
        return 0.0
    return min(METHODS[method](histogram.counts, histogram), histogram.amax)


def _minmax(counts: np.ndarray, histogram: Histogram) -> float:
    return histogram.amax


def _percentile(counts: np.ndarray, histogram: Histogram) -> float:
    import numpy as np

    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, cumulative[-1] * (PERCENTILE / 100.0)))
    return (index + 1) * histogram.top / counts.size


def _mse(counts: np.ndarray, histogram: Histogram) -> float:
    """Least mean squared error of quantise-dequantise, over the bins' centres."""
    import numpy as np

    used = np.flatnonzero(counts)
    centres = (used + 0.5) * (histogram.top / counts.size)
    weight = counts[used].astype(np.float64)
    ends = np.arange(counts.size // 16, counts.size + 1, counts.size // 128)
    clips = ends * (histogram.top / counts.size)
    scales = (clips / LEVELS)[:, None]
    codes = np.minimum(np.rint(centres[None, :] / scales), LEVELS)
    error = ((centres[None, :] - codes * scales) ** 2) @ weight
    return float(clips[int(np.argmin(error))])


def _entropy(counts: np.ndarray, histogram: Histogram) -> float:
    """Least Kullback-Leibler divergence, the method of IInt8EntropyCalibrator2.

    For each candidate end i: P is the first i bins with everything beyond added to the last; Q
    is the same bins merged into 128 levels and spread again over the bins in use. Follows
    S. Migacz, "8-bit inference with TensorRT" (GTC 2017) and the open implementation in
    NVIDIA's pytorch-quantization (calib/histogram.py), which also gives bin 0 the count of
    bin 1, lest the zeros of a ReLU decide everything. Cumulative sums make all candidates one
    array operation: sum p log q only needs each level's mass and its number of bins in use.
    """
    import numpy as np

    if counts.sum() < _FEWEST_VALUES:
        return histogram.amax
    hist = counts.astype(np.float64)
    hist[0] = hist[1]
    last = int(np.flatnonzero(hist)[-1]) + 1 if hist.any() else 0
    if last <= _QUANTISED_BINS:
        return histogram.amax

    def cumulative(values: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(values)])

    mass = cumulative(hist)
    first = int(np.searchsorted(mass, mass[-1] * (1 - _LARGEST_CLIPPED_SHARE)))
    ends = np.append(np.arange(max(first, _QUANTISED_BINS), last, _STEP), last)
    in_use = cumulative(hist > 0)
    self_information = cumulative(hist * np.log(np.where(hist > 0, hist, 1.0)))
    # level borders of every candidate: [candidates, 129]
    borders = (ends[:, None] * np.arange(_QUANTISED_BINS + 1)[None, :]) // _QUANTISED_BINS
    level_mass = np.diff(mass[borders], axis=1)
    level_bins = np.diff(in_use[borders], axis=1)
    total = mass[-1]
    beyond = total - mass[ends]
    tail = hist[ends - 1]
    p_mass = level_mass.copy()
    p_mass[:, -1] += beyond

    def x_log_x(values: np.ndarray) -> np.ndarray:
        return np.asarray(values * np.log(np.where(values > 0, values, 1.0)))

    p_log_p = self_information[ends] - x_log_x(tail) + x_log_x(tail + beyond)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_bin = np.where(level_mass > 0, level_mass / level_bins, 1.0)
        # both as probabilities: P adds up to total, Q to the mass inside
        divergence = (p_log_p - (p_mass * np.log(per_bin)).sum(axis=1)) / total
        divergence += np.log(mass[ends]) - np.log(total)
    # outliers in a bin that Q leaves empty are infinitely far; the last candidate has none
    divergence[(tail == 0) & (beyond > 0)] = np.inf
    best = int(ends[int(np.argmin(divergence))])
    return best * histogram.top / counts.size


METHODS: dict[str, Callable[[np.ndarray, Histogram], float]] = {
    "entropy": _entropy,
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
}
