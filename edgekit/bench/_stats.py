"""Latency statistics as trtexec prints them, in plain Python.

Source: NVIDIA/TensorRT ``samples/common/sampleReporting.cpp`` (``findPercentile``, ``findMedian``,
``findCoeffOfVariance``; the same from v8.6.1 to v11.1): the percentile is a measured value, the
one that leaves ``floor((1 - p / 100) * n)`` larger ones out; nothing is interpolated but the
median of an even count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

__all__ = [
    "PERCENTILES",
    "coefficient_of_variation",
    "latency_summary",
    "mean",
    "median",
    "percentile",
]

PERCENTILES: tuple[float, ...] = (50, 90, 95, 99, 99.9)


def mean(samples: Sequence[float]) -> float:
    """Returns the arithmetic mean; ValueError for no samples."""
    if not samples:
        raise ValueError("no samples")
    return math.fsum(samples) / len(samples)


def median(samples: Sequence[float]) -> float:
    """Returns the middle sample, or the mean of the two middle ones; ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(samples: Sequence[float], percent: float) -> float:
    """Returns trtexec's percentile: the sample with ``floor((1 - percent/100) * n)`` above it.

    The rank is exact, where trtexec's single precision can be one off at whole multiples.

    Raises:
        ValueError: No samples, or ``percent`` outside 0 to 100.
    """
    if not samples:
        raise ValueError("no samples")
    if not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent} is not in 0 to 100")
    excluded = math.floor((100 - Fraction(str(percent))) * len(samples) / 100)
    return sorted(samples)[max(len(samples) - 1 - excluded, 0)]


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Returns population standard deviation over mean (0.02 is 2 %); 0 for a zero mean."""
    centre = mean(samples)
    if centre == 0:
        return 0.0
    variance = math.fsum((value - centre) ** 2 for value in samples) / len(samples)
    return math.sqrt(variance) / abs(centre)


def latency_summary(samples: Sequence[float]) -> dict[str, float]:
    """Returns "min", "mean", "median", "p50" ... "p999" (p99.9), "max" in the samples' unit.

    Raises:
        ValueError: No samples.
    """
    summary = {"min": min(samples), "mean": mean(samples), "median": median(samples)}
    summary |= {
        f"p{percent:g}".replace(".", ""): percentile(samples, percent) for percent in PERCENTILES
    }
    summary["p50"] = summary["median"]  # one document says one thing
    summary["max"] = max(samples)
    return summary
