"""A placement to try whose busiest device has little to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.placement._optimise import Part
from edgekit.solver import Goal, Placing, Problem, minimise

if TYPE_CHECKING:
    from edgekit.placement._types import Options

__all__ = ["balanced"]

BALANCING = 5
"""Placements that are looked at for a small period."""


def balanced(problem: Problem, options: Options) -> tuple[Part, ...]:
    """Returns a placement whose busiest device has little to do.

    The proven least takes CP-SAT, in a process of its own; a candidate need not be proven. Prices
    of the devices' time are raised where there is much to do (multiplicative weights), and the
    best placement that any prices have is taken.
    """
    count = len(problem.devices)
    prices = [1.0] * count
    best: Placing | None = None
    for _ in range(BALANCING):
        total = sum(prices)
        weights = (*(price / total for price in prices), 0.0)
        found = minimise(problem, Goal(weights, 0.0, dict(options.bounds)), seconds=10.0).placing
        if found is None:
            break
        if best is None or max(found.load_us[:-1]) < max(best.load_us[:-1]):
            best = found
        mean = sum(found.load_us[:-1]) / count
        prices = [
            price * (0.25 + us / mean if mean else 1.0)
            for price, us in zip(prices, found.load_us, strict=False)
        ]
    return (Part(1.0, best),) if best is not None else ()
