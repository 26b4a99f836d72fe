"""The cost of a placement: the loads of given modes, and the best way to run them. Also merges
identical cores, so that equivalent placements are searched only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from edgekit.solver.loadables import arrange, count_transitions
from edgekit.solver.problem import (
    OUTSIDE,
    Cost,
    ExecutionStep,
    Goal,
    PlacementProblem,
    Placing,
    metrics,
    swapped_modes,
    twin_cores,
)
from edgekit.solver.program import Expression, Program

TOLERANCE = 2e-6  # relative, on bounds; the solvers keep rows to 1e-6
STEPS_SECONDS = 5.0  # of CP-SAT, for loadables of many nodes limited by pools or a least size
SAME = 1e-9  # relative, of values that are equal except for rounding


def allows(
    problem: PlacementProblem, goal: Goal, load_us: Sequence[float], energy_uj: float
) -> bool:
    """Returns True if loads keep the goal's bounds."""
    if not goal.bounds:
        return True
    have = metrics(problem, load_us, energy_uj)
    return all(have[name] <= limit + TOLERANCE * abs(limit) for name, limit in goal.bounds.items())


def is_better(candidate: Placing, best: Placing | None) -> bool:
    """Returns True if a placement's value is less, or equal with fewer transitions."""
    if best is None:
        return True
    slack = SAME * max(abs(candidate.value), abs(best.value))
    if abs(candidate.value - best.value) > slack:
        return candidate.value < best.value
    return _rank(candidate) < _rank(best)


def _rank(placing: Placing) -> tuple[int, int, float, tuple[int, ...]]:
    total = sum(placing.load_us)
    # modes last: of equal placements every machine must take the same
    return (count_transitions(placing.steps), len(placing.steps), round(total, 6), placing.modes)


def find_paid_transfers(problem: PlacementProblem, modes: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the transfers to pay, as indices of the border and of the border's transfer."""
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
    problem: PlacementProblem,
    modes: Sequence[int],
    steps: Sequence[ExecutionStep],
    goal: Goal,
    ways: Sequence[tuple[int, int, int]] | None = None,
) -> Placing | None:
    """Returns the placement that runs these steps, or None if it breaks a bound or the slots.

    Without ``ways`` the best ways for the goal are taken.
    """
    loads = [0.0] * (len(problem.devices) + 1)
    energy = 0.0
    for v, m in enumerate(modes):
        cost = problem.costs[v][m]
        # a start of a search can come from a problem with other pins or more cores
        if cost is None:
            return None
        energy = _add_costs(loads, energy, cost)
    slots = dict.fromkeys(problem.cores, 0)
    for step in steps:
        launch = problem.launch[step.device]
        if launch is not None:
            energy = _add_costs(loads, energy, launch)
            slots[step.device] += 1
    if problem.max_loadables is not None and max(slots.values(), default=0) > problem.max_loadables:
        return None
    # after all other loads: under a bound, or for a period, they decide which way is best
    if ways is None:
        ways = _ways(problem, goal, loads, energy, find_paid_transfers(problem, modes))
        if ways is None:
            return None
    for b, t, w in ways:
        energy = _add_costs(loads, energy, problem.borders[b].transfers[t].ways[w])
    if not allows(problem, goal, loads, energy):
        return None
    value = goal.value(loads, energy)
    return Placing(tuple(modes), tuple(steps), tuple(ways), tuple(loads), energy, value)


def _add_costs(loads: list[float], energy: float, cost: Cost) -> float:
    for resource, us in enumerate(cost.load_us):
        loads[resource] += us
    return energy + cost.energy_uj


def useful_ways(ways: Sequence[Cost], goal: Goal) -> list[int]:
    """Returns the ways that can be best for the goal: a single way if a weighted sum decides."""
    if goal.weights is not None and not goal.bounds:
        values = [goal.value(way.load_us, way.energy_uj) for way in ways]
        order = sorted(range(len(ways)), key=lambda w: (values[w], sum(ways[w].load_us), w))
        return order[:1]
    retained: list[int] = []
    for w, way in enumerate(ways):
        mine = (*way.load_us, way.energy_uj)
        others = [(u, (*ways[u].load_us, ways[u].energy_uj)) for u in range(len(ways)) if u != w]
        # dominated in every resource and in energy; of equal ways the first stays
        if not any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and (other != mine or u < w)
            for u, other in others
        ):
            retained.append(w)
    return retained


def _ways(
    problem: PlacementProblem,
    goal: Goal,
    loads: Sequence[float],
    energy: float,
    transfers: Sequence[tuple[int, int]],
) -> list[tuple[int, int, int]] | None:
    """Returns the best ways of the transfers to pay, or None if none keep the bounds."""
    choices = [useful_ways(problem.borders[b].transfers[t].ways, goal) for b, t in transfers]
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
    # exact: the relaxation's bound is compared with this placement's value
    found = program.solve(gap=1e-9)
    if found.values is None:
        return None
    return [
        (b, t, max(pick, key=lambda w: found.values[pick[w]] if found.values else 0.0))
        for (b, t), pick in zip(transfers, picks, strict=True)
    ]


