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
    "Step",
]

BOARD_MEASURED = "board-measured"
CPU_MEASURED = "cpu-measured"
PREDICTED = "predicted"
CPU_PLACE = "a CPU, reference backend (not a board time)"  # a board has one, too
CLOCKS = (CPU_MEASURED, BOARD_MEASURED, PREDICTED)
LATEST_US = 1e12
"""No measurement is longer than these 11 days, and a double still holds their nanoseconds."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a turn: "layer", "reformat" (of a tensor), "launch" of a loadable with what its
    formats cost, or "unfused" (what broken fusions cost that is of no layer)."""

    kind: str
    name: str
    us: float


@dataclass(frozen=True, slots=True)
class Slot:
    """One turn of a device; times in microseconds from the first frame's start.

    Attributes:
        variant: Index in ``Plan.plans``.
        segment: Segment number in running order; for a turn without layers, in which the GPU
            reformats what a DLA reads or has written, that of the DLA's segment.
        device: "GPU", "DLA0" or "DLA1".
        start_us: Start.
        steps: What it does, in running order, back to back from the start.
    """

    variant: int
    segment: int
    device: str
    start_us: float
    steps: tuple[Step, ...]

    @property
    def layers(self) -> tuple[tuple[str, float], ...]:
        """Name and microseconds of its layers."""
        return tuple((step.name, step.us) for step in self.steps if step.kind == "layer")

    @property
    def duration_us(self) -> float:
        """Sum of its steps."""
        return sum(step.us for step in self.steps)
