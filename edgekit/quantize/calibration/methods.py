"""From a histogram to the magnitude at which a tensor is clipped (amax): entropy, percentile,
MSE, minimum and maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from edgekit.dla.scales import LEVELS
from edgekit.errors import UsageError
from edgekit.quantize.calibration.histogram import TINY, ValueHistogram
from edgekit.quantize.scales import LARGEST_SCALE

LEVELS_OF_ENTROPY = 128
# smooth_distribution's default
EPS = 1e-4
# twice as much may be beyond float32
LARGE = 2.0**126
ENTROPY_BINS = 2048
# candidates this near to the least (relative; absolute) are distinguished in its own arithmetic
_CLOSE, _CLOSE_ABSOLUTE = 2e-3, 1e-6
# how many standard deviations of a bin's counts a rival must be away, and float32's own noise
_SURE, _ROUNDING = 6.0, 1e-7
_DRAWS = 2
PERCENTILE = 99.99
# with fewer, eight to a bin, a divergence over 2048 bins measures sampling noise and clips what
# matters: the logits of light_squeezenet after 8 inputs (8000 values) cost 9 dB of the output's SNR
FEWEST = 1 << 14
# of so few values every one may decide between candidates
_FEW = 1 << 17
# bins of magnitudes that the squared error is summed over, and clips that are tried
_MSE_BINS = 4096
_MSE_CLIPS = 128
_MSE_LEAST = 8


def as_original(counts: np.ndarray, candidate: int) -> float:
    """Returns a candidate's divergence.

    Args:
        counts: int64 [bins], over [-amax, amax].
        candidate: Bins on each side of zero.
    """
    levels, zero = LEVELS_OF_ENTROPY, counts.size // 2
    start, end = zero - candidate, min(zero + candidate + 1, counts.size)
    inside = counts[start:end]
    p = inside.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[end:].sum()
    merged = inside.size // levels
    covered = merged * levels
    level = inside[:covered].reshape(levels, merged).sum(axis=1)
    level[-1] += inside[covered:].sum()
    in_use = (p[:covered].reshape(levels, merged) != 0).sum(axis=1)
    q = np.zeros(p.size, np.int64)
    q[:covered] = np.repeat(np.where(in_use > 0, level / np.maximum(in_use, 1), 0), merged)
    smooth_p, smooth_q = _smooth(p), _smooth(q)
    if smooth_p is None or smooth_q is None:
        return float("inf")
    smooth_p /= smooth_p.sum()
    smooth_q /= smooth_q.sum()
    return float((smooth_p * np.log(smooth_p / smooth_q)).sum())


def _smooth(values: np.ndarray) -> np.ndarray | None:
    """Gives empty bins a little of the others; None when all are empty."""
    empty = (values == 0).astype(np.float32)
    count = float(empty.sum())
    if count == values.size:
        return None
    taken = EPS * count / (values.size - count)
    smoothed = values.astype(np.float32)
    smoothed += EPS * empty + (-taken) * (1 - empty)
    return smoothed


# The entropy method: the clipping magnitude whose INT8 histogram is nearest to the real one.
#
# The method of TensorRT's IInt8EntropyCalibrator2 (S. Migacz, "8-bit inference with TensorRT", GTC
# 2017) in the open form that ONNX Runtime carries (``onnxruntime/quantization/calibrate.py``,
# ``HistogramCollector.get_entropy_threshold`` and ``smooth_distribution``): a histogram of both
# signs, candidates that grow by one bin on each side, 128 levels, counts cut to integers, empty
# bins smoothed. The same histogram gives the same threshold as there, bit for bit.


def nearest(counts: np.ndarray) -> int:
    """Returns the candidate, in bins on each side of zero, with the least divergence.

    Args:
        counts: int64 [an even number], over [-amax, amax].
    """
    return _nearest(counts, _divergences(np.asarray(counts, np.int64)))


def edge_of(candidate: int, low: float, high: float, bins: int = ENTROPY_BINS) -> float:
    """Returns the clipping magnitude of a candidate: its outer edge, within what was seen.

    The interval has one bin more above zero than below, and is cut to [``low``, ``high``].
    """
    found = edges(max(-low, high), bins)
    lower = max(float(found[bins // 2 - candidate]), low)
    upper = min(float(found[min(bins // 2 + candidate + 1, bins)]), high)
    return max(abs(lower), abs(upper))


def edges(amax: float, bins: int = ENTROPY_BINS) -> np.ndarray:
    """Returns float32 [bins + 1], the edges of bins over [-``amax``, ``amax``] as NumPy has them.

    Where float32 does not hold twice ``amax``, they are those of ``amax`` / 4, times 4: the same
    ones but for the overflow.
    """
    factor = np.float32(4.0 if amax >= LARGE else 1.0)
    top = np.float32(amax) / factor
    return np.asarray(np.linspace(-top, top, bins + 1, dtype=np.float32) * factor)


def nearest_if_sure(counts: np.ndarray, unsure: np.ndarray) -> int | None:
    """Returns the nearest candidate, where counts that are not exact do not leave it open.

    Args:
        counts: int64 [bins].
        unsure: float64 [bins + 1], by how much the count below each edge may be wrong.

    Returns:
        The candidate; None if one more than a bin away may in truth be nearer.
    """
    found = _divergences(counts)
    best = _nearest(counts, found)
    if not unsure.any():
        return best
    half = LEVELS_OF_ENTROPY // 2
    far = np.abs(np.arange(found.size) + half - best) > 1
    gap = found - found[best - half]
    # the same counts with every edge off by a draw of what it may be off; one draw that happens to
    # move little would make a tie look decided
    random = np.random.default_rng(0)
    square = np.zeros(found.size)
    for _ in range(_DRAWS):
        cumulative = np.concatenate([[0], np.cumsum(counts)])
        cumulative = cumulative + random.standard_normal(unsure.size) * unsure
        moved = np.rint(np.maximum.accumulate(np.clip(cumulative, 0, counts.sum())))
        moved[0], moved[-1] = 0, counts.sum()
        other = _divergences(np.diff(moved).astype(np.int64))
        with np.errstate(invalid="ignore"):
            off = other - other[best - half] - gap
        square += np.where(np.isfinite(off), off, 0.0) ** 2 / _DRAWS
    # neighbours are hit by the same errors: the largest of several stands for all of them
    window = np.ones(9)
    spread = np.maximum(np.convolve(square, window, "same") / window.size, square)
    rival = gap <= _SURE * np.sqrt(spread) + _ROUNDING
    return None if (rival & far & np.isfinite(found)).any() else best


def _nearest(counts: np.ndarray, found: np.ndarray) -> int:
    """Picks by ``found``; among those that are close, by the original's float32 arithmetic."""
    half = LEVELS_OF_ENTROPY // 2
    least = float(found.min())
    if not np.isfinite(least):
        return half
    close = np.flatnonzero(found <= least + abs(least) * _CLOSE + _CLOSE_ABSOLUTE) + half
    return int(close[int(np.argmin([as_original(counts, int(i)) for i in close]))])


