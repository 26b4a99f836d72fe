"""The makespan: all networks once, devices side by side, proved by CP-SAT."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from edgekit.solver._cpsat import run_worker
from edgekit.solver._problem import Cost, Goal, Placing, Problem, Step, metrics
from edgekit.solver._schedule_times import Item, Sending, timed
from edgekit.solver._steps import broken_sets, placed, steps_of
from edgekit.solver._steps_request import Row, Scale, positions, steps_request

__all__ = ["Schedule", "schedule_once"]

GAP = 1e-6
EFFORT_PER_S = 0.2
"""Deterministic units of CP-SAT's search in a second: without linear programmes they are long."""
CLOCK = 3.0
SEARCH = {"linearization_level": 0, "use_objective_lb_search": True}
"""Chains of ten nodes are proved in a tenth of the time that linear relaxations take."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When everything runs.

    Attributes:
        placing: The placement, its value the makespan; None when none was found.
        items: When each node runs, by its start.
        transfers: When each paid transfer runs, by its start.
        value: Makespan in microseconds; infinite without a placement.
        bound: A proven lower bound of it; infinite when there provably is no placement.
    """

    placing: Placing | None
    items: tuple[Item, ...]
    transfers: tuple[Sending, ...]
    value: float
    bound: float


def schedule_once(
    problem: Problem, *, bounds: Mapping[str, float] | None = None, seconds: float
) -> Schedule:
    """Ends all networks once as early as possible.

    A device does one thing at a time: a node, a transfer whose cost is its load, or a loadable,
    which runs unbroken, its launch first, with all inputs there before and its outputs after.
    Delays hold up who waits and no device. The bounds are those of ``Goal``.

    Args:
        problem: What to place; a cost may load its own device and the delay only.
        bounds: Limits by metric: latency_us, energy_uj, gpu_us, period_us.
        seconds: Of search, as in ``solve_steps``.

    Raises:
        EnvironmentLack: OR-Tools is missing or its process failed.
        ValueError: A cost loads several devices.
    """
    none = Schedule(None, (), (), math.inf, math.inf)
    if any(all(cost is None for cost in costs) for costs in problem.costs):
        return none
    search = _Search(Goal(None, 0.0, dict(bounds or {})), seconds)
    if _simple(problem):
        return search.attempt(problem, levels=None, share=1.0)
    # Without launches and limits it ends no later; few loadables give a schedule to begin with.
    search.attempt(_relaxed(problem), levels=None, share=0.3)
    if search.bound == math.inf:
        return none
    best = none
    most = max(len(nodes) for nodes in problem.networks)
    for levels in (2, 4):
        if levels < most and not _proven(best, search.bound):
            found = search.attempt(problem, levels=levels, share=0.3, upper=best.value)
            best = found if found.value < best.value else best
    if not _proven(best, search.bound):
        found = search.attempt(problem, levels=most, share=1.0, upper=best.value)
        best = found if found.value < best.value else best
    return replace(best, bound=min(search.bound, best.value))


