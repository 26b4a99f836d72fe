"""What a placement costs: the loads of given modes, and the best way to run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from edgekit.solver._arrange import Arrangement, arrange, transitions
from edgekit.solver._highs import Expression, Program
from edgekit.solver._problem import OUTSIDE, Cost, Goal, Placing, Problem, Step, metrics

__all__ = ["TOLERANCE", "allows", "better", "evaluate", "evaluated", "paid", "settle", "useful"]

TOLERANCE = 2e-6  # relative, on bounds; HiGHS keeps rows to 1e-6
STEPS_SECONDS = 5.0  # of CP-SAT, for loadables of many nodes that pools or a least size limit
SAME = 1e-9  # relative, of values that are equal but for their rounding


def allows(problem: Problem, goal: Goal, load_us: Sequence[float], energy_uj: float) -> bool:
    """Returns whether loads keep the goal's bounds."""
    if not goal.bounds:
        return True
    have = metrics(problem, load_us, energy_uj)
    return all(have[name] <= limit + TOLERANCE * abs(limit) for name, limit in goal.bounds.items())


def better(one: Placing, other: Placing | None) -> bool:
    """Returns whether a placement is less, or as much with fewer transitions."""
    if other is None:
        return True
    slack = SAME * max(abs(one.value), abs(other.value))
    if abs(one.value - other.value) > slack:
        return one.value < other.value
    return _rank(one) < _rank(other)


def _rank(placing: Placing) -> tuple[int, int, float, tuple[int, ...]]:
    total = sum(placing.load_us)
    return (transitions(placing.steps), len(placing.steps), round(total, 6), placing.modes)


