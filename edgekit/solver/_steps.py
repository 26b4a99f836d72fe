"""Placements with their running order solved at once by CP-SAT: exact for every constraint."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from edgekit.solver._cpsat import run_worker
from edgekit.solver._effort import Effort
from edgekit.solver._problem import OUTSIDE, Goal, Optimum, Placing, Problem, Step, metrics
from edgekit.solver._steps_request import Row, Scale, positions, steps_request
from edgekit.solver._units import Units

__all__ = ["broken_sets", "fits", "placed", "solve_steps", "steps_of"]

GAP = 1e-6
UNITS = 1.7
"""Of Effort for one of CP-SAT's deterministic time."""
EFFORT_PER_CALL = 0.02
"""What a call takes beyond its search."""
FIRST_LEVELS = 3
SHARE = 0.3
"""Of the remaining effort, for a placement with few levels, which proves nothing."""


def solve_steps(
    problem: Problem,
    goal: Goal,
    *,
    start: Placing | None = None,
    lower: float = 0.0,
    seconds: float = 60.0,
    effort: Effort | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> Optimum:
    """Minimises a goal exactly, every constraint of the problem included.

    Args:
        problem: What to place.
        goal: What to minimise, under which bounds.
        start: A placement to begin from; its value bounds the search.
        lower: A proven lower bound.
        seconds: Of search; counted in CP-SAT's deterministic time, so that the answer is the
            same every time, and by the clock at ten times as much, which the result says.
        effort: The account of a larger search, which this one spends of, instead.
        progress: Told the best value and the bound between CP-SAT's searches.

    Returns:
        The best placement found (``start`` when nothing better is) and a proven bound.

    Raises:
        EnvironmentLack: OR-Tools is missing or its process failed.
    """
    if any(all(cost is None for cost in costs) for costs in problem.costs):
        return Optimum(None, math.inf)
    account = Effort(seconds) if effort is None else effort.part(effort.left)
    units = Units.of(problem, goal)
    least = math.ldexp(lower, units.value)
    search = _Search(units.problem(problem), units.goal(goal), units.placing(start), least, account)
    levels = FIRST_LEVELS
    while search.going:
        if search.solve(levels, tail=False):
            break
        if search.going:
            search.solve(levels, tail=True)
        levels *= 2
        if progress and search.best is not None:
            progress(units.real_value(search.best.value), units.real_value(search.bound))
    found = search.optimum()
    return Optimum(units.real(found.placing), units.real_value(found.bound), account.clocked)


class _Search:
    """Deepening: few levels find a placement, and with a tail for all others prove it or not."""

    def __init__(
        self, problem: Problem, goal: Goal, start: Placing | None, lower: float, effort: Effort
    ) -> None:
        self.problem, self.goal = problem, goal
        self.best, self.bound = start, lower
        self.forbidden: list[list[int]] = []
        self.strict = False
        self.effort = effort

    @property
    def going(self) -> bool:
        """Whether anything is left to prove, and to prove it with."""
        proven = self.best is not None and self.best.value - self.bound <= GAP * self.best.value
        open_ = not proven and self.bound < math.inf
        return open_ and not self.effort.over

    def optimum(self) -> Optimum:
        if self.best is None:
            return Optimum(None, self.bound)
        return Optimum(self.best, min(self.bound, self.best.value))

    def solve(self, levels: int, *, tail: bool) -> bool:
        """Solves with so many levels; returns whether there cannot be more."""
        problem = self.problem
        most = _most_loadables(problem, self.goal, self.best)
        rows = [
            positions(problem, i, most=most, levels=levels, tail=tail)
            for i in range(len(problem.networks))
        ]
        exact = not any(row.short for row in rows)
        if not all(row.devices for row in rows):  # nowhere to go: no GPU, and no loadable allowed
            self._prove(None, None)
            return True
        while self.going:
            request, scale = steps_request(
                problem, self.goal, rows,
                start=self.best, lower=self.bound, strict=self.strict and not tail,
            )  # fmt: skip
            request |= {"forbidden": self.forbidden, "gap": GAP}
            request["effort"] = self.effort.left / UNITS * (1 if tail or exact else SHARE)
            answer = run_worker("steps", request, seconds=self.effort.seconds)
            self.effort.spend(UNITS * answer["effort"] + EFFORT_PER_CALL)
            if answer["clocked"]:
                self.effort.stopped()
            if tail or (exact and not self.strict):
                self._prove(answer["bound"], scale)
            if "mode" not in answer or (tail and not exact):
                break
            steps = steps_of(problem, answer["mode"], answer["position"], rows)
            if broken := broken_sets(problem, steps):
                self.forbidden += broken
                continue
            found = placed(problem, self.goal, answer["mode"], steps, answer["ways"])
            if self._within(found):
                if self.best is None or found.value < self.best.value:
                    self.best = found
                break
            if self.strict:
                break
            self.strict = True  # the rounding let it through
        return exact

    def _prove(self, bound: float | None, scale: Scale | None) -> None:
        if bound is not None and scale is not None:
            self.bound = max(self.bound, scale.bound(bound))
        else:
            self.bound = math.inf if self.best is None else self.best.value

    def _within(self, found: Placing) -> bool:
        reached = metrics(self.problem, found.load_us, found.energy_uj)
        return all(reached[n] <= limit * (1 + 1e-9) for n, limit in self.goal.bounds.items())


def _most_loadables(problem: Problem, goal: Goal, start: Placing | None) -> int:
    """Returns how many loadables a placement better than ``start`` can pay for."""
    launches = [problem.launch[core] for core in problem.cores]
    if start is None or goal.weights is None or not launches:
        return len(problem.costs)
    worth = [goal.value(c.load_us, c.energy_uj) for c in launches if c is not None]
    least = sum(
        min(goal.value(c.load_us, c.energy_uj) for c in costs if c is not None)
        for costs in problem.costs
    )
    if min(worth) <= 0:
        return len(problem.costs)
    return min(len(problem.costs), math.floor((start.value - least) / min(worth) + 1e-6))


def steps_of(
    problem: Problem,
    modes: Sequence[int],
    position: Sequence[int],
    rows: Sequence[Row],
) -> tuple[Step, ...]:
    """Returns the steps in running order, runs on one device without loadables joined."""
    steps: list[Step] = []
    for network, nodes in enumerate(problem.networks):
        for p in range(len(rows[network].devices)):
            here = [v for v in nodes if position[v] == p]
            while here:
                last = steps[-1] if steps and steps[-1].network == network else None
                device = problem.device(modes[here[0]])
                if last and last.device not in problem.cores:
                    ready = _ready(problem, modes, here, last.device)
                    device = last.device if ready else device
                run = _ready(problem, modes, here, device)
                here = [v for v in here if v not in run]
                if last and device == last.device and device not in problem.cores:
                    run = sorted([*steps.pop().nodes, *run])
                steps.append(Step(network, device, tuple(run)))
    return tuple(steps)


def _ready(problem: Problem, modes: Sequence[int], nodes: Sequence[int], device: int) -> list[int]:
    """Returns the nodes that can run on the device before any of the others does."""
    run: list[int] = []
    waiting: set[int] = set()
    for v in nodes:
        if problem.device(modes[v]) == device and waiting.isdisjoint(problem.predecessors[v]):
            run.append(v)
        else:
            waiting.add(v)
    return run


def broken_sets(problem: Problem, steps: Sequence[Step]) -> list[list[int]]:
    """Returns smallest sets of nodes that do not fit into one loadable though they share one."""
    found: list[list[int]] = []
    for step in steps:
        if step.device not in problem.cores or fits(problem, frozenset(step.nodes)):
            continue
        for order in (step.nodes, step.nodes[::-1]):
            kept = frozenset(step.nodes)
            for v in order:
                if not fits(problem, kept - {v}):
                    kept -= {v}
            if sorted(kept) not in found:
                found.append(sorted(kept))
    return found


def fits(problem: Problem, nodes: frozenset[int]) -> bool:
    """Whether nodes can be one loadable; the model's integers let pools through in doubt."""
    return all(
        math.fsum(pool.needs[v] for v in nodes) <= pool.limit * (1 + 1e-9) for pool in problem.pools
    ) and (problem.fits is None or problem.fits(nodes))


def placed(
    problem: Problem,
    goal: Goal,
    modes: Sequence[int],
    steps: Sequence[Step],
    taken: Sequence[tuple[int, int]],
) -> Placing:
    """Returns a placing with its loads computed anew.

    Args:
        taken: The way of each transfer, counted over all borders; those not needed are dropped.
    """
    way_of: dict[int, int] = dict(taken)
    costs = [problem.costs[v][m] for v, m in enumerate(modes)]
    costs += [problem.launch[step.device] for step in steps if step.device in problem.cores]
    ways = []
    index = 0
    for b, border in enumerate(problem.borders):
        writes = problem.outside if border.producer == OUTSIDE else modes[border.producer]
        reads = {modes[c] for c in border.consumers} | (
            {problem.outside} if border.output else set()
        )
        for t, transfer in enumerate(border.transfers):
            if any((writes, r) in transfer.pairs for r in reads):
                ways.append((b, t, way_of[index]))
                costs.append(transfer.ways[way_of[index]])
            index += 1
    load = tuple(
        math.fsum(c.load_us[r] for c in costs if c is not None)
        for r in range(len(problem.devices) + 1)
    )
    energy = math.fsum(c.energy_uj for c in costs if c is not None)
    return Placing(tuple(modes), tuple(steps), tuple(ways), load, energy, goal.value(load, energy))
