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

    hist = counts.astype(np.float64)
    hist[0] = hist[1]
    last = int(np.flatnonzero(hist)[-1]) + 1 if hist.any() else 0
    if last <= _QUANTISED_BINS:
        return histogram.amax
    ends = np.arange(_QUANTISED_BINS, last + 1, _STEP)
    if ends[-1] != last:
        ends = np.append(ends, last)

    def cumulative(values: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(values)])

    mass = cumulative(hist)
    in_use = cumulative(hist > 0)
    self_information = cumulative(hist * np.log(np.where(hist > 0, hist, 1.0)))
    # level borders of every candidate: [candidates, 129]
    borders = (ends[:, None] * np.arange(_QUANTISED_BINS + 1)[None, :]) // _QUANTISED_BINS
    level_mass = np.diff(mass[borders], axis=1)
    level_bins = np.diff(in_use[borders], axis=1)
    total = mass[-1]
    beyond = total - mass[ends]
    tail = hist[ends - 1]
    # the last bin is in use as soon as outliers land there
    level_bins[:, -1] += (tail == 0) & (beyond > 0)
    p_mass = level_mass.copy()
    p_mass[:, -1] += beyond

    def x_log_x(values: np.ndarray) -> np.ndarray:
        return np.asarray(values * np.log(np.where(values > 0, values, 1.0)))

    p_log_p = self_information[ends] - x_log_x(tail) + x_log_x(tail + beyond)
    # a level with outliers but no mass of its own would be infinitely far: half a count stands in
    q = np.maximum(level_mass, 0.5) / np.maximum(level_bins, 1.0)
    p_log_q = (p_mass * np.log(q)).sum(axis=1)
    # both as probabilities: P adds up to total, Q to the mass inside
    divergence = (p_log_p - p_log_q) / total - np.log(total) + np.log(np.maximum(mass[ends], 0.5))
    best = int(ends[int(np.argmin(divergence))])
    return best * histogram.top / counts.size


METHODS: dict[str, Callable[[np.ndarray, Histogram], float]] = {
    "entropy": _entropy,
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
}
