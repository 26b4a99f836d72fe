"""The makespan: all networks once, devices side by side, proved by CP-SAT. A schedule's times
are computed anew from the order in which its parts start.
Start with ``schedule_once``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from edgekit.solver.cpsat.makespan_model import LevelIntervals, RunIntervals
from edgekit.solver.cpsat.running_order import (
    IntegerScale,
    NetworkPositions,
    broken_sets,
    fits_one_loadable,
    positions,
    steps_of,
    steps_request,
    with_loads,
)
from edgekit.solver.cpsat.running_order_model import solve_model
from edgekit.solver.problem import (
    OUTSIDE,
    Cost,
    Effort,
    ExecutionStep,
    Goal,
    PlacementProblem,
    Placing,
    Units,
    metrics,
)
from edgekit.solver.program import Progress

GAP = 1e-6

UNITS = 5.0
"""Of Effort for one of CP-SAT's deterministic time, which takes longer without linear programmes:
3 seconds were measured with levels, 6 with runs."""

SEARCH = {"linearization_level": 0, "use_objective_lb_search": True}
"""Chains of ten nodes are proved in a tenth of the time that linear relaxations take."""

UPWARDS = {"linearization_level": 0}
"""Finds better schedules where the search from below ends nowhere."""


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """When a node runs; its delay, if it has one, comes after."""

    network: int
    node: int
    device: int
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """When a transfer runs: index of its border, of the transfer in it, of its way.

    ``device`` is None for a mere delay; ``end_us`` is when the tensor is there.
    """

    network: int
    border: int
    transfer: int
    way: int
    device: int | None
    start_us: float
    end_us: float


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
    items: tuple[NodeTimes, ...]
    transfers: tuple[TransferTimes, ...]
    value: float
    bound: float
    clocked: bool = False


def schedule_once(
    problem: PlacementProblem,
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
        progress: Called with the best makespan and the bound now and then.

    Raises:
        EnvironmentLack: OR-Tools is missing.
        ValueError: A cost loads several devices.
    """
    if any(all(cost is None for cost in costs) for costs in problem.costs):
        return Schedule(None, (), (), math.inf, math.inf)
    goal = Goal(None, 0.0, dict(bounds or {}))
    units, effort = Units.of(problem, goal), Effort(seconds)
    real = units.real_value
    report = progress and (lambda value, bound: progress(real(value), real(bound)))
    search = _MakespanSearch(units.goal(goal), effort, report)
    found = _solved(units.problem(problem), search)
    return Schedule(
        units.real(found.placing),
        tuple(_in_real_units(item, units) for item in found.items),
        tuple(_in_real_units(sending, units) for sending in found.transfers),
        real(found.value),
        real(found.bound),
        effort.clocked,
    )


_Timed = TypeVar("_Timed", NodeTimes, TransferTimes)


def _in_real_units(item: _Timed, units: Units) -> _Timed:
    start, end = units.real_value(item.start_us), units.real_value(item.end_us)
    return replace(item, start_us=start, end_us=end)


def _solved(problem: PlacementProblem, search: _MakespanSearch) -> Schedule:
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
    best = _if_feasible(problem, search.attempt(_relaxed(problem), {}, share=0.3))
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


