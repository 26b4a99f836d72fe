"""What a measurement must fulfil (``targets/_bench.yaml``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.bench._types import CPU_MEASURED

__all__ = ["Limits", "is_own", "limit"]


def limit(name: str, clock: str = "") -> float:
    """Returns a limit of ``targets/_bench.yaml``, the one for CPUs where the clock is a CPU's."""
    row = _rows()[name]
    return float(row["cpu"] if clock == CPU_MEASURED and "cpu" in row else row["value"])


def is_own(name: str, clock: str = "") -> bool:
    """Says whether no source has this limit: it is edgekit's own choice."""
    row = _rows()[name]
    on_cpu = clock == CPU_MEASURED and "cpu" in row  # no source speaks of the reference backend
    return on_cpu or row["source"][0] == "own"


@lru_cache(maxsize=1)
def _rows() -> dict[str, Any]:
    found: dict[str, Any] = read_knowledge(data_folder("targets") / "_bench.yaml")["limits"]
    return found


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is long enough; trtexec's defaults (``samples/common/sampleOptions.h``).

    Attributes:
        iterations: Frames at least.
        duration_s: Seconds at least.
        warmup_ms: Milliseconds of warm-up at least.
    """

    iterations: int = field(default_factory=lambda: int(limit("iterations")))
    duration_s: float = field(default_factory=lambda: limit("duration_s"))
    warmup_ms: float = field(default_factory=lambda: limit("warmup_ms"))
