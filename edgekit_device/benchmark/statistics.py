"""Statistics of times as trtexec prints them, in plain Python; the host also uses them.

Source: NVIDIA/TensorRT ``samples/common/sampleReporting.cpp`` (``findPercentile``, ``findMedian``;
the same from v8.6.1 to v11.1): a percentile is a measured value, the largest after leaving out the
``floor((1 - p / 100) * n)`` largest values; only the median of an even count is interpolated.
"""

from __future__ import annotations

import math
from typing import Dict, Sequence, Tuple

PERCENTILES: Tuple[float, ...] = (50, 90, 95, 99, 99.9)
#: The keys of ``summary``.
STATISTICS = ("min", "mean", "median", "p50", "p90", "p95", "p99", "p999", "max")


def percentile_name(percent: float) -> str:
    """Returns a percentile's name in documents: "p99", and "p999" for 99.9."""
    return "p{:g}".format(percent).replace(".", "")


def median(samples: Sequence[float]) -> float:
    """Returns the middle sample, or the mean of the two middle samples; ValueError if empty."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(samples: Sequence[float], percent: float) -> float:
    """Returns trtexec's percentile; tenths of a percent count.

    The rank is exact; trtexec's, in single precision, can be off by 1 at whole multiples.

    Raises:
        ValueError: No samples, or ``percent`` outside 0 to 100.
    """
    if not samples:
        raise ValueError("no samples")
    if not 0 <= percent <= 100:
        raise ValueError("percentile {} is not in 0 to 100".format(percent))
    # whole numbers: (1 - 0.9) * 10 is a little below 1 in doubles
    excluded = (1000 - round(10 * percent)) * len(samples) // 1000
    return sorted(samples)[max(len(samples) - 1 - excluded, 0)]


def summary(samples: Sequence[float]) -> Dict[str, float]:
    """Returns "min", "mean", "median", "p50" ... "p999", "max" in the samples' unit.

    "p50" is the median.

    Raises:
        ValueError: No samples.
    """
    middle, ordered = median(samples), sorted(samples)
    found = {"min": ordered[0], "mean": math.fsum(ordered) / len(ordered), "median": middle}
    for percent in PERCENTILES:
        found[percentile_name(percent)] = percentile(ordered, percent)
    found["p50"] = middle  # consistent within a document
    found["max"] = ordered[-1]
    return found
