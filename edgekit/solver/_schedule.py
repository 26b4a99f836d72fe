"""The makespan: all networks once, devices side by side, proved by CP-SAT."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from edgekit.solver._cpsat import run_worker
from edgekit.solver._effort import Effort
from edgekit.solver._problem import Cost, Goal, Placing, Problem, metrics
from edgekit.solver._schedule_joined import in_runs, in_time, joined
from edgekit.solver._schedule_request import request_of, row_of, runs_of
from edgekit.solver._schedule_times import Item, Sending, timed
from edgekit.solver._steps import broken_sets, placed, steps_of
from edgekit.solver._units import Units

__all__ = ["Schedule", "schedule_once"]

GAP = 1e-6
UNITS = 5.0
"""Of Effort for one of CP-SAT's deterministic time: without linear programmes they are long."""
SEARCH = {"linearization_level": 0, "use_objective_lb_search": True}
"""Chains of ten nodes are proved in a tenth of the time that linear relaxations take."""
UPWARDS = {"linearization_level": 0}
"""Finds better schedules where the search from below ends nowhere."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When everything runs.

    Attributes:
        placing: The placement, its value the makespan; None when none was found.
        items: When each node runs, by its start.
        transfers: When each paid transfer runs, by its start.
        value: Makespan in microseconds; infinite without a placement.
        bound: A proven lower bound of it; infinite when there provably is no placement.
        clocked: The wall clock ended the search, so that another run may end elsewhere.
    """

    placing: Placing | None
    items: tuple[Item, ...]
    transfers: tuple[Sending, ...]
    value: float
    bound: float
    clocked: bool = False


def schedule_once(
    problem: Problem,
    *,
    bounds: Mapping[str, float] | None = None,
    seconds: float,
    progress: Callable[[float, float], None] | None = None,
) -> Schedule:
    """Ends all networks once as early as possible.

    A device does one thing at a time: a node, a transfer whose cost is its load, or a loadable,
    which runs unbroken, its launch first, with all inputs there before and its outputs after.
    Delays hold up who waits and no device. The bounds are those of ``Goal``.

    Args:
        problem: What to place; a cost may load its own device and the delay only.
        bounds: Limits by metric: latency_us, energy_uj, gpu_us, period_us.
        seconds: Of search, as in ``solve_steps``.
        progress: Told the best makespan and the bound between CP-SAT's searches.

    Raises:
        EnvironmentLack: OR-Tools is missing or its process failed.
        ValueError: A cost loads several devices.
    """
    if any(all(cost is None for cost in costs) for costs in problem.costs):
        return Schedule(None, (), (), math.inf, math.inf)
    goal = Goal(None, 0.0, dict(bounds or {}))
    units, effort = Units.of(problem, goal), Effort(seconds)
    real = units.real_value
    tell = progress and (lambda value, bound: progress(real(value), real(bound)))
    search = _Search(units.goal(goal), effort, tell)
    found = _solved(units.problem(problem), search)
    return Schedule(
        units.real(found.placing),
        tuple(_real(item, units) for item in found.items),
        tuple(_real(sending, units) for sending in found.transfers),
        real(found.value),
        real(found.bound),
        effort.clocked,
    )


_Timed = TypeVar("_Timed", Item, Sending)


def _real(item: _Timed, units: Units) -> _Timed:
    start, end = units.real_value(item.start_us), units.real_value(item.end_us)
    return replace(item, start_us=start, end_us=end)


def _solved(problem: Problem, search: _Search) -> Schedule:
    none = Schedule(None, (), (), math.inf, math.inf)
    if _simple(problem):
        return search.attempt(problem, {}, share=1.0)
    runs = runs_of(problem)
    if runs is not None and runs[1]:
        best = search.attempt(problem, runs[0], share=0.6)
        if not _proven(best, search.bound):
            found = search.attempt(problem, runs[0], share=1.0, upper=best.value, search=UPWARDS)
            best = found if found.value < best.value else best
        return replace(best, bound=min(search.bound, best.value))
    # Without launches and limits it ends no later, and that may do.
    best = _kept(problem, search.attempt(_relaxed(problem), {}, share=0.3))
    if search.bound == math.inf:
        return none
    if runs is not None and not _proven(best, search.bound):
        found = search.attempt(problem, runs[0], share=0.4, upper=best.value, exact=False)
        best = found if found.value < best.value else best
    most = max(len(nodes) for nodes in problem.networks)
    for levels in (2, 4):
        if levels < most and not _proven(best, search.bound):
            found = search.attempt(problem, None, levels=levels, share=0.3, upper=best.value)
            best = found if found.value < best.value else best
    if not _proven(best, search.bound):
        found = search.attempt(problem, None, levels=most, share=1.0, upper=best.value)
        best = found if found.value < best.value else best
    return replace(best, bound=min(search.bound, best.value))