def _divergences(counts: np.ndarray) -> np.ndarray:
    """Returns the Kullback-Leibler divergence of every candidate, float64.

    All candidates at once: a level's contribution to sum(p log q) needs no more than its mass
    and its number of bins in use, which cumulative sums give; sum(p log p) of the smoothed p is
    expanded to second order in what smoothing takes from each bin (at most some 1e-2 of a count).
    """
    start, end, merged, borders = _candidates(counts.size)
    size = end - start
    used = counts > 0
    real = counts.astype(np.float64)

    def cumulative(values: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(values)])

    mass_to, used_to = cumulative(real), cumulative(used)
    total = mass_to[-1]
    left, right = mass_to[start], total - mass_to[end]
    # levels take ``merged`` bins each; the bins that are left over count for the last level's
    # mass, but the quantised distribution has nothing there
    mass = np.diff(mass_to[borders], axis=1)
    bins = np.diff(used_to[borders], axis=1)
    inside = mass.copy()
    over = end > borders[:, -1]
    rest = mass_to[end] - mass_to[borders[:, -1]]
    mass[:, -1] += rest
    first, last = real[start], real[end - 1]
    new_first, new_last = (first == 0) & (left > 0), (last == 0) & (right > 0)
    bins[:, 0] += new_first
    inside[:, 0] += left
    bins[:, -1] += new_last & ~over
    inside[:, -1] += np.where(over, 0.0, right)
    in_rest = np.where(over, rest + right, 0.0)
    bins_rest = np.where(over, used_to[end] - used_to[borders[:, -1]] + new_last, 0.0)
    in_use = used_to[end] - used_to[start] + new_first + new_last
    empty = size - in_use

    # in place from here on: a new array of this size costs more than what is computed for it
    level = np.maximum(bins, 1)
    np.trunc(np.divide(mass, level, out=level), out=level)
    level[bins <= 0] = 0.0
    filled = level > 0
    full = filled.sum(axis=1) * merged
    with np.errstate(divide="ignore", invalid="ignore"):
        from_p, from_q = EPS * empty / in_use, EPS * (size - full) / full
        sum_q = level.sum(axis=1) * merged + EPS * (size - full) - from_q * full
        log_q = np.subtract(level, from_q[:, None], out=level)
        log_q[~filled] = EPS
        np.log(log_q, out=log_q)
        parts = []
        for term in (_x_log_x, _log, _inverse):
            known = cumulative(term(real))
            # the two ends also carry what lies beyond them
            parts.append(known[end] - known[start] + term(first + left) - term(first)
                         + term(last + right) - term(last))  # fmt: skip
        p_log_p = (parts[0] - from_p * (parts[1] + in_use) + from_p**2 / 2 * parts[2]
                   + EPS * np.log(EPS) * empty)  # fmt: skip
        weight = inside
        weight -= np.multiply(from_p[:, None], bins, out=mass)
        np.subtract(merged[:, None], bins, out=mass)
        mass *= EPS
        weight += mass
        weight *= log_q
        p_log_q = weight.sum(axis=1) + np.log(EPS) * (
            in_rest - from_p * bins_rest + EPS * (end - borders[:, -1] - bins_rest)
        )
        found = (p_log_p - p_log_q) / total - np.log(total) + np.log(sum_q)
    found[(full == 0) | (in_use == 0)] = np.inf
    return np.asarray(found)


