"""Placements with their running order solved at once by CP-SAT: exact for every constraint.
Converts a problem to integers, solves it, and computes the answer's loads anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.solver.cpsat.running_order_model import (
    MeasureRequest,
    OrderHint,
    OrderRequest,
    PoolRequest,
    TransferRequest,
    solve_model,
)
from edgekit.solver.loadables import fits
from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    Effort,
    ExecutionStep,
    Goal,
    MemoryPool,
    Optimum,
    PlacementProblem,
    Placing,
    Transfer,
    Units,
    metrics,
    twin_cores,
)
from edgekit.solver.program import Progress

GAP = 1e-6

FIRST_LEVELS = 3

SHARE = 0.3
"""Share of the remaining effort for a placement with few levels, which gives no proof."""

DIGITS = 7
"""Decimal digits of a sum that survive the rounding to integers."""
LARGEST = 1e13
"""Largest sum, in units: CP-SAT's linear programmes work in doubles."""
FACTORS = (*(10.0**digits for digits in range(7)), *(2.0**bits for bits in range(4, 41, 4)))
"""Factors that may make numbers integers: of few decimals, or fractions of powers of two."""


def solve_steps(
    problem: PlacementProblem,
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
        problem: The placement problem.
        goal: The goal to minimise, with its bounds.
        start: A placement to begin from; its value bounds the search.
        lower: A proven lower bound.
        seconds: Seconds of search, counted in CP-SAT's deterministic time, so that the answer is
            always the same. The wall clock ends it after ten times as long, which the result
            reports.
        effort: The account of a larger search, which is charged instead.
        progress: Called with the best value and the bound now and then.

    Returns:
        The best placement found (``start`` if none is better) and a proven bound.

    Raises:
        EnvironmentLack: OR-Tools is missing.
    """
    if any(all(cost is None for cost in costs) for costs in problem.costs):
        return Optimum(None, math.inf)
    account = Effort(seconds) if effort is None else effort.part(effort.left)
    units = Units.of(problem, goal)
    least = math.ldexp(lower, units.value)
    search = _Deepening(
        units.problem(problem),
        units.goal(goal),
        units.placing(start),
        least,
        account,
        progress and (lambda *both: progress(*map(units.real_value, both))),
    )
    # The model grows with the number of levels; few find a placement, and a tail may prove it.
    levels = FIRST_LEVELS
    while search.may_continue:
        if search.solve(levels, tail=False):
            break
        if search.may_continue:
            search.solve(levels, tail=True)
        levels *= 2
    found = search.optimum()
    return Optimum(units.real(found.placing), units.real_value(found.bound), account.clocked)


class _Deepening:
    """Iterative deepening: few levels find a placement; a tail for further levels may prove it."""

    def __init__(
        self,
        problem: PlacementProblem,
        goal: Goal,
        start: Placing | None,
        lower: float,
        effort: Effort,
        progress: Progress | None,
    ) -> None:
        self.progress = progress
        self.problem, self.goal = problem, goal
        self.best, self.bound = start, lower
        self.forbidden: list[list[int]] = []
        self.strict = False
        self.effort = effort

    @property
    def may_continue(self) -> bool:
        """True if the gap is open and effort is left."""
        proven = self.best is not None and self.best.value - self.bound <= GAP * self.best.value
        open_ = not proven and self.bound < math.inf
        return open_ and not self.effort.over

    def optimum(self) -> Optimum:
        if self.best is None:
            return Optimum(None, self.bound)
        return Optimum(self.best, min(self.bound, self.best.value))

    def solve(self, levels: int, *, tail: bool) -> bool:
        """Solves with ``levels`` levels; returns True if more levels are impossible."""
        problem = self.problem
        most = _most_loadables(problem, self.goal, self.best)
        row = positions(problem, most=most, levels=levels, tail=tail)
        exact = not row.short
        if not row.devices:  # no position: no GPU, and no loadable allowed
            self._prove(None, None)
            return True
        while self.may_continue:
            request, scale = steps_request(
                problem,
                self.goal,
                row,
                start=self.best,
                lower=self.bound,
                strict=self.strict and not tail,
            )
            request = replace(request, forbidden=self.forbidden, gap=GAP)
            # a row that is too short, or strict limits, exclude valid placements
            proves = tail or (exact and not self.strict)

            def report(
                value: float, bound: float, scale: IntegerScale = scale, proves: bool = proves
            ) -> None:
                bound = max(self.bound, scale.bound(bound)) if proves else self.bound
                # the tail has no order, so its value belongs to no placement
                value = math.inf if tail and not exact else scale.bound(value)
                best = min(value, self.best.value if self.best else math.inf)
                if self.progress is not None and math.isfinite(best):
                    self.progress(best, bound)

            share = 1.0 if tail or exact else SHARE
            answer = solve_model(request, self.effort, report, share=share)
            if proves:
                self._prove(answer.bound, scale)
            if answer.mode is None or (tail and not exact):
                break
            steps = execution_steps(problem, answer.mode, answer.position, row)
            # the model cannot state `fits`, and rounded pools may hold more: such sets are excluded
            if broken := broken_sets(problem, steps):
                self.forbidden += broken
                continue
            found = with_loads(problem, self.goal, answer.mode, steps, answer.ways)
            reached = metrics(problem, found.load_us, found.energy_uj)
            bounds = self.goal.bounds.items()
            if all(reached[name] <= limit * (1 + 1e-9) for name, limit in bounds):
                if self.best is None or found.value < self.best.value:
                    self.best = found
                break
            if self.strict:
                break
            self.strict = True  # rounding allowed an invalid placement
        return exact

    def _prove(self, bound: float | None, scale: IntegerScale | None) -> None:
        if bound is not None and scale is not None:
            self.bound = max(self.bound, scale.bound(bound))
        else:
            self.bound = math.inf if self.best is None else self.best.value


def _most_loadables(problem: PlacementProblem, goal: Goal, start: Placing | None) -> int:
    """Returns the largest number of loadables in a placement better than ``start``."""
    launches = [problem.launch[core] for core in problem.cores]
    if start is None or goal.weights is None or not launches:
        return len(problem.costs)
    launch_values = [goal.value(c.load_us, c.energy_uj) for c in launches if c is not None]
    # no placement spends less on its nodes; the rest of the start's value can pay launches
    least = sum(
        min(goal.value(c.load_us, c.energy_uj) for c in costs if c is not None)
        for costs in problem.costs
    )
    if min(launch_values) <= 0:
        return len(problem.costs)
    return min(len(problem.costs), math.floor((start.value - least) / min(launch_values) + 1e-6))


def execution_steps(
    problem: PlacementProblem,
    modes: Sequence[int],
    position: Sequence[int],
    row: Positions,
) -> tuple[ExecutionStep, ...]:
    """Returns the steps in running order, runs on one device without loadables joined."""
    steps: list[ExecutionStep] = []
    for p in range(len(row.devices)):
        # a position of several devices (a level's runs, the tail) becomes a step for each change
        here = [v for v, at in enumerate(position) if at == p]
        while here:
            last = steps[-1] if steps else None
            device = problem.device(modes[here[0]])
            if last and last.device not in problem.cores:
                # stay on the device of the last run, as long as anything is ready there
                ready = _ready_nodes(problem, modes, here, last.device)
                device = last.device if ready else device
            run = _ready_nodes(problem, modes, here, device)
            here = [v for v in here if v not in run]
            if last and device == last.device and device not in problem.cores:
                run = sorted([*steps.pop().nodes, *run])
            steps.append(ExecutionStep(device, tuple(run)))
    return tuple(steps)


def _ready_nodes(
    problem: PlacementProblem, modes: Sequence[int], nodes: Sequence[int], device: int
) -> list[int]:
    """Returns the nodes that can run on the device before all others."""
    run: list[int] = []
    waiting: set[int] = set()
    for v in nodes:
        if problem.device(modes[v]) == device and waiting.isdisjoint(problem.predecessors[v]):
            run.append(v)
        else:
            waiting.add(v)
    return run


def broken_sets(problem: PlacementProblem, steps: Sequence[ExecutionStep]) -> list[list[int]]:
    """Returns smallest sets of nodes that share a loadable but do not fit into one."""
    found: list[list[int]] = []
    for step in steps:
        if step.device not in problem.cores or fits(problem, step.nodes):
            continue
        # two orders of removal find different sets, which together exclude more
        for order in (step.nodes, step.nodes[::-1]):
            core_nodes = frozenset(step.nodes)
            for v in order:
                if not fits(problem, sorted(core_nodes - {v})):
                    core_nodes -= {v}
            if sorted(core_nodes) not in found:
                found.append(sorted(core_nodes))
    return found


def with_loads(
    problem: PlacementProblem,
    goal: Goal,
    modes: Sequence[int],
    steps: Sequence[ExecutionStep],
    taken: Sequence[tuple[int, int]],
) -> Placing:
    """Returns a placing with its loads computed anew.

    Args:
        taken: The way of each transfer, counted over all borders; unneeded transfers are dropped.
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


class IntegerScale:
    """Integers of a measure: ``factor`` times the value, with ``slack`` units of rounding in a sum.

    Numbers with few decimals are kept exactly; then there is no slack.
    """

    def __init__(self, values: Iterable[float], terms: int, total: float) -> None:
        numbers = [abs(value) for value in values if value]
        self.factor = 1.0
        self.slack = 0
        most = max(numbers, default=0.0) * max(1, terms)
        # the first factor that keeps all numbers exact
        for self.factor in FACTORS:
            if most * self.factor <= LARGEST and all(_is_whole(v * self.factor) for v in numbers):
                return
        # each term is off by at most half a unit
        self.slack = math.ceil(terms / 2)
        wanted = math.ceil(math.log10(max(1, self.slack) / max(total, 1e-9)) + DIGITS)
        sound = math.floor(math.log10(LARGEST / most))
        self.factor = 10.0 ** min(wanted, sound)

    def __call__(self, value: float) -> int:
        """Returns the nearest integer."""
        return round(value * self.factor)

    def below(self, value: float) -> int:
        """Returns the lower bound of integers for a sum of at least ``value``."""
        return math.floor(value * self.factor * (1 - 1e-12)) - self.slack

    def limit(self, value: float, strict: bool) -> int:
        """Returns the upper limit of integers for a sum of at most ``value``.

        If ``strict``, rounding may exclude valid sums; otherwise it may allow invalid sums.
        """
        exact = math.floor(value * self.factor * (1 + 1e-12))
        return exact - self.slack if strict else exact + self.slack

    def bound(self, value: float) -> float:
        """Returns the lower bound of a sum whose integers are at least ``value``."""
        return (value - self.slack) / self.factor


def _is_whole(value: float) -> bool:
    """Returns True if a value is an integer except for its rounding as a double."""
    return abs(value - round(value)) <= max(1e-9, 4 * math.ulp(value))


def limited_sums(
    problem: PlacementProblem, goal: Goal
) -> tuple[list[tuple[Any, float | None]], int]:
    """Returns the relevant sums with their limits, and how many form the objective.

    Each sum is a function of a cost; the objective's come first.
    """
    found: list[tuple[Any, float | None]] = []
    if goal.weights is None:
        found += [(_weighted((*row, 0.0), 0.0), None) for row in problem.shares]
    else:
        found.append((_weighted(goal.weights, goal.energy), None))
    objective = len(found)
    for name, limit in sorted(goal.bounds.items()):
        if name == "latency_us":
            found.append((lambda cost: sum(cost.load_us), limit))
        elif name == "energy_uj":
            found.append((lambda cost: cost.energy_uj, limit))
        elif name == "period_us":
            found += [(_weighted((*row, 0.0), 0.0), limit) for row in problem.shares]
        else:
            gpus = [d for d, device in enumerate(problem.devices) if device == "GPU"]
            found.append((lambda cost, gpus=gpus: sum(cost.load_us[d] for d in gpus), limit))
    return found, objective


def _weighted(weights: tuple[float, ...], energy: float) -> Any:
    def value(cost: Cost) -> float:
        total = sum(w * us for w, us in zip(weights, cost.load_us, strict=True))
        return total + energy * cost.energy_uj

    return value


def transfer_clauses(
    problem: PlacementProblem, border: Border, transfer: Transfer
) -> list[list[Any]]:
    """Returns when a transfer is paid: producer, its modes, consumer, its modes (-1: outside).

    Producer's modes with the same consumer's modes are grouped, which is tight for a transfer
    between two kinds of device.
    """
    readers: dict[int, set[int]] = {}
    for writing, reading in transfer.pairs:
        readers.setdefault(writing, set()).add(reading)
    groups: dict[frozenset[int], list[int]] = {}
    for mode, needing in sorted(readers.items()):
        groups.setdefault(frozenset(needing), []).append(mode)
    found: list[list[Any]] = []
    for reads, written in groups.items():
        writes = sorted(written)
        if border.producer == OUTSIDE:
            if problem.outside not in writes:
                continue
            writes = []
        for consumer in border.consumers:
            if any(problem.costs[consumer][m] is not None for m in reads):
                found.append([border.producer, writes, consumer, sorted(reads)])
        if border.output and problem.outside in reads and border.producer != OUTSIDE:
            found.append([border.producer, writes, OUTSIDE, []])
    return found


def exchangeable_cores(problem: PlacementProblem, goal: Goal) -> list[list[int]]:
    """Returns pairs of cores that can be exchanged in any placement without a change."""
    weights = goal.weights
    return [
        [first, second]
        for first, second in twin_cores(problem)
        if weights is None or weights[first] == weights[second]
    ]


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions in a running order.

    Attributes:
        devices: Devices of each position.
        width: Positions of a level.
        limited: True if device changes are limited.
        tail: True if the last position represents all further levels.
        short: True if a placement could need further levels.
    """

    devices: list[list[int]]
    width: int
    limited: bool
    tail: bool
    short: bool


def positions(problem: PlacementProblem, *, most: int, levels: int, tail: bool) -> Positions:
    """Returns the positions.

    Args:
        problem: The placement problem.
        most: Most loadables in a placement of interest.
        levels: Most levels.
        tail: True to represent further possible levels by a last position.
    """
    cores = problem.cores
    others = [d for d in range(len(problem.devices)) if d not in cores]
    limited = problem.max_transitions is not None
    # changes between devices without loadables count only if changes are limited
    runs = [[d] for d in others] if limited else [others] * bool(others)
    level = [*runs, *([core] for core in cores)]
    count = _levels(problem, most, len(others))
    short = count > levels
    tail = tail and short
    row = [*(level * min(count, levels)), *runs, *([[*others, *cores]] * tail)]
    return Positions(row, len(level), limited, tail, short)


def _levels(problem: PlacementProblem, most: int, others: int) -> int:
    """Returns the most levels that a placement in its simplest order can need."""
    cores = set(problem.cores)
    nodes = range(len(problem.costs))
    changes = problem.max_transitions
    if others > 1 and changes is not None:
        return len(nodes)
    able = [v for v in nodes if any(problem.device(m) in cores for m in _modes(problem, v))]
    sizes = problem.sizes or (1,) * len(problem.costs)
    # a level has at least one loadable, so a limit on loadables also limits the levels
    bounds = [len(able), most, sum(sizes[v] for v in able) // max(1, problem.min_size)]
    if problem.max_loadables is not None:
        bounds.append(problem.max_loadables * len(cores))
    if not problem.pools and problem.fits is None:  # then consecutive loadables can be merged
        if len(cores) == 1:
            free = [
                v for v in nodes if not all(problem.device(m) in cores for m in _modes(problem, v))
            ]
            # between two loadables at least one node runs elsewhere
            bounds.append(len(free) + 1)
        if changes is not None:
            bounds.append(changes // 2 + 1 if len(cores) == others == 1 else changes + 1)
    return max(0, min(bounds))


def _modes(problem: PlacementProblem, v: int) -> list[int]:
    return [m for m, cost in enumerate(problem.costs[v]) if cost is not None]


def _hint(row: Positions, problem: PlacementProblem, placing: Placing) -> OrderHint:
    """Returns a placing as modes and positions, each step at the first possible position."""
    position = [0] * len(problem.costs)
    at, last = 0, len(row.devices) - 1
    for step in placing.steps:
        while at < last and step.device not in row.devices[at]:
            at += 1
        for v in step.nodes:
            position[v] = at
        if step.device in problem.cores:
            at = min(at + 1, last)
    return OrderHint(placing.modes, position)


def steps_request(
    problem: PlacementProblem,
    goal: Goal,
    row: Positions,
    *,
    start: Placing | None,
    lower: float,
    strict: bool,
) -> tuple[OrderRequest, IntegerScale]:
    """Returns the problem in integers (without forbidden sets) and the objective's scale."""
    found, objective = limited_sums(problem, goal)
    costs = [[(m, c) for m, c in enumerate(cost) if c is not None] for cost in problem.costs]
    transfers = [(b, t) for b in problem.borders for t in b.transfers]
    launch = [
        problem.launch[core] or Cost((0.0,) * (len(problem.devices) + 1)) for core in problem.cores
    ]
    every = [
        *(c for cost in costs for _, c in cost),
        *(w for _, t in transfers for w in t.ways),
        *launch,
    ]
    terms = len(costs) + len(transfers) + len(row.devices)

    def integer_scale(rates: list[Any]) -> IntegerScale:
        least = sum(min(sum(rate(c) for rate in rates) for _, c in cost) for cost in costs)
        least /= len(rates)
        total = max(least, lower, 1e-6) if rates[0] is found[0][0] else max(least, 1e-6)
        return IntegerScale((rate(c) for c in every for rate in rates), terms, total)

    # the sums of a period are compared with each other, so they share a scale
    scale = integer_scale([rate for rate, _ in found[:objective]])
    rows_of = []
    for index, (rate, limit) in enumerate(found):
        own = scale if index < objective else integer_scale([rate])
        rows_of.append(
            MeasureRequest(
                modes=[{m: own(rate(c)) for m, c in cost} for cost in costs],
                ways=[[own(rate(w)) for w in t.ways] for _, t in transfers],
                launch=[own(rate(c)) for c in launch],
                limit=None if limit is None else own.limit(limit, strict),
            )
        )
    request = OrderRequest(
        allowed=[[m for m, _ in cost] for cost in costs],
        mode_device=[mode.device for mode in problem.modes],
        cores=list(problem.cores),
        twins=exchangeable_cores(problem, goal),
        edges=[(u, v) for v, before in enumerate(problem.predecessors) for u in before],
        positions=row.devices,
        width=row.width,
        tail=row.tail,
        max_transitions=problem.max_transitions,
        pools=[_pool_request(pool) for pool in problem.pools],
        min_size=problem.min_size,
        sizes=list(problem.sizes or (1,) * len(costs)),
        max_loadables=problem.max_loadables,
        transfers=[
            TransferRequest(len(t.ways), transfer_clauses(problem, b, t)) for b, t in transfers
        ],
        measures=rows_of,
        objective=list(range(objective)),
        lower=max(0, scale.below(lower)),
        # not strict: the start itself must stay allowed
        upper=2**60 if start is None else scale.limit(start.value, strict=False),
        hint=None if start is None else _hint(row, problem, start),
    )
    return request, scale


def _pool_request(pool: MemoryPool) -> PoolRequest:
    scale = IntegerScale((*pool.needs, pool.limit), len(pool.needs), pool.limit or 1.0)
    return PoolRequest([scale(need) for need in pool.needs], scale.limit(pool.limit, False))