class _MakespanSearch:
    """What is known and what is left of the time."""

    def __init__(
        self, goal: Goal, effort: Effort, progress: Callable[[float, float], None] | None
    ) -> None:
        self.goal, self.effort, self.progress = goal, effort, progress
        self.bound = 0.0
        self.value = math.inf

    def _reporting(self, scale: IntegerScale, *, proves: bool) -> Progress:
        def report(value: float, bound: float) -> None:
            best = min(self.value, scale.bound(value))
            if self.progress is not None and best < math.inf:
                known = max(self.bound, scale.bound(bound)) if proves else self.bound
                self.progress(best, min(known, best))

        return report

    def attempt(  # noqa: PLR0912 (one way out after the other)
        self,
        problem: PlacementProblem,
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
            positions_of(problem, i, None if runs is not None else levels)
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
            request |= {"forbidden": forbidden, "gap": GAP}
            request["parameters"] = dict(search)
            request["lower"] = max(0, scale.below(self.bound))
            if upper < math.inf:
                request["upper"] = scale.limit(upper, strict=False)
            report = self._reporting(scale, proves=exact and not strict)
            kind = LevelIntervals if runs is None else RunIntervals
            answer = solve_model(kind, request, effort, report, units=UNITS)
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
            found = with_loads(problem, goal, modes, steps, answer["ways"])
            if _over(problem, found, goal):
                if strict:
                    break
                strict = True  # the rounding let it through
                continue
            items, sendings, value = compute_times(problem, found, starts, answer["sent"], scale)
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


def _relaxed(problem: PlacementProblem) -> PlacementProblem:
    """Returns the problem without what distinguishes loadables from their nodes."""
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


def _if_feasible(problem: PlacementProblem, found: Schedule) -> Schedule:
    """Returns a schedule of the relaxed problem when it keeps all there is, else none."""
    none = Schedule(None, (), (), math.inf, found.bound)
    if found.placing is None or not _simple(replace(problem, max_loadables=None)):
        return none
    steps = found.placing.steps
    held = [sum(step.device == core for step in steps) for core in problem.cores]
    most = max(held, default=0)
    return found if problem.max_loadables is None or most <= problem.max_loadables else none


def _simple(problem: PlacementProblem) -> bool:
    """Whether nothing distinguishes a loadable from its nodes one by one."""
    launches = [problem.launch[core] for core in problem.cores]
    free = all(c is None or not (any(c.load_us) or c.energy_uj) for c in launches)
    limits = problem.pools or problem.fits is not None or problem.max_loadables is not None
    ordered = any(problem.contiguous) or any(n is not None for n in problem.max_transitions)
    return free and not limits and problem.min_size <= 1 and not ordered


def _over(problem: PlacementProblem, placing: Placing, goal: Goal) -> bool:
    reached = metrics(problem, placing.load_us, placing.energy_uj)
    return any(reached[name] > limit * (1 + 1e-9) for name, limit in goal.bounds.items())


def positions_of(problem: PlacementProblem, network: int, levels: int | None) -> NetworkPositions:
    """Returns the positions of a network's nodes; none if ``levels`` is None."""
    if levels is None:
        return NetworkPositions([], 1, limited=False, tail=False, short=False)
    most = len(problem.networks[network])
    return positions(problem, network, most=most, levels=levels, tail=False, joined=False)


def request_of(
    problem: PlacementProblem,
    goal: Goal,
    rows: list[NetworkPositions],
    runs: dict[str, Any] | None,
    strict: bool,
) -> tuple[dict[str, Any], IntegerScale]:
    """Returns the request and its scale; ``runs`` as of ``runs_of``, {} or None: by levels."""
    simple = runs == {}
    request, _ = steps_request(problem, goal, rows, start=None, lower=0.0, strict=strict)
    # One unit of time for everything; the objective's measures are loads in that unit, too.
    modes = [{m: c for m, c in enumerate(cost) if c is not None} for cost in problem.costs]
    ways = [t.ways for b in problem.borders for t in b.transfers]
    launch = [c for core in problem.cores if (c := problem.launch[core]) is not None]
    every = [*(c for cost in modes for c in cost.values()), *(w for t in ways for w in t), *launch]
    least = [min(sum(c.load_us) for c in cost.values()) for cost in modes]
    total = max(max(least, default=0.0), sum(least) / len(problem.devices), 1e-6)
    terms = 2 * len(modes) + len(ways) + (0 if simple else len(modes))
    scale = IntegerScale((us for c in every for us in c.load_us), terms, total)
    for d in range(len(problem.devices)):
        measure = request["measures"][d]
        measure["modes"] = [{m: scale(c.load_us[d]) for m, c in cost.items()} for cost in modes]
        measure["ways"] = [[scale(w.load_us[d]) for w in t] for t in ways]
        measure["launch"] = [scale(c.load_us[d]) for c in launch]
    request["times"] = [
        {m: [problem.device(m), *_single(scale, c, problem.device(m))] for m, c in cost.items()}
        for cost in modes
    ]
    request["way_times"] = [[_sending(scale, way) for way in t] for t in ways]
    request["launch_times"] = [
        _single(scale, c, core)[0] for core, c in zip(problem.cores, launch, strict=True)
    ]
    longest = sum(max(sum(map(scale, c.load_us)) for c in cost.values()) for cost in modes)
    longest += sum(max(sum(map(scale, w.load_us)) for w in t) for t in ways)
    longest += sum(len(modes) * scale(sum(c.load_us)) for c in launch)
    request["upper"] = longest + 1
    if runs is not None:
        request |= {name: runs.get(name, []) for name in ("previous", "windows", "needed")}
        ordered = runs.get("paths") or [_path(problem, nodes) for nodes in problem.networks]
        for network, path in zip(request["networks"], ordered, strict=True):
            network["path"] = path
    return request, scale


def _single(scale: IntegerScale, cost: Cost, device: int) -> list[int]:
    """Returns a cost as time on its device and delay."""
    if any(us and d != device for d, us in enumerate(cost.load_us[:-1])):
        raise ValueError("a makespan takes costs that load one device each")
    return [scale(cost.load_us[device]), scale(cost.load_us[-1])]


def _sending(scale: IntegerScale, way: Cost) -> list[int]:
    device = next((d for d, us in enumerate(way.load_us[:-1]) if us), -1)
    if device < 0:
        return [-1, 0, scale(way.load_us[-1])]
    return [device, *_single(scale, way, device)]


def runs_of(problem: PlacementProblem) -> tuple[dict[str, Any], bool] | None:
    """Returns what the model needs for loadables that are runs of the nodes' order.

    Also returns whether there are no others: where every node feeds the next one, a convex set
    has no gaps. None: such runs cannot say when delays on cores or device changes count.
    """
    paths, exact = [], True
    previous = [-1] * len(problem.costs)
    windows: list[list[int]] = []
    needed: list[list[int] | None] = [[] for _ in problem.costs]
    for network, nodes in enumerate(problem.networks):
        ordered = all(u in problem.predecessors[v] for u, v in pairwise(nodes))
        exact &= ordered
        ruled = problem.contiguous[network] or problem.max_transitions[network] is not None
        if ruled and not ordered:
            return None
        paths.append(_path(problem, nodes))
        for u, v in pairwise(nodes):
            previous[v] = u
        _limits(problem, nodes, windows, needed)
    for row in problem.costs:
        for m, cost in enumerate(row):
            if cost is not None and cost.load_us[-1] and problem.device(m) in problem.cores:
                return None
    return {"previous": previous, "windows": windows, "needed": needed, "paths": paths}, exact


def _path(problem: PlacementProblem, nodes: tuple[int, ...]) -> bool:
    """Whether the nodes are ordered, and only a run's first and last node meet anything else."""
    before = [problem.predecessors[v] for v in nodes]
    if before != [(), *((u,) for u in nodes[:-1])]:
        return False
    inside = set(nodes)
    for border in problem.borders:
        if border.producer == OUTSIDE and border.transfers:
            if any(v in inside and v != nodes[0] for v in border.consumers):
                return False
        elif (
            border.producer in inside
            and border.producer != nodes[-1]
            and border.output
            and border.transfers
        ):
            return False
    return True


def _limits(
    problem: PlacementProblem,
    nodes: tuple[int, ...],
    windows: list[list[int]],
    needed: list[list[int] | None],
) -> None:
    """Adds the shortest runs that do not fit, and what a loadable's first node needs with it."""
    sizes = problem.sizes or (1,) * len(problem.costs)
    end = 0
    for i, v in enumerate(nodes):
        end = max(end, i)
        while end < len(nodes) and fits_one_loadable(problem, frozenset(nodes[i : end + 1])):
            end += 1
        if end == i:
            needed[v] = None
            continue
        if end < len(nodes):
            windows.append(list(nodes[i : end + 1]))
        size, last = sizes[v], i
        while size < problem.min_size and last + 1 < len(nodes):
            last += 1
            size += sizes[nodes[last]]
        needed[v] = list(nodes[i + 1 : last + 1]) if size >= problem.min_size else None


@dataclass(slots=True)
class _ScheduledPart:
    """A node off the cores, a loadable or a transfer."""

    key: tuple[int, int, int, int, float]
    nodes: tuple[int, ...] = ()
    sending: tuple[int, int, int] | None = None


def compute_times(
    problem: PlacementProblem,
    placing: Placing,
    starts: Sequence[int],
    sent: Sequence[Sequence[int]],
    scale: Callable[[float], int],
) -> tuple[tuple[NodeTimes, ...], tuple[TransferTimes, ...], float]:
    """Returns items, transfers and the makespan, all as early as the order of starts allows.

    Args:
        starts: By node (those of a loadable start together), in integers.
        sent: By transfer, counted over all borders, and way.
        scale: Gives the integers that the starts were found with.
    """
    units: list[_ScheduledPart] = []
    position: dict[int, int] = {}
    for place, step in enumerate(placing.steps):
        core = step.device in problem.cores
        launch = problem.launch[step.device]
        for nodes in [step.nodes] if core else [(v,) for v in step.nodes]:
            costs = [problem.costs[v][placing.modes[v]] for v in nodes]
            length = sum(scale(c.load_us[step.device]) for c in (launch, *costs) if c is not None)
            units.append(
                _ScheduledPart((starts[nodes[0]], length, step.network, place, nodes[0]), nodes)
            )
        position |= dict.fromkeys(step.nodes, place)
    keys = [
        (b, t) for b, border in enumerate(problem.borders) for t in range(len(border.transfers))
    ]
    number = {key: i for i, key in enumerate(keys)}
    for b, t, w in placing.ways:
        border = problem.borders[b]
        outside = border.producer == OUTSIDE
        network = _network_index(problem, border.consumers[0] if outside else border.producer)
        place = -1 if outside else position[border.producer]
        length = sum(map(scale, border.transfers[t].ways[w].load_us[:-1]))
        key = (sent[number[b, t]][w], length, network, place, border.producer + 0.5)
        units.append(_ScheduledPart(key, sending=(b, t, w)))
    # What takes no time comes first of those that start together, then the running order decides.
    return _Clock(problem, placing).run(sorted(units, key=lambda unit: unit.key))


def _network_index(problem: PlacementProblem, v: int) -> int:
    return problem.network_of[v] if problem.network_of else 0


class _Clock:
    def __init__(self, problem: PlacementProblem, placing: Placing) -> None:
        self.problem, self.placing = problem, placing
        self.free = [0.0] * len(problem.devices)
        self.ready = [0.0] * len(problem.costs)
        self.there = [0.0] * len(problem.costs)  # when the last transfer that a node needs ended
        self.items: list[NodeTimes] = []
        self.sendings: list[TransferTimes] = []
        self.end = 0.0

    def run(
        self, units: Sequence[_ScheduledPart]
    ) -> tuple[tuple[NodeTimes, ...], tuple[TransferTimes, ...], float]:
        for unit in units:
            if unit.sending is not None:
                self._send(*unit.sending)
            else:
                self._work(unit.nodes)
        self.items.sort(key=lambda item: (item.start_us, item.end_us, item.device, item.node))
        self.sendings.sort(key=lambda s: (s.start_us, s.end_us, s.border, s.transfer))
        return tuple(self.items), tuple(self.sendings), self.end

    def _work(self, nodes: Sequence[int]) -> None:
        problem, modes = self.problem, self.placing.modes
        device = problem.device(modes[nodes[0]])
        inside = set(nodes)
        at = max(
            self.free[device],
            *(self.there[v] for v in nodes),
            *(self.ready[u] for v in nodes for u in problem.predecessors[v] if u not in inside),
        )
        delay = 0.0
        launch = problem.launch[device]
        if launch is not None:
            at += launch.load_us[device]
        for v in nodes:
            cost = problem.costs[v][modes[v]]
            assert cost is not None
            end = at + cost.load_us[device]
            self.items.append(NodeTimes(_network_index(problem, v), v, device, at, end))
            delay += cost.load_us[-1]
            at = end
        self.free[device] = at
        for v in nodes:
            self.ready[v] = at + delay
        self.end = max(self.end, at + delay)

    def _send(self, b: int, t: int, w: int) -> None:
        problem, modes = self.problem, self.placing.modes
        border = problem.borders[b]
        pairs, way = border.transfers[t].pairs, border.transfers[t].ways[w]
        outside = border.producer == OUTSIDE
        start = 0.0 if outside else self.ready[border.producer]
        device = next((d for d, us in enumerate(way.load_us[:-1]) if us), None)
        if device is not None:
            start = max(start, self.free[device])
            self.free[device] = start + way.load_us[device]
        end = start + sum(way.load_us)
        writes = problem.outside if outside else modes[border.producer]
        for v in border.consumers:
            if (writes, modes[v]) in pairs:
                self.there[v] = max(self.there[v], end)
        reader = border.producer if not outside else border.consumers[0]
        self.sendings.append(
            TransferTimes(_network_index(problem, reader), b, t, w, device, start, end)
        )
        self.end = max(self.end, end)


def in_runs(
    problem: PlacementProblem, modes: Sequence[int], join: Sequence[bool]
) -> tuple[ExecutionStep, ...]:
    """Returns loadables of joined nodes, and runs on other devices, in the order of the nodes."""
    steps: list[ExecutionStep] = []
    for network, nodes in enumerate(problem.networks):
        for v in nodes:
            device = problem.device(modes[v])
            last = steps[-1] if steps and steps[-1].network == network else None
            same = last is not None and last.device == device
            if last is not None and same and (join[v] or device not in problem.cores):
                steps[-1] = ExecutionStep(network, device, (*last.nodes, v))
            else:
                steps.append(ExecutionStep(network, device, (v,)))
    return tuple(steps)


def in_time(
    problem: PlacementProblem, modes: Sequence[int], starts: Sequence[int]
) -> tuple[ExecutionStep, ...]:
    """Returns every node as a step of its own, in the order in which they start."""
    steps = []
    for network, nodes in enumerate(problem.networks):
        order = sorted(nodes, key=lambda v: (starts[v], v))
        steps += [ExecutionStep(network, problem.device(modes[v]), (v,)) for v in order]
    return tuple(steps)


def joined(
    problem: PlacementProblem,
    placing: Placing,
    items: Sequence[NodeTimes],
    sendings: Sequence[TransferTimes],
) -> tuple[ExecutionStep, ...]:
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
        steps.append([v])
        if last is not None and _may_join(problem, last, v, step, at, needs, readers, taken):
            # what takes no time can run between two others that start and end at once
            more = [[*s, v] if s is last else s for s in steps[:-1]]
            if in_order(problem, more, at) is not None:
                last.append(steps.pop()[0])
    order = in_order(problem, steps, at)
    assert order is not None  # that of the nodes one by one, at least
    runs: list[ExecutionStep] = []
    for nodes in order:
        step = ExecutionStep(
            _network_index(problem, nodes[0]), at[nodes[0]].device, tuple(sorted(nodes))
        )
        free = step.device not in problem.cores
        if free and runs and (runs[-1].network, runs[-1].device) == (step.network, step.device):
            step = ExecutionStep(step.network, step.device, (*runs.pop().nodes, *step.nodes))
        runs.append(step)
    return tuple(ExecutionStep(s.network, s.device, tuple(sorted(s.nodes))) for s in runs)


def in_order(
    problem: PlacementProblem, steps: Sequence[Sequence[int]], at: Mapping[int, NodeTimes]
) -> list[Sequence[int]] | None:
    """Returns steps by network in an order in which they can run, the first to start first.

    None: some wait for each other.
    """
    of = {v: i for i, nodes in enumerate(steps) for v in nodes}
    waiting = [
        {of[u] for v in nodes for u in problem.predecessors[v] if u in of} - {i}
        for i, nodes in enumerate(steps)
    ]
    following: list[list[int]] = [[] for _ in steps]
    for i, before in enumerate(waiting):
        for j in before:
            following[j].append(i)

    def key(i: int) -> tuple[int, float, int, int]:
        first = steps[i][0]
        return (_network_index(problem, first), at[first].start_us, first, i)

    ready = [key(i) for i, before in enumerate(waiting) if not before]
    heapq.heapify(ready)
    found: list[Sequence[int]] = []
    while ready:
        i = heapq.heappop(ready)[-1]
        found.append(steps[i])
        for j in following[i]:
            waiting[j].discard(i)
            if not waiting[j]:
                heapq.heappush(ready, key(j))
    return found if len(found) == len(steps) else None


def _may_join(
    problem: PlacementProblem,
    members: Sequence[int],
    v: int,
    step: ExecutionStep,
    at: Mapping[int, NodeTimes],
    needs: Sequence[Sequence[tuple[int, float]]],
    readers: Sequence[Sequence[int]],
    taken: Mapping[int, float],
) -> bool:
    if _network_index(problem, members[-1]) != step.network or step.device not in problem.cores:
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