class _Search:
    """What is known and what is left of the time."""

    def __init__(self, goal: Goal, seconds: float) -> None:
        self.goal = goal
        self.bound = 0.0
        self.ends = time.monotonic() + CLOCK * seconds
        self.effort = EFFORT_PER_S * seconds

    def attempt(
        self, problem: Problem, *, levels: int | None, share: float, upper: float = math.inf
    ) -> Schedule:
        """Solves one problem, with part of the time left; its bound holds with all levels.

        Args:
            levels: Of loadables in a network; None for single nodes.
            share: Of what is left.
            upper: A makespan that is known.
        """
        goal, simple = self.goal, levels is None
        rows = [_row(problem, i, levels) for i in range(len(problem.networks))]
        exact = not any(row.short for row in rows)
        none = Schedule(None, (), (), math.inf, self.bound)
        if not simple and not all(row.devices for row in rows):
            self.bound = math.inf  # no GPU, and no loadable allowed
            return replace(none, bound=math.inf)
        forbidden: list[list[int]] = []
        strict = False
        least = self.effort * (1 - share)
        ends = time.monotonic() + share * (self.ends - time.monotonic())
        while self.effort > least and (left := ends - time.monotonic()) > 0:
            request, scale = _request(problem, goal, rows, simple, strict)
            request |= {"forbidden": forbidden, "gap": GAP, "effort": self.effort - least}
            request["parameters"] = SEARCH
            request["lower"] = max(0, scale.below(self.bound))
            if upper < math.inf:
                request["upper"] = scale.limit(upper, strict=False)
            answer = run_worker("makespan", request, seconds=left)
            self.effort -= answer["effort"] + 0.02
            if answer["bound"] is None:
                if exact and not strict:
                    self.bound = upper
                return replace(none, bound=self.bound)
            if exact and not strict:
                self.bound = max(self.bound, scale.bound(answer["bound"]))
            if "mode" not in answer:
                break
            starts, modes = answer["start"], answer["mode"]
            steps = (
                _in_time(problem, modes, starts)
                if simple
                else steps_of(problem, modes, answer["position"], rows)
            )
            if broken := [] if simple else broken_sets(problem, steps):
                forbidden += broken
                continue
            found = placed(problem, goal, modes, steps, answer["ways"])
            if _over(problem, found, goal):
                if strict:
                    break
                strict = True  # the rounding let it through
                continue
            items, sendings, value = timed(problem, found, starts, answer["sent"], scale)
            final = Placing(
                found.modes, _joined(problem, found, items, sendings) if simple else found.steps,
                found.ways, found.load_us, found.energy_uj, value,
            )  # fmt: skip
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


def _simple(problem: Problem) -> bool:
    """Whether nothing tells a loadable from its nodes one by one."""
    launches = [problem.launch[core] for core in problem.cores]
    free = all(c is None or not (any(c.load_us) or c.energy_uj) for c in launches)
    limits = problem.pools or problem.fits is not None or problem.max_loadables is not None
    ordered = any(problem.contiguous) or any(n is not None for n in problem.max_transitions)
    return free and not limits and problem.min_size <= 1 and not ordered


def _row(problem: Problem, network: int, levels: int | None) -> Row:
    if levels is None:
        return Row([], 1, limited=False, tail=False, short=False)
    most = len(problem.networks[network])
    return positions(problem, network, most=most, levels=levels, tail=False, joined=False)


def _request(
    problem: Problem, goal: Goal, rows: list[Row], simple: bool, strict: bool
) -> tuple[dict[str, Any], Scale]:
    request, _ = steps_request(problem, goal, rows, start=None, lower=0.0, strict=strict)
    # One unit of time for everything; the objective's measures are loads in that unit, too.
    modes = [{m: c for m, c in enumerate(cost) if c is not None} for cost in problem.costs]
    ways = [t.ways for b in problem.borders for t in b.transfers]
    launch = [c for core in problem.cores if (c := problem.launch[core]) is not None]
    every = [*(c for cost in modes for c in cost.values()), *(w for t in ways for w in t), *launch]
    least = [min(sum(c.load_us) for c in cost.values()) for cost in modes]
    total = max(max(least, default=0.0), sum(least) / len(problem.devices), 1e-6)
    terms = 2 * len(modes) + len(ways) + (0 if simple else len(modes))
    scale = Scale((us for c in every for us in c.load_us), terms, total)
    for d in range(len(problem.devices)):
        measure = request["measures"][d]
        measure["modes"] = [{m: scale(c.load_us[d]) for m, c in cost.items()} for cost in modes]
        measure["ways"] = [[scale(w.load_us[d]) for w in t] for t in ways]
        measure["launch"] = [scale(c.load_us[d]) for c in launch]
    request["times"] = [
        {
            str(m): [problem.device(m), *_single(scale, c, problem.device(m))]
            for m, c in cost.items()
        }
        for cost in modes
    ]
    request["way_times"] = [[_sending(scale, way) for way in t] for t in ways]
    request["launch_times"] = [
        _single(scale, c, core)[0] for core, c in zip(problem.cores, launch, strict=True)
    ]
    longest = sum(max(sum(map(scale, c.load_us)) for c in cost.values()) for cost in modes)
    longest += sum(max(sum(map(scale, w.load_us)) for w in t) for t in ways)
    longest += sum(len(modes) * scale(sum(c.load_us)) for c in launch)
    return request | {"simple": simple, "upper": longest + 1}, scale