class _Search:
    """What is known and what is left of the time."""

    def __init__(
        self, goal: Goal, effort: Effort, progress: Callable[[float, float], None] | None
    ) -> None:
        self.goal, self.effort, self.progress = goal, effort, progress
        self.bound = 0.0
        self.value = math.inf

    def attempt(  # noqa: PLR0912 (one way out after the other)
        self,
        problem: Problem,
        runs: dict[str, Any] | None,
        *,
        share: float,
        levels: int = 0,
        upper: float = math.inf,
        exact: bool = True,
        search: Mapping[str, Any] = SEARCH,
    ) -> Schedule:
        """Solves one problem, with part of the time left.

        Args:
            problem: Of which the bound holds, too.
            runs: Of ``runs_of``; {}: every node by itself; None: loadables by levels.
            share: Of what is left.
            levels: Of loadables in a network.
            search: CP-SAT's parameters.
            upper: A makespan that is known.
            exact: Whether there are no other placements than those with such runs.
        """
        goal = self.goal
        rows = [
            row_of(problem, i, None if runs is not None else levels)
            for i in range(len(problem.networks))
        ]
        exact = exact and not any(row.short for row in rows)
        none = Schedule(None, (), (), math.inf, self.bound)
        if runs is None and not all(row.devices for row in rows):
            self.bound = math.inf  # no GPU, and no loadable allowed
            return replace(none, bound=math.inf)
        forbidden: list[list[int]] = []
        strict = False
        effort = self.effort.part(self.effort.left * share)
        while not effort.over:
            request, scale = request_of(problem, goal, rows, runs, strict)
            request |= {"forbidden": forbidden, "gap": GAP, "effort": effort.left / UNITS}
            request["parameters"] = dict(search)
            request["lower"] = max(0, scale.below(self.bound))
            if upper < math.inf:
                request["upper"] = scale.limit(upper, strict=False)
            answer = run_worker("makespan", request, seconds=effort.seconds)
            effort.spend(UNITS * (answer["effort"] + 0.02))
            if answer["clocked"]:
                effort.stopped()
            if answer["bound"] is None:
                if exact and not strict:
                    self.bound = upper
                return replace(none, bound=self.bound)
            if exact and not strict:
                self.bound = max(self.bound, scale.bound(answer["bound"]))
            if "mode" not in answer:
                break
            starts, modes = answer["start"], answer["mode"]
            if runs:
                steps = in_runs(problem, modes, answer["join"])
            elif runs is not None:
                steps = in_time(problem, modes, starts)
            else:
                steps = steps_of(problem, modes, answer["position"], rows)
                if broken := broken_sets(problem, steps):
                    forbidden += broken
                    continue
            found = placed(problem, goal, modes, steps, answer["ways"])
            if _over(problem, found, goal):
                if strict:
                    break
                strict = True  # the rounding let it through
                continue
            items, sendings, value = timed(problem, found, starts, answer["sent"], scale)
            steps = joined(problem, found, items, sendings) if runs == {} else found.steps
            final = replace(found, steps=steps, value=value)
            self.value = min(self.value, value)
            if self.progress:
                self.progress(self.value, min(self.bound, self.value))
            return Schedule(final, items, sendings, value, min(self.bound, value))
        return replace(none, bound=self.bound)


def _proven(schedule: Schedule, bound: float) -> bool:
    """Returns whether the gap is closed; both are infinite when there is provably none."""
    if schedule.value == bound:
        return True
    return schedule.value - bound <= GAP * schedule.value < math.inf


def _relaxed(problem: Problem) -> Problem:
    """Returns the problem without what tells loadables from their nodes."""
    count = len(problem.networks)
    nothing = Cost((0.0,) * (len(problem.devices) + 1))
    return replace(
        problem,
        launch=tuple(None if cost is None else nothing for cost in problem.launch),
        max_loadables=None,
        pools=(),
        fits=None,
        min_size=0,
        max_transitions=(None,) * count,
        contiguous=(False,) * count,
    )


def _kept(problem: Problem, found: Schedule) -> Schedule:
    """Returns a schedule of the relaxed problem when it keeps all there is, else none."""
    none = Schedule(None, (), (), math.inf, found.bound)
    if found.placing is None or not _simple(replace(problem, max_loadables=None)):
        return none
    steps = found.placing.steps
    held = [sum(step.device == core for step in steps) for core in problem.cores]
    most = max(held, default=0)
    return found if problem.max_loadables is None or most <= problem.max_loadables else none


def _simple(problem: Problem) -> bool:
    """Whether nothing tells a loadable from its nodes one by one."""
    launches = [problem.launch[core] for core in problem.cores]
    free = all(c is None or not (any(c.load_us) or c.energy_uj) for c in launches)
    limits = problem.pools or problem.fits is not None or problem.max_loadables is not None
    ordered = any(problem.contiguous) or any(n is not None for n in problem.max_transitions)
    return free and not limits and problem.min_size <= 1 and not ordered


def _over(problem: Problem, placing: Placing, goal: Goal) -> bool:
    reached = metrics(problem, placing.load_us, placing.energy_uj)
    return any(reached[name] > limit * (1 + 1e-9) for name, limit in goal.bounds.items())
