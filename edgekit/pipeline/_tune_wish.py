"""What is asked of a tuning, and who measures for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from edgekit.placement import Plan

__all__ = ["Measurer", "Wish"]


class Measurer(Protocol):
    """Builds plans and measures them.

    Attributes:
        clock: "cpu-measured" or "board-measured".
        origin: "board", "backend" and whatever else tells its measurements from others.
        again_s: Seconds that measuring a plan takes that is built already; 0: not known yet.
    """

    @property
    def clock(self) -> str: ...

    @property
    def origin(self) -> Mapping[str, Any]: ...

    @property
    def again_s(self) -> float: ...

    def measure(self, plan: Plan) -> Mapping[str, Any]:
        """Returns an ``edgekit.device.bench/1`` of a plan; an EdgekitError drops the plan."""


@dataclass(frozen=True)
class Wish:
    """How far to go.

    Attributes:
        objective: What is made small; of :data:`edgekit.placement.OBJECTIVES`.
        budget_s: Seconds for everything; None: no limit.
        rounds: Plans to measure at most.
        turns: Turns of the first and the best plan at the end; 5 or more can prove anything.
        tolerance: Relative improvement that is worth a measurement.
        seed: Of samples.
    """

    objective: str = "latency"
    budget_s: float | None = None
    rounds: int = 12
    turns: int = 5
    tolerance: float = 0.01
    seed: int = 0