def paid(problem: Problem, modes: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the transfers to pay, as indices of the border and of the transfer in it."""
    found = []
    for b, border in enumerate(problem.borders):
        source = problem.outside if border.producer == OUTSIDE else modes[border.producer]
        users = {modes[v] for v in border.consumers}
        if border.output:
            users.add(problem.outside)
        for t, transfer in enumerate(border.transfers):
            if any((source, user) in transfer.pairs for user in users):
                found.append((b, t))
    return found


def settle(
    problem: Problem,
    modes: Sequence[int],
    steps: Sequence[Step],
    goal: Goal,
    ways: Sequence[tuple[int, int, int]] | None = None,
) -> Placing | None:
    """Returns the placement that runs these steps, or None when it breaks a bound or the slots.

    Without ``ways`` those are taken that suit the goal best.
    """
    loads = [0.0] * (len(problem.devices) + 1)
    energy = 0.0
    for v, m in enumerate(modes):
        cost = problem.costs[v][m]
        if cost is None:
            return None
        energy = _plus(loads, energy, cost)
    slots = dict.fromkeys(problem.cores, 0)
    for step in steps:
        launch = problem.launch[step.device]
        if launch is not None:
            energy = _plus(loads, energy, launch)
            slots[step.device] += 1
    if problem.max_loadables is not None and max(slots.values(), default=0) > problem.max_loadables:
        return None
    if ways is None:
        ways = _ways(problem, goal, loads, energy, paid(problem, modes))
        if ways is None:
            return None
    for b, t, w in ways:
        energy = _plus(loads, energy, problem.borders[b].transfers[t].ways[w])
    if not allows(problem, goal, loads, energy):
        return None
    value = goal.value(loads, energy)
    return Placing(tuple(modes), tuple(steps), tuple(ways), tuple(loads), energy, value)


def _plus(loads: list[float], energy: float, cost: Cost) -> float:
    for resource, us in enumerate(cost.load_us):
        loads[resource] += us
    return energy + cost.energy_uj


def useful(ways: Sequence[Cost], goal: Goal) -> list[int]:
    """Returns the ways that can suit the goal best: one, where a weighted sum decides."""
    if goal.weights is not None:
        values = [goal.value(way.load_us, way.energy_uj) for way in ways]
        order = sorted(range(len(ways)), key=lambda w: (values[w], sum(ways[w].load_us), w))
        if not goal.bounds:
            return order[:1]
    kept: list[int] = []
    for w, way in enumerate(ways):
        mine = (*way.load_us, way.energy_uj)
        others = [(u, (*ways[u].load_us, ways[u].energy_uj)) for u in range(len(ways)) if u != w]
        if not any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and (other != mine or u < w)
            for u, other in others
        ):
            kept.append(w)
    return kept


def _ways(
    problem: Problem,
    goal: Goal,
    loads: Sequence[float],
    energy: float,
    transfers: Sequence[tuple[int, int]],
) -> list[tuple[int, int, int]] | None:
    """Returns the best ways of the transfers to pay; None: none keeps the bounds."""
    choices = [useful(problem.borders[b].transfers[t].ways, goal) for b, t in transfers]
    if all(len(ways) == 1 for ways in choices):
        return [(b, t, ways[0]) for (b, t), ways in zip(transfers, choices, strict=True)]
    program = Program()
    total = [Expression() for _ in loads]
    for expression, us in zip(total, loads, strict=True):
        expression.constant = us
    spent = Expression()
    spent.constant = energy
    picks: list[dict[int, int]] = []
    for (b, t), ways in zip(transfers, choices, strict=True):
        picks.append({w: program.variable(1.0, integer=True) for w in ways})
        program.row(Expression(dict.fromkeys(picks[-1].values(), 1.0)), 1.0, 1.0)
        for w, variable in picks[-1].items():
            cost = problem.borders[b].transfers[t].ways[w]
            for expression, us in zip(total, cost.load_us, strict=True):
                expression.add(variable, us)
            spent.add(variable, cost.energy_uj)
    state_goal(problem, goal, program, total, spent)
    found = program.solve(gap=1e-9)
    if found.values is None:
        return None
    return [
        (b, t, max(pick, key=lambda w: found.values[pick[w]] if found.values else 0.0))
        for (b, t), pick in zip(transfers, picks, strict=True)
    ]


def state_goal(
    problem: Problem,
    goal: Goal,
    program: Program,
    loads: Sequence[Expression],
    energy: Expression,
    scale: float = 1.0,
) -> float:
    """Adds the goal as costs and its bounds as rows; returns the goal's constant part."""
    every, gpu = Expression(), Expression()
    for load in loads:
        every.plus(load)
    for device, load in zip(problem.devices, loads, strict=False):
        gpu.plus(load, float(device == "GPU"))
    for name, limit in goal.bounds.items():
        size = 1.0 / max(abs(limit), 1e-9)
        limited = {
            "latency_us": [every],
            "energy_uj": [energy],
            "gpu_us": [gpu],
            "period_us": _weighted(problem, loads),
        }[name]
        for expression in limited:
            program.row(Expression().plus(expression, size), high=limit * size)
    total = Expression()
    if goal.weights is None:
        total.add(program.variable(), 1.0)
        for load in _weighted(problem, loads):
            program.row(Expression().plus(total).plus(load, -1.0), low=0.0)
    else:
        for weight, load in zip(goal.weights, loads, strict=True):
            total.plus(load, weight)
        total.plus(energy, goal.energy)
    for variable, coefficient in total.items():
        program.cost[variable] += scale * coefficient
    return total.constant


def _weighted(problem: Problem, loads: Sequence[Expression]) -> list[Expression]:
    """Returns the sums of loads of which the period is the largest."""
    found = []
    for row in problem.shares:
        found.append(Expression())
        for weight, load in zip(row, loads, strict=False):
            found[-1].plus(load, weight)
    return found


def evaluate(problem: Problem, modes: Sequence[int], goal: Goal) -> Placing | None:
    """Returns the best way to run a placement's modes, or None when there is no allowed one.

    Args:
        problem: What to place.
        modes: By node, an index into ``problem.modes``.
        goal: What to minimise; of several transfer ways and running orders the best are taken.
    """
    found, exact = evaluated(problem, modes, goal)
    if exact:
        return found
    from edgekit.solver._steps import solve_steps

    costs = tuple(
        tuple(cost if n == m else None for n, cost in enumerate(row))
        for row, m in zip(problem.costs, modes, strict=True)
    )
    return solve_steps(
        replace(problem, costs=costs), goal, start=found, seconds=STEPS_SECONDS
    ).placing


def evaluated(problem: Problem, modes: Sequence[int], goal: Goal) -> tuple[Placing | None, bool]:
    """Returns the best way to run modes, and whether every way was looked at."""
    devices = [problem.device(m) for m in modes]
    exact = True
    options: list[Sequence[Arrangement]] = []
    for network in range(len(problem.networks)):
        orders = arrange(problem, network, devices)
        exact = exact and orders.exact
        options.append(orders.found)
    best: Placing | None = None
    for steps in _together(options):
        found = settle(problem, modes, steps, goal)
        if found and better(found, best):
            best = found
    return best, exact


def _together(options: Sequence[Sequence[Arrangement]]) -> list[list[Step]]:
    """Returns the steps of all networks, for every choice of one arrangement in each."""
    if len(options) == 1:
        return [list(option.steps) for option in options[0]]
    merged: dict[tuple[int, ...], tuple[int, list[Step]]] = {(): (0, [])}
    for option in options:
        following: dict[tuple[int, ...], tuple[int, list[Step]]] = {}
        for (counts, (changes, steps)), arrangement in product(merged.items(), option):
            before = counts or (0,) * len(arrangement.counts)
            key = tuple(a + b for a, b in zip(before, arrangement.counts, strict=True))
            made = (changes + arrangement.transitions, [*steps, *arrangement.steps])
            if key not in following or made[0] < following[key][0]:
                following[key] = made
        merged = following
    return [steps for _, steps in merged.values()]
