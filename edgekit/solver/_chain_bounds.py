"""Long chains with bounds on metrics, or with a period to minimise: a bound and a good placement.

The bounds are priced into the goal (Lagrangian relaxation), and what is left is a chain for the
dynamic programme. The best prices come from its own answers (cutting planes, Kelley 1960), and its
best value at any prices is a proven bound. Its placements, each at its prices, are then crossed:
wherever two of them agree on a node outside a loadable, the one can go on as the other, and what
that takes is known without solving anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.solver._chain import chain_optimum, full_or_broken, settle_chain
from edgekit.solver._chain_cross import Rows, cross
from edgekit.solver._effort import Effort
from edgekit.solver._highs import INFINITY, Expression, Program
from edgekit.solver._problem import Goal, Optimum, Placing, Problem

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["chain_search"]

ROUNDS = 40
CLOSE = 5e-5  # relative: where the prices are good enough
PASS = 4e-5  # units of Effort for a chain at given prices, by node and mode
PARENTS = 8  # placements that are crossed
STEEP = 1e4  # most that a microsecond of a bound may cost, in microseconds of the goal


def chain_search(problem: Problem, goal: Goal, *, effort: Effort | None = None) -> Optimum | None:
    """Returns a good placement of a chain and a proven bound, or None when it is no chain.

    It is for goals that :func:`chain_optimum` does not carry; a gap is left as a rule. Without a
    placement the bound tells nothing about there being one.
    """
    effort = effort or Effort(10.0)
    rows = Rows.of(problem, goal)
    prices = rows.first_prices()
    found: list[Placing] = []
    bound, best_prices = -INFINITY, prices
    likely: set[str] = set()
    for _ in range(ROUNDS):
        weights = rows.weights(prices)
        optimum = chain_optimum(problem, Goal(weights[:-1], weights[-1]), likely=likely)
        effort.spend(PASS * len(problem.costs) * len(problem.modes))
        if optimum is None:
            return None
        if optimum.placing is None:
            return Optimum(None, INFINITY)
        value = optimum.bound - rows.paid(prices)
        if value > bound:
            bound, best_prices = value, prices
        found.append(optimum.placing)
        likely, _ = full_or_broken(problem, optimum.placing)
        above, there = _cuts(rows, found)
        if above - bound <= CLOSE * abs(above) or effort.over:
            break
        # Halfway to the best prices so far: the far end of a cutting plane is often far off.
        share = 0.3 if len(prices) > 2 else 0.0
        prices = tuple(
            (1 - share) * new + share * old for new, old in zip(there, best_prices, strict=True)
        )
    found.sort(key=lambda placing: rows.slack(placing, best_prices))
    line = cross(problem, rows, found[:PARENTS])
    if line is None:
        return Optimum(None, max(bound, 0.0))
    chosen = {(border, transfer): way for _, (border, transfer, way) in line.ways}
    priced = Goal((0.0,) * (len(problem.devices) + 1))
    placing = settle_chain(problem, priced, line.modes, line.starts, chosen)
    placing = replace(placing, value=goal.value(placing.load_us, placing.energy_uj))
    return Optimum(placing, max(0.0, min(bound, placing.value)))


def _cuts(rows: Rows, found: Sequence[Placing]) -> tuple[float, tuple[float, ...]]:
    """Returns the most that any prices can reach as far as is known, and those prices."""
    unit = rows.unit
    program = Program()
    top = program.variable(cost=-1.0)
    prices = [program.variable(upper) for upper in rows.steepest(STEEP)]
    if rows.minimax:
        program.row(Expression(dict.fromkeys(prices[: rows.minimax], 1.0)), 1.0, 1.0)
    for placing in found:
        base, over = rows.measure(placing)
        terms = Expression({top: 1.0})
        for price, amount, size in zip(prices, over, rows.sizes, strict=True):
            terms.add(price, -amount / size)
        program.row(terms, high=base / unit)
    solution = program.solve()
    assert solution.values is not None
    values = [
        max(0.0, solution.values[p]) * unit / size
        for p, size in zip(prices, rows.sizes, strict=True)
    ]
    return solution.values[top] * unit, tuple(values)
