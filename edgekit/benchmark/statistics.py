"""Latency statistics as trtexec prints them, in plain Python; the percentiles that so many frames
are too few for; and the limits that a measurement must keep (``targets/_bench.yaml``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from edgekit.benchmark.measurement import CPU_MEASURED
from edgekit.knowledge import data_folder, read_knowledge

# Latency statistics as trtexec prints them, in plain Python.
#
# Source: NVIDIA/TensorRT ``samples/common/sampleReporting.cpp`` (``findPercentile``,
# ``findMedian``, ``findCoeffOfVariance``; the same from v8.6.1 to v11.1): the percentile is a
# measured value, the one that leaves ``floor((1 - p / 100) * n)`` larger ones out; nothing is
# interpolated but the median of an even count.


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


def limit(name: str, clock: str = "") -> float:
    """Returns a limit of ``targets/_bench.yaml``, the one for CPUs where the clock is a CPU's."""
    row = _rows()[name]
    return float(row["cpu"] if clock == CPU_MEASURED and "cpu" in row else row["value"])


@lru_cache(maxsize=1)
def _rows() -> dict[str, Any]:
    found: dict[str, Any] = read_knowledge(data_folder("targets") / "_bench.yaml")["limits"]
    return found


@dataclass(frozen=True, slots=True)
class MeasurementLimits:
    """How long is long enough; trtexec's defaults (``samples/common/sampleOptions.h``).

    Attributes:
        iterations: Frames at least.
        duration_s: Seconds at least.
        warmup_ms: Milliseconds of warm-up at least.
    """

    iterations: int = field(default_factory=lambda: int(limit("iterations")))
    duration_s: float = field(default_factory=lambda: limit("duration_s"))
    warmup_ms: float = field(default_factory=lambda: limit("warmup_ms"))


class Tails(NamedTuple):
    """Names of percentiles ("p90", "p999") that a number of frames does not bear.

    Attributes:
        empty: No frame is beyond: the percentile is the maximum under another name.
        few: Fewer than ``least`` are: an accident of the run.
        least: ``tail_frames`` of ``targets/_bench.yaml``.
    """

    empty: tuple[str, ...]
    few: tuple[str, ...]
    least: int


def tails(frames: int) -> Tails:
    """Returns what so many frames are too few for; the median is never among it."""
    least = int(limit("tail_frames"))
    beyond = {
        f"p{percent:g}".replace(".", ""): (100 - Fraction(str(percent))) * frames / 100
        for percent in PERCENTILES
        if percent > 50
    }
    return Tails(
        tuple(name for name, count in beyond.items() if count < 1),
        tuple(name for name, count in beyond.items() if 1 <= count < least),
        least,
    )
