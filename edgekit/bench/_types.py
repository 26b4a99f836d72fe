"""The values of this floor: what a measurement must fulfil, and slots of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLOCKS", "CPU_MEASURED", "PREDICTED", "Limits", "Slot"]

CPU_MEASURED = "cpu-measured"
PREDICTED = "predicted"
CLOCKS = (CPU_MEASURED, "board-measured", PREDICTED)


@dataclass(frozen=True, slots=True)
class Limits:
    """What makes a measurement worth quoting.

    The first three are trtexec's defaults (``samples/common/sampleOptions.h``:
    ``defaultIterations`` 10, ``defaultDuration`` 3 s, ``defaultWarmUp`` 200 ms). trtexec calls a
    GPU's times unstable from a coefficient of variation of 1 %; a shared CPU is never that calm,
    so a CPU measurement has the wider limit.
    """

    iterations: int = 10
    duration_s: float = 3.0
    warmup_ms: float = 200.0
    max_cv: float = 0.01
    max_cv_cpu: float = 0.20

    def cv_for(self, clock: str) -> float:
        """Returns the limit on the coefficient of variation for a clock."""
        return self.max_cv_cpu if clock == CPU_MEASURED else self.max_cv


@dataclass(frozen=True, slots=True)
class Slot:
    """One segment's turn on one device; times in microseconds from the first frame's start.

    Attributes:
        variant: Index in ``Plan.plans``.
        segment: Segment number in running order.
        device: "GPU", "DLA0" or "DLA1".
        start_us: Start.
        layers: Name and duration in microseconds, in running order, back to back from the start.
    """

    variant: int
    segment: int
    device: str
    start_us: float
    layers: tuple[tuple[str, float], ...]

    @property
    def duration_us(self) -> float:
        """Sum of the layers' durations."""
        return sum(duration for _, duration in self.layers)