@cache
def _candidates(bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Each candidate's first bin, the one after its last, and its levels' bins and borders."""
    zero = bins // 2
    grown = np.arange(LEVELS_OF_ENTROPY // 2, zero + 1)
    start, end = zero - grown, np.minimum(zero + grown + 1, bins)
    merged = (end - start) // LEVELS_OF_ENTROPY
    borders = start[:, None] + merged[:, None] * np.arange(LEVELS_OF_ENTROPY + 1)
    return start, end, merged, borders


def _x_log_x(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = values * _log(values)
    return found


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.where(values > 0, values, 1.0))


def _inverse(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, 1.0 / np.where(values > 0, values, 1.0), 0.0)


def check_method(method: str) -> None:
    """Raises UsageError when there is no such method."""
    if method not in METHODS:
        raise UsageError(
            f"unknown calibration method {method!r}",
            code="calibration.method",
            hint=f"use one of {', '.join(METHODS)}",
        )


def amax_of(histogram: ValueHistogram, method: str) -> float:
    """Returns the clipping magnitude of a tensor; 0 when all its values are zero.

    Raises:
        UsageError: The method is not one of ``METHODS``.
    """
    check_method(method)
    if histogram.amax < TINY or _too_large(histogram):
        return histogram.amax
    return min(METHODS[method](histogram), histogram.amax)


def _too_large(histogram: ValueHistogram) -> bool:
    """Tells whether no method clips: the values are a mask's, and none has a scale for it."""
    return histogram.amax > LARGEST_SCALE * LEVELS


def entropy_if_sure(histogram: ValueHistogram) -> float | None:
    """Returns the entropy method's clipping magnitude; None if exact counts may change it.

    Tensors of fewer than ``FEWEST`` values keep their whole range.

    Counts are exact in the histogram's own bins. The method needs bins that end at the largest
    magnitude, so some values may be one bin off, which matters where two candidates tie.
    """
    if histogram.amax < TINY or histogram.total < FEWEST or _too_large(histogram):
        return histogram.amax
    counts, unsure = histogram.regrid(ENTROPY_BINS)
    if unsure.any() and counts.sum() < _FEW:
        return None
    best = nearest_if_sure(counts, unsure)
    return None if best is None else edge_of(best, histogram.low, histogram.high)


def _entropy(histogram: ValueHistogram) -> float:
    if histogram.total < FEWEST:
        return histogram.amax
    counts, _ = histogram.regrid(ENTROPY_BINS)
    return edge_of(nearest(counts), histogram.low, histogram.high)


def _minmax(histogram: ValueHistogram) -> float:
    return histogram.amax


def _percentile(histogram: ValueHistogram) -> float:
    counts = histogram.magnitudes()
    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, cumulative[-1] * (PERCENTILE / 100.0)))
    return (index + 1) * histogram.top / counts.size


def _mse(histogram: ValueHistogram) -> float:
    """Least mean squared error of quantise-dequantise, over the bins' centres."""
    counts = histogram.magnitudes(_MSE_BINS)
    used = np.flatnonzero(counts)
    centres = (used + 0.5) * (histogram.top / counts.size)
    clips = np.arange(_MSE_LEAST, _MSE_CLIPS + 1) * (histogram.amax / _MSE_CLIPS)
    scales = (clips / LEVELS)[:, None]
    codes = np.minimum(np.rint(centres[None, :] / scales), LEVELS)
    error = ((centres[None, :] - codes * scales) ** 2) @ counts[used].astype(np.float64)
    return float(clips[int(np.argmin(error))])


METHODS: dict[str, Callable[[ValueHistogram], float]] = {
    "entropy": _entropy,
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
}
