"""The values of this floor: clocks, and slots of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BOARD_MEASURED",
    "CLOCKS",
    "CPU_MEASURED",
    "CPU_PLACE",
    "LATEST_US",
    "PREDICTED",
    "Slot",
]

BOARD_MEASURED = "board-measured"
CPU_MEASURED = "cpu-measured"
PREDICTED = "predicted"
CPU_PLACE = "a CPU, reference backend (not a board time)"  # a board has one, too
CLOCKS = (CPU_MEASURED, BOARD_MEASURED, PREDICTED)
LATEST_US = 1e12
"""No measurement is longer than these 11 days, and a double still holds their nanoseconds."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One segment's turn on one device; times in microseconds from the first frame's start.

    Attributes:
        variant: Index in ``Plan.plans``.
        segment: Segment number in running order.
        device: "GPU", "DLA0" or "DLA1".
        start_us: Start.
        layers: Name and duration in microseconds, in running order, back to back from the start.
        paid_us: What the segment takes beyond its layers: a loadable's launch and its formats.
    """

    variant: int
    segment: int
    device: str
    start_us: float
    layers: tuple[tuple[str, float], ...]
    paid_us: float = 0.0

    @property
    def duration_us(self) -> float:
        """Sum of the layers' durations and of what is paid beyond them."""
        return self.paid_us + sum(duration for _, duration in self.layers)
