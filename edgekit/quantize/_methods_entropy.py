"""The entropy method: the clipping magnitude whose INT8 histogram is nearest to the real one.

The method of TensorRT's IInt8EntropyCalibrator2 (S. Migacz, "8-bit inference with TensorRT", GTC
2017) in the open form that ONNX Runtime carries (``onnxruntime/quantization/calibrate.py``,
``HistogramCollector.get_entropy_threshold`` and ``smooth_distribution``): a histogram of both
signs, candidates that grow by one bin on each side, 128 levels, counts cut to integers, empty bins
smoothed. The same histogram gives the same threshold as there, bit for bit.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edgekit.quantize._entropy_original import EPS, LEVELS_OF_ENTROPY, as_original

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ENTROPY_BINS",
    "LARGE",
    "LEVELS_OF_ENTROPY",
    "edge_of",
    "edges",
    "nearest",
    "nearest_if_sure",
]

# twice as much may be beyond float32
LARGE = 2.0**126
ENTROPY_BINS = 2048
# candidates this near to the least (relative; absolute) are told apart in its own arithmetic
_CLOSE, _CLOSE_ABSOLUTE = 2e-3, 1e-6
# how many standard deviations of a bin's counts a rival must be away, and float32's own noise
_SURE, _ROUNDING = 6.0, 1e-7
_DRAWS = 2


def nearest(counts: np.ndarray) -> int:
    """Returns the candidate, in bins on each side of zero, with the least divergence.

    Args:
        counts: int64 [an even number], over [-amax, amax].
    """
    import numpy as np

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
    import numpy as np

    factor = np.float32(4.0 if amax >= LARGE else 1.0)
    top = np.float32(amax) / factor
    return np.asarray(np.linspace(-top, top, bins + 1, dtype=np.float32) * factor)


def nearest_if_sure(counts: np.ndarray, unsure: np.ndarray) -> int | None:
    """Returns the nearest candidate, where counts that are not exact do not leave it open.

    Args:
        counts: int64 [bins].
        unsure: float64 [bins + 1], by how much the count below each edge may be wrong.

    Returns:
        The candidate; None where one more than a bin away may in truth be nearer.
    """
    import numpy as np

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
    import numpy as np

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
    import numpy as np

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
    """Each candidate's first bin, the one behind its last, and its levels' bins and borders."""
    import numpy as np

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
    import numpy as np

    return np.log(np.where(values > 0, values, 1.0))


def _inverse(values: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.where(values > 0, 1.0 / np.where(values > 0, values, 1.0), 0.0)