def state_goal(
    problem: PlacementProblem,
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
        # limits near 1, since the solvers' tolerances are absolute
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
        sums = _weighted(problem, loads)
        # CP-SAT needs a finite range of the period
        most = max(
            sum(max(c, 0.0) * program.upper[i] for i, c in load.items()) + load.constant
            for load in sums
        )
        total.add(program.real(max(most, 1e-9)), 1.0)
        for load in sums:
            program.row(Expression().plus(total).plus(load, -1.0), low=0.0)
    else:
        for weight, load in zip(goal.weights, loads, strict=True):
            total.plus(load, weight)
        total.plus(energy, goal.energy)
    for variable, coefficient in total.items():
        program.cost[variable] += scale * coefficient
    return total.constant


def _weighted(problem: PlacementProblem, loads: Sequence[Expression]) -> list[Expression]:
    """Returns the sums of loads; their maximum is the period."""
    found = []
    for row in problem.shares:
        found.append(Expression())
        for weight, load in zip(row, loads, strict=False):
            found[-1].plus(load, weight)
    return found


def evaluate(problem: PlacementProblem, modes: Sequence[int], goal: Goal) -> Placing | None:
    """Returns the best way to run a placement's modes, or None if none is allowed.

    Args:
        problem: The placement problem.
        modes: By node, an index into ``problem.modes``.
        goal: The goal; the best transfer ways and running order for it are taken.
    """
    found, exact = evaluate_quickly(problem, modes, goal)
    if exact:
        return found
    from edgekit.solver.cpsat.running_order import solve_steps

    # only the order is open: each node keeps its mode
    costs = tuple(
        tuple(cost if n == m else None for n, cost in enumerate(row))
        for row, m in zip(problem.costs, modes, strict=True)
    )
    return solve_steps(
        replace(problem, costs=costs), goal, start=found, seconds=STEPS_SECONDS
    ).placing


def evaluate_quickly(
    problem: PlacementProblem, modes: Sequence[int], goal: Goal
) -> tuple[Placing | None, bool]:
    """Returns the best way to run modes, and True if the search was exhaustive."""
    orders = arrange(problem, [problem.device(m) for m in modes])
    best: Placing | None = None
    for arrangement in orders.found:
        found = settle(problem, modes, arrangement.steps, goal)
        if found and is_better(found, best):
            best = found
    return best, orders.exact


def merge_twin_cores(
    problem: PlacementProblem,
) -> tuple[PlacementProblem, Mapping[int, int]] | None:
    """Returns the problem with two twin cores merged, and the second core's modes.

    The merged core has the slots of both. This is a relaxation for goals that weigh both cores
    alike: moves between the cores are free. Returns None if the cores are not two twins.
    """
    if len(problem.cores) != 2 or not twin_cores(problem):
        return None
    core, twin = problem.cores
    image = swapped_modes(problem, core, twin) or ()
    second = {m: image[m] for m in range(len(image)) if problem.device(m) == core}
    if not _cheaper_together(problem, second):
        return None
    gone = set(second.values())
    if not any(row[m] for row in problem.costs for m in gone):
        return None  # no node can run on either
    slots = problem.max_loadables
    single = replace(
        problem,
        costs=tuple(
            tuple(None if m in gone else cost for m, cost in enumerate(row))
            for row in problem.costs
        ),
        max_loadables=None if slots is None else slots * 2,
    )
    return single, second


def split_over_cores(
    problem: PlacementProblem, goal: Goal, single: Placing, second: Mapping[int, int]
) -> Iterator[Placing]:
    """Yields placements on both cores from a placement on the merged core, in its order.

    Neighbouring loadables that a core cannot hold go to the other core.
    """
    core, twin = problem.cores
    own = [i for i, step in enumerate(single.steps) if step.device == core]
    slots = problem.max_loadables
    extra = 0 if slots is None else max(0, len(own) - slots)
    # each window of neighbouring loadables; without extra loadables the placement as it is
    for first in range(len(own) - extra + 1 if extra else 1):
        moved = set(own[first : first + extra])
        modes = list(single.modes)
        steps = list(single.steps)
        for i in moved:
            steps[i] = replace(steps[i], device=twin)
            for v in steps[i].nodes:
                modes[v] = second[modes[v]]
        placing = settle(problem, modes, steps, goal)
        if placing:
            yield placing


def _cheaper_together(problem: PlacementProblem, second: Mapping[int, int]) -> bool:
    """Returns True if each cost on the merged core is also paid on two cores, for any division."""
    image = {**second, **{b: a for a, b in second.items()}}
    for transfer in (t for border in problem.borders for t in border.transfers):
        pairs = transfer.pairs
        # a conversion within a core must be paid between the two cores, too
        if any(
            a in image and b in image and (a, image[b]) not in pairs
            for a, b in pairs
            if problem.device(a) == problem.device(b)
        ):
            return False
        if {(image.get(a, a), image.get(b, b)) for a, b in pairs} != pairs:
            touched = {problem.device(m) for pair in pairs for m in pair if m in image}
            if len(touched) > 1:
                return False
    return True
