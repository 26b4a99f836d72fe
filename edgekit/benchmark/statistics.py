"""The variation of times, the percentiles that need more frames, and the limits of a measurement
(``targets/_bench.yaml``). Percentiles are ``edgekit_device``'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from edgekit.benchmark.measurement import CPU_MEASURED
from edgekit.knowledge import data_folder, read_facts
from edgekit_device.benchmark.statistics import PERCENTILES, percentile_name
from edgekit_device.protocol.codec import document


def mean(samples: Sequence[float]) -> float:
    """Returns the arithmetic mean; ValueError for no samples."""
    if not samples:
        raise ValueError("no samples")
    return math.fsum(samples) / len(samples)


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Returns population standard deviation over mean (0.02 is 2 %); 0 for a zero mean."""
    centre = mean(samples)
    if centre == 0:
        return 0.0
    variance = math.fsum((value - centre) ** 2 for value in samples) / len(samples)
    return math.sqrt(variance) / abs(centre)


def limit(name: str, clock: str = "") -> float:
    """Returns a limit of ``targets/_bench.yaml``; for a CPU's clock, the limit for CPUs."""
    row = _limits()[name]
    return row.cpu if clock == CPU_MEASURED and row.cpu is not None else row.value


@document(frozen=True)
class Limit:
    """A limit, with its value for measurements on a CPU if that differs."""

    value: float
    what: str
    cpu: float | None = None
    derived: Mapping[str, str] = field(default_factory=dict)


@document(frozen=True)
class LimitsFile:
    """``targets/_bench.yaml``."""

    limits: Mapping[str, Limit]
    sources: Mapping[str, str]


@lru_cache(maxsize=1)
def _limits() -> Mapping[str, Limit]:
    path = data_folder("targets") / "_bench.yaml"
    return read_facts(LimitsFile, path, "edgekit.bench-limits/1").limits


@dataclass(frozen=True, slots=True)
class MeasurementLimits:
    """The least length of a measurement; trtexec's defaults (``samples/common/sampleOptions.h``).

    Attributes:
        iterations: Least number of frames.
        duration_s: Least duration in seconds.
        warmup_ms: Least warm-up in milliseconds.
    """

    iterations: int = field(default_factory=lambda: int(limit("iterations")))
    duration_s: float = field(default_factory=lambda: limit("duration_s"))
    warmup_ms: float = field(default_factory=lambda: limit("warmup_ms"))


class SparsePercentiles(NamedTuple):
    """Names of percentiles ("p90", "p999") for which there are too few frames.

    Attributes:
        empty: Percentiles without a frame beyond: equal to the maximum.
        few: Percentiles with fewer than ``least`` frames beyond: accidental.
        least: Frames beyond a percentile that are required, ``tail_frames`` of
            ``targets/_bench.yaml``.
    """

    empty: tuple[str, ...]
    few: tuple[str, ...]
    least: int


def sparse_percentiles(frames: int) -> SparsePercentiles:
    """Returns the percentiles for which there are too few frames; never the median."""
    least = int(limit("tail_frames"))
    beyond = {
        # in tenths of a percent: 100 - 99.9 is not 0.1 in binary
        percentile_name(percent): (1000 - round(10 * percent)) * frames / 1000
        for percent in PERCENTILES
        if percent > 50
    }
    return SparsePercentiles(
        tuple(name for name, count in beyond.items() if count < 1),
        tuple(name for name, count in beyond.items() if 1 <= count < least),
        least,
    )
