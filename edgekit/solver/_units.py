"""Loads and energies in units of a size that solvers can work with.

The tolerances of HiGHS are absolute, and sums of CP-SAT must stay below 1e13. What is far larger or
smaller than a few thousand is therefore scaled by a power of two before any solver sees it, and
back: that is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar, overload

from edgekit.solver._problem import Cost, Goal, Placing, Problem

__all__ = ["Units"]

LEAST, MOST = 2.0, 2.0**22  # totals that are left alone
AIM = 12  # the binary exponent of others

T = TypeVar("T")


def _exponent(total: float) -> int:
    """Returns by which power of two a total becomes one of usual size."""
    if total == 0 or LEAST <= total <= MOST or not math.isfinite(total):
        return 0
    return AIM - math.frexp(total)[1]


@dataclass(frozen=True, slots=True)
class Units:
    """The powers of two by which loads, energies and the goal's value are multiplied."""

    load: int = 0
    energy: int = 0
    value: int = 0

    @classmethod
    def of(cls, problem: Problem, goal: Goal) -> Units:
        """Returns the units that suit a problem and goal."""
        load = _exponent(_total(problem, lambda cost: sum(cost.load_us)))
        energy = _exponent(_total(problem, lambda cost: cost.energy_uj))
        if goal.weights is None:
            return cls(load, energy, load)
        base = load if any(goal.weights) else energy
        own = _total(problem, lambda cost: goal.value(cost.load_us, cost.energy_uj))
        return cls(load, energy, base + _exponent(math.ldexp(own, base)))

    @property
    def plain(self) -> bool:
        """Whether nothing changes."""
        return not (self.load or self.energy or self.value)

    def problem(self, problem: Problem) -> Problem:
        """Returns a problem in these units."""
        if not (self.load or self.energy):
            return problem
        return replace(
            problem,
            costs=tuple(tuple(map(self._cost, row)) for row in problem.costs),
            launch=tuple(map(self._cost, problem.launch)),
            borders=tuple(
                replace(
                    border,
                    transfers=tuple(
                        replace(transfer, ways=tuple(map(self._cost, transfer.ways)))
                        for transfer in border.transfers
                    ),
                )
                for border in problem.borders
            ),
        )

    @overload
    def _cost(self, cost: Cost) -> Cost: ...
    @overload
    def _cost(self, cost: None) -> None: ...
    def _cost(self, cost: Cost | None) -> Cost | None:
        if cost is None:
            return None
        loads = tuple(math.ldexp(us, self.load) for us in cost.load_us)
        return Cost(loads, math.ldexp(cost.energy_uj, self.energy))

    def goal(self, goal: Goal) -> Goal:
        """Returns a goal in these units."""
        if self.plain:
            return goal
        weights = goal.weights
        if weights is not None:
            weights = tuple(math.ldexp(w, self.value - self.load) for w in weights)
        bounds = {
            name: math.ldexp(limit, self.energy if name == "energy_uj" else self.load)
            for name, limit in goal.bounds.items()
        }
        energy = math.ldexp(goal.energy, self.value - self.energy)
        return Goal(weights, energy, bounds, goal.shares)

    def placing(self, placing: T, back: int = 1) -> T:
        """Returns a placement (or None) in these units."""
        if not isinstance(placing, Placing) or self.plain:
            return placing
        return replace(
            placing,
            load_us=tuple(math.ldexp(us, back * self.load) for us in placing.load_us),
            energy_uj=math.ldexp(placing.energy_uj, back * self.energy),
            value=math.ldexp(placing.value, back * self.value),
        )

    def real(self, placing: T) -> T:
        """Returns a placement (or None) in microseconds and microjoules."""
        return self.placing(placing, -1)

    def real_value(self, value: float) -> float:
        """Returns a value of the goal, or a bound of it, as it was asked for."""
        return math.ldexp(value, -self.value)


def _total(problem: Problem, amount: Callable[[Cost], float]) -> float:
    """Returns the least that all nodes can take together; if that is nothing, the most of any."""
    rows = [[amount(cost) for cost in row if cost is not None] for row in problem.costs]
    least = math.fsum(min(row) for row in rows if row)
    return least if least > 0 else max(map(abs, _every(problem, rows, amount)), default=0.0)


def _every(
    problem: Problem, rows: list[list[float]], amount: Callable[[Cost], float]
) -> Iterable[float]:
    for row in rows:
        yield from row
    for border in problem.borders:
        for transfer in border.transfers:
            yield from map(amount, transfer.ways)
    yield from (amount(cost) for cost in problem.launch if cost is not None)
