"""What a placement is judged by: the goal, its bounds, and the value of one placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.placement._loadables import sequences
from edgekit.placement._problem import Problem, loads, metrics

__all__ = ["TOLERANCE", "Goal", "Placing", "evaluate", "settle"]

TOLERANCE = 2e-6  # relative, on bounds; HiGHS keeps rows to 1e-6


@dataclass(frozen=True)
class Goal:
    """What to minimise: the loads weighed by device, or the largest load when ``weights`` is None.

    ``bounds`` limits metrics of the plan: latency_us, energy_uj, gpu_us.
    """

    weights: tuple[float, ...] | None
    bounds: Mapping[str, float] = field(default_factory=dict)

    def value(self, load: Sequence[float]) -> float:
        """Returns the objective for these loads."""
        if self.weights is None:
            return max(load)
        return sum(w * us for w, us in zip(self.weights, load, strict=True))

    def allows(self, problem: Problem, load: Sequence[float]) -> bool:
        """Returns whether these loads keep the bounds."""
        have = metrics(problem, load)
        return all(have[name] <= limit * (1 + TOLERANCE) for name, limit in self.bounds.items())


@dataclass(frozen=True, slots=True)
class Placing:
    """A placement: device index by kernel, the order of its loadables' cores, loads and value."""

    devices: tuple[int, ...]
    sequence: tuple[int, ...]
    load: tuple[float, ...]
    value: float


def settle(
    problem: Problem, devices: Sequence[int], sequence: Sequence[int], goal: Goal
) -> Placing | None:
    """Returns the placement with loadables in this order, or None when it breaks a limit."""
    used = {core: sequence.count(core) for core in sorted(set(sequence))}
    if any(count > problem.max_loadables for count in used.values()):
        return None
    load = tuple(loads(problem, devices, used))
    if not goal.allows(problem, load):
        return None
    return Placing(tuple(devices), tuple(sequence), load, goal.value(load))


def evaluate(problem: Problem, devices: Sequence[int], goal: Goal) -> Placing | None:
    """Returns the best way to run a placement, or None when it breaks a bound or a core's slots."""
    ways = (settle(problem, devices, order, goal) for order in sequences(problem, devices))
    return min((way for way in ways if way), key=lambda way: way.value, default=None)
