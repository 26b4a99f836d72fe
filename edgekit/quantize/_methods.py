"""From a histogram to the magnitude at which a tensor is clipped (amax)."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.dla import LEVELS
from edgekit.errors import UsageError
from edgekit.quantize._histogram import TINY, Histogram
from edgekit.quantize._methods_entropy import ENTROPY_BINS, edge_of, nearest, nearest_if_sure
from edgekit.quantize._scales import LARGEST_SCALE

__all__ = [
    "FEWEST",
    "METHODS",
    "PERCENTILE",
    "amax_of",
    "check_method",
    "entropy_if_sure",
]

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


def check_method(method: str) -> None:
    """Raises UsageError when there is no such method."""
    if method not in METHODS:
        raise UsageError(
            f"unknown calibration method {method!r}",
            code="calibration.method",
            hint=f"use one of {', '.join(METHODS)}",
        )


def amax_of(histogram: Histogram, method: str) -> float:
    """Returns the clipping magnitude of a tensor; 0 when all its values are zero.

    Raises:
        UsageError: The method is not one of ``METHODS``.
    """
    check_method(method)
    if histogram.amax < TINY or _too_large(histogram):
        return histogram.amax
    return min(METHODS[method](histogram), histogram.amax)


def _too_large(histogram: Histogram) -> bool:
    """Tells whether no method clips: the values are a mask's, and none has a scale for it."""
    return histogram.amax > LARGEST_SCALE * LEVELS


def entropy_if_sure(histogram: Histogram) -> float | None:
    """Returns the entropy method's clipping magnitude; None where exact counts may change it.

    Tensors of fewer than ``FEWEST`` values keep their whole range.

    Counts are exact in the histogram's own bins. The method asks for bins that end at the largest
    magnitude, so some values may be one bin off, which matters where two candidates tie.
    """
    if histogram.amax < TINY or histogram.total < FEWEST or _too_large(histogram):
        return histogram.amax
    counts, unsure = histogram.regrid(ENTROPY_BINS)
    if unsure.any() and counts.sum() < _FEW:
        return None
    best = nearest_if_sure(counts, unsure)
    return None if best is None else edge_of(best, histogram.low, histogram.high)


def _entropy(histogram: Histogram) -> float:
    if histogram.total < FEWEST:
        return histogram.amax
    counts, _ = histogram.regrid(ENTROPY_BINS)
    return edge_of(nearest(counts), histogram.low, histogram.high)


def _minmax(histogram: Histogram) -> float:
    return histogram.amax


def _percentile(histogram: Histogram) -> float:
    import numpy as np

    counts = histogram.magnitudes()
    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, cumulative[-1] * (PERCENTILE / 100.0)))
    return (index + 1) * histogram.top / counts.size


def _mse(histogram: Histogram) -> float:
    """Least mean squared error of quantise-dequantise, over the bins' centres."""
    import numpy as np

    counts = histogram.magnitudes(_MSE_BINS)
    used = np.flatnonzero(counts)
    centres = (used + 0.5) * (histogram.top / counts.size)
    clips = np.arange(_MSE_LEAST, _MSE_CLIPS + 1) * (histogram.amax / _MSE_CLIPS)
    scales = (clips / LEVELS)[:, None]
    codes = np.minimum(np.rint(centres[None, :] / scales), LEVELS)
    error = ((centres[None, :] - codes * scales) ** 2) @ counts[used].astype(np.float64)
    return float(clips[int(np.argmin(error))])


METHODS: dict[str, Callable[[Histogram], float]] = {
    "entropy": _entropy,
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
}
