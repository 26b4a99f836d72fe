"""How much a search may still work, counted the same on every machine.

A unit is about a second on a free core of 2024, but what is counted is work: rounds of HiGHS's
search by the size of its model, CP-SAT's deterministic time, simplex iterations, sets looked at.
The clock ends a search only at ``CLOCK`` times as many seconds.
"""

from __future__ import annotations

import time

__all__ = ["CLOCK", "Effort"]

CLOCK = 10.0
"""Seconds by the clock for each unit: a last resort, far behind the units on any usable machine."""
LEAST_S = 10.0


class Effort:
    """What is left to a search, or to a part of one: a part spends of the whole, too.

    Attributes:
        left: Units.
    """

    def __init__(self, units: float, whole: Effort | None = None) -> None:
        self.left = units
        self._whole = whole
        self._clocked = False
        self.ends = time.monotonic() + max(LEAST_S, CLOCK * units)
        if whole is not None:
            self.ends = min(self.ends, whole.ends)

    def part(self, units: float) -> Effort:
        """Returns an account of at most so many units."""
        return Effort(max(0.0, min(units, self.left)), self)

    def spend(self, units: float) -> None:
        """Takes units off what is left."""
        self.left -= units
        if self._whole is not None:
            self._whole.spend(units)

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        if self.left <= 0:
            return True
        if time.monotonic() < self.ends:
            return False
        self.stopped()
        return True

    def stopped(self) -> None:
        """Notes that the clock ended the search."""
        self._clocked = True
        if self._whole is not None:
            self._whole.stopped()

    @property
    def clocked(self) -> bool:
        """Whether the clock ended any of it, so that another run may end elsewhere."""
        return self._clocked

    @property
    def seconds(self) -> float:
        """What the clock leaves, for solvers that are to watch it as well."""
        return max(0.1, self.ends - time.monotonic())
