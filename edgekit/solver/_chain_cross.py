"""What a goal and its bounds sum over a chain, and placements made of two others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.solver._problem import OUTSIDE, Goal, Placing, Problem

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["Line", "Rows", "cross"]

POINTS = 700  # where two placements may be joined; a square of them is looked through
GENERATIONS = 4
KEPT = 1e-9  # relative, by which a sum may exceed its limit

Vector = tuple[float, ...]
Way = tuple[int, int, int]  # border, transfer, way


@dataclass(frozen=True)
class Rows:
    """Sums over resources and energy: what is minimised, and what is limited.

    Attributes:
        base: Weights of what is minimised; zeros when it is the largest load.
        sums: Weights of each row; the period is the largest of the first ``minimax``.
        limits: Of each row; 0 for these.
        minimax: How many rows the goal is the largest of.
        sizes: By row, a typical value of it over one of the goal.
        unit: A typical value of the goal.
    """

    base: Vector
    sums: tuple[Vector, ...]
    limits: Vector
    minimax: int
    sizes: Vector
    unit: float

    @classmethod
    def of(cls, problem: Problem, goal: Goal) -> Rows:
        """Returns the rows of a goal."""
        count = len(problem.devices)
        single = [(*row, 0.0, 0.0) for row in problem.shares]
        named: dict[str, list[Vector]] = {
            "latency_us": [(*(1.0,) * (count + 1), 0.0)],
            "energy_uj": [(*(0.0,) * (count + 1), 1.0)],
            "gpu_us": [(*(float(name == "GPU") for name in problem.devices), 0.0, 0.0)],
            "period_us": single,
        }
        minimax = len(single) if goal.weights is None else 0
        sums = single[:minimax]
        limits = [0.0] * minimax
        for name, limit in sorted(goal.bounds.items()):
            sums += named[name]
            limits += [limit] * len(named[name])
        base = (*(goal.weights or (0.0,) * (count + 1)), goal.energy)
        typical = [0.0] * (count + 2)
        for row in problem.costs:
            cost = next((c for c in row if c is not None), None)
            if cost is not None:
                typical = [
                    a + b for a, b in zip(typical, (*cost.load_us, cost.energy_uj), strict=True)
                ]
        unit = _dot(base, typical) or sum(typical[:-1]) or 1.0
        sizes = [unit] * minimax + [max(limit, 1e-9) for limit in limits[minimax:]]
        return cls(base, tuple(sums), tuple(limits), minimax, tuple(sizes), unit)

    def first_prices(self) -> Vector:
        """Returns equal prices of the devices whose largest load counts, and nothing else."""
        share = 1.0 / max(1, self.minimax)
        return tuple(share if r < self.minimax else 0.0 for r in range(len(self.sums)))

    def steepest(self, most: float) -> Vector:
        """Returns the largest price of each row, in units of the goal for its size."""
        return tuple(1.0 if r < self.minimax else most for r in range(len(self.sums)))

    def weights(self, prices: Sequence[float]) -> Vector:
        """Returns what every resource and the energy weigh at these prices."""
        return tuple(
            own + sum(p * row[r] for p, row in zip(prices, self.sums, strict=True))
            for r, own in enumerate(self.base)
        )

    def paid(self, prices: Sequence[float]) -> float:
        """Returns what the limits are worth at these prices."""
        return _dot(prices, self.limits)

    def measure(self, placing: Placing) -> tuple[float, Vector]:
        """Returns the weighed part of the goal, and by how much each row is over its limit."""
        have = (*placing.load_us, placing.energy_uj)
        over = (_dot(row, have) - limit for row, limit in zip(self.sums, self.limits, strict=True))
        return _dot(self.base, have), tuple(over)

    def slack(self, placing: Placing, prices: Sequence[float]) -> float:
        """Returns what a placement is worth at prices."""
        base, over = self.measure(placing)
        return base + _dot(prices, over)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def cross(problem: Problem, rows: Rows, found: Sequence[Placing]) -> Line | None:
    """Returns the best placement that keeps the limits, made of parts of those found."""
    parents = [Line.of(problem, placing) for placing in found]
    value, best = float("inf"), None
    for _ in range(GENERATIONS):
        before = best
        for one in parents if before is None else [before]:
            for other in parents:
                made = _joined(problem, rows, one, other)
                if made and made[0] < value - KEPT * abs(made[0]):
                    value, best = made
        if best is before:
            break
    return best


@dataclass(frozen=True, eq=False)
class Line:
    """A placement of a chain with its sums up to each node (loads, energy, changes, loadables).

    A transfer belongs to the node that needs it, one outwards to the node that writes it; ``ways``
    are by that node.
    """

    modes: tuple[int, ...]
    starts: frozenset[int]
    sums: Array
    ways: tuple[tuple[int, Way], ...]

    @classmethod
    def of(cls, problem: Problem, placing: Placing) -> Line:
        import numpy as np

        count, resources = len(placing.modes), len(problem.devices) + 2
        amounts = np.zeros((count + 1, resources + 1 + len(problem.devices)))

        def add(v: int, cost: Any) -> None:
            amounts[v + 1, : resources - 1] += cost.load_us
            amounts[v + 1, resources - 1] += cost.energy_uj

        starts = set()
        for number, step in enumerate(placing.steps):
            first = step.nodes[0]
            if problem.launch[step.device] is not None:
                add(first, problem.launch[step.device])
                amounts[first + 1, resources + 1 + step.device] += 1
                starts.add(first)
            if number and placing.steps[number - 1].device != step.device:
                amounts[first + 1, resources] += 1
        for v, mode in enumerate(placing.modes):
            add(v, problem.costs[v][mode])
        ways = []
        for b, t, way in placing.ways:
            border = problem.borders[b]
            mode = problem.outside if border.producer == OUTSIDE else placing.modes[border.producer]
            outwards = border.output and (mode, problem.outside) in border.transfers[t].pairs
            inner = border.producer == OUTSIDE or not outwards
            at = border.consumers[0] if inner else border.producer
            add(at, border.transfers[t].ways[way])
            ways.append((at, (b, t, way)))
        return cls(placing.modes, frozenset(starts), amounts.cumsum(axis=0), tuple(ways))


def _joined(problem: Problem, rows: Rows, one: Line, other: Line) -> tuple[float, Line] | None:
    """Returns the best line that is ``one`` but for a stretch of ``other``, with its value."""
    import numpy as np

    count = len(one.modes)
    common = [
        v + 1
        for v in range(count - 1)
        if one.modes[v] == other.modes[v] and problem.device(one.modes[v]) not in problem.cores
    ]
    if len(common) > POINTS:
        common = [common[i * len(common) // POINTS] for i in range(POINTS)]
    points = np.array([0, *common, count])
    change = other.sums[points] - one.sums[points]
    total = one.sums[-1]
    resources = len(problem.devices) + 2

    def table(weights: Sequence[float]) -> Array:
        line = change[:, : len(weights)] @ np.array(weights)
        made: Array = float(total[: len(weights)] @ np.array(weights)) + line[None] - line[:, None]
        return made

    value = table(rows.base)
    wrong = np.tril(np.ones(value.shape, dtype=bool), -1)
    largest = None
    for number, (row, limit) in enumerate(zip(rows.sums, rows.limits, strict=True)):
        have = table(row)
        if number < rows.minimax:
            largest = have if largest is None else np.maximum(largest, have)
        else:
            wrong |= have > limit * (1 + KEPT)
    most = problem.max_transitions[0]
    if most is not None:
        wrong |= table([0.0] * resources + [1.0]) > most
    if problem.max_loadables is not None:
        for core in problem.cores:
            row_ = [0.0] * (resources + 1 + core) + [1.0]
            wrong |= table(row_) > problem.max_loadables + 0.5
    value = np.where(wrong, np.inf, value if largest is None else largest)
    if problem.contiguous[0]:  # no stretch at all: runs do not add up
        value = np.where(np.eye(len(points), dtype=bool), value, np.inf)
    i, j = np.unravel_index(int(value.argmin()), value.shape)
    if value[i, j] == np.inf:
        return None
    low, high = int(points[i]), int(points[j])
    modes = one.modes[:low] + other.modes[low:high] + one.modes[high:]
    starts = {v for v in one.starts if not low <= v < high}
    starts |= {v for v in other.starts if low <= v < high}
    sums = one.sums.copy()
    sums[low:high] = one.sums[low] + other.sums[low:high] - other.sums[low]
    sums[high:] += other.sums[high] - other.sums[low] - (one.sums[high] - one.sums[low])
    ways = [at for at in one.ways if not low <= at[0] < high]
    ways += [at for at in other.ways if low <= at[0] < high]
    return float(value[i, j]), Line(modes, frozenset(starts), sums, tuple(ways))