def _single(scale: Scale, cost: Cost, device: int) -> list[int]:
    """Returns a cost as time on its device and delay."""
    if any(us and d != device for d, us in enumerate(cost.load_us[:-1])):
        raise ValueError("a makespan takes costs that load one device each")
    return [scale(cost.load_us[device]), scale(cost.load_us[-1])]


def _sending(scale: Scale, way: Cost) -> list[int]:
    device = next((d for d, us in enumerate(way.load_us[:-1]) if us), -1)
    if device < 0:
        return [-1, 0, scale(way.load_us[-1])]
    return [device, *_single(scale, way, device)]


def _over(problem: Problem, placing: Placing, goal: Goal) -> bool:
    reached = metrics(problem, placing.load_us, placing.energy_uj)
    return any(reached[name] > limit * (1 + 1e-9) for name, limit in goal.bounds.items())


def _in_time(problem: Problem, modes: Sequence[int], starts: Sequence[int]) -> tuple[Step, ...]:
    """Returns every node as a step of its own, in the order in which they start."""
    steps = []
    for network, nodes in enumerate(problem.networks):
        order = sorted(nodes, key=lambda v: (starts[v], v))
        steps += [Step(network, problem.device(modes[v]), (v,)) for v in order]
    return tuple(steps)


def _joined(
    problem: Problem, placing: Placing, items: Sequence[Item], sendings: Sequence[Sending]
) -> tuple[Step, ...]:
    """Returns the steps, neighbours of one device joined where that changes no time.

    A loadable's inputs are there before it starts and its outputs are used after it ended.
    """
    at = {item.node: item for item in items}
    needs: list[list[tuple[int, float]]] = [[] for _ in problem.costs]  # from where, there when
    for v, before in enumerate(problem.predecessors):
        needs[v] += [(u, at[u].end_us) for u in before]
    taken: dict[int, float] = {}  # when a node's outputs are first converted
    for sent in sendings:
        border = problem.borders[sent.border]
        if border.producer >= 0:
            start = taken.get(border.producer, math.inf)
            taken[border.producer] = min(start, sent.start_us)
        for v in border.consumers:
            needs[v].append((-1, sent.end_us))
    readers: list[list[int]] = [[] for _ in problem.costs]
    for v, before in enumerate(problem.predecessors):
        for u in before:
            readers[u].append(v)
    queue: dict[int, list[int]] = {}
    for item in items:
        queue.setdefault(item.device, []).append(item.node)
    following = {u: v for nodes in queue.values() for u, v in pairwise(nodes)}  # on the device
    steps: list[list[int]] = []
    for step in placing.steps:
        (v,) = step.nodes
        last = next((s for s in reversed(steps) if following.get(s[-1]) == v), None)
        if last is not None and _may_join(problem, last, v, step, at, needs, readers, taken):
            last.append(v)
        else:
            steps.append([v])
    order = sorted(steps, key=lambda s: (_network(problem, s[0]), at[s[0]].start_us, s[0]))
    runs: list[Step] = []
    for nodes in order:
        step = Step(_network(problem, nodes[0]), at[nodes[0]].device, tuple(sorted(nodes)))
        free = step.device not in problem.cores
        if free and runs and (runs[-1].network, runs[-1].device) == (step.network, step.device):
            step = Step(step.network, step.device, (*runs.pop().nodes, *step.nodes))
        runs.append(step)
    return tuple(Step(s.network, s.device, tuple(sorted(s.nodes))) for s in runs)


def _network(problem: Problem, v: int) -> int:
    return problem.network_of[v] if problem.network_of else 0


def _may_join(
    problem: Problem,
    members: Sequence[int],
    v: int,
    step: Step,
    at: Mapping[int, Item],
    needs: Sequence[Sequence[tuple[int, float]]],
    readers: Sequence[Sequence[int]],
    taken: Mapping[int, float],
) -> bool:
    if _network(problem, members[-1]) != step.network or step.device not in problem.cores:
        return False
    first, end = at[members[0]].start_us, at[v].end_us
    slack = 1e-9 * max(1.0, end)
    inside = {*members, v}
    return (
        abs(at[v].start_us - at[members[-1]].end_us) <= slack
        and all(u in inside or there <= first + slack for u, there in needs[v])
        and all(
            taken.get(u, math.inf) >= end - slack
            and all(w in inside or at[w].start_us >= end - slack for w in readers[u])
            for u in members
        )
    )
