"""Throughput: the best mix of plans, each on the GPU and at most one core.

Frames may use different plans, so the steady state is a linear programme over plans: maximise the
sum of their rates such that the devices get done a second's work a second. Devices that slow each
other down divide the second among the sets of them that work at once (``Problem.together``), which
keeps the programme linear. Its columns are found as they are needed (Dantzig and Wolfe, 1960): the
prices of the devices weigh their loads in the exact optimiser, which returns the plan that is worth
most, or proves that none is missing. Identical cores are one resource with their number as
capacity; each plan is then mirrored over them.

The bound is that of mixes whose plans have all slots of their core each. Plans of one core share
its slots, so where the best mix needs more, :mod:`edgekit.solver._mix_slots` chooses among the
plans found, and the bound stays the one without sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.errors import GateError
from edgekit.solver._effort import Effort
from edgekit.solver._evaluate import evaluate
from edgekit.solver._highs import INFINITY
from edgekit.solver._minimise import minimise
from edgekit.solver._mix_master import Column, Lane, capacity, prices_of, rates_of
from edgekit.solver._mix_slots import sharing
from edgekit.solver._problem import Goal, Placing, Problem
from edgekit.solver._twins import swapped_modes, twins

__all__ = ["Mix", "Part", "mix_plans"]

ENOUGH = 1e-6  # relative distance to the bound at which no further plan is looked for
ROUNDS = 60
PROVEN = 5e-5  # gap at which no better sharing of the slots is looked for
SPLITS = 16  # ways to divide a core's slots between two plans
ALTERNATIONS = 4  # of choosing plans and looking for better company for those chosen
NOTHING = 1e-9  # a share below this is rounding


@dataclass(frozen=True, slots=True)
class Part:
    """A plan of a mix: its share of the frames and its placement over all devices."""

    share: float
    placing: Placing


@dataclass(frozen=True, slots=True)
class Mix:
    """Plans with shares that add up to 1, frames a second, and a proven upper bound of that.

    ``clocked``: the wall clock ended the search, so that another run may end elsewhere.
    """

    parts: tuple[Part, ...]
    qps: float
    bound: float
    clocked: bool = False


def mix_plans(
    problem: Problem,
    bounds: Mapping[str, float],
    known: Sequence[Placing] = (),
    *,
    seconds: float = 120.0,
    progress: Callable[[float, float], None] | None = None,
) -> Mix | None:
    """Returns the mix with the most frames a second, or None when no plan keeps the bounds.

    Args:
        problem: What to place; its devices that are no cores are shared by all plans.
        bounds: Limits that every plan of the mix keeps.
        known: Placements to begin with; those on more than one core are left out.
        seconds: Of search, as ``minimise`` counts them; the bound then tells what is open.
        progress: Told the frames a second so far and the bound.

    Raises:
        GateError: Nothing was found within the limits, and nothing was ruled out ("plan.limit").
    """
    effort = Effort(seconds)
    lanes = _lanes(problem)
    columns = _known(problem, lanes, bounds, known)
    rates, bound, unsettled = _generate(lanes, columns, bounds, effort, progress)
    if not columns and unsettled:
        raise _ended()
    if not columns:
        return None
    parts = _mirrored(problem, lanes, columns, rates, bounds)
    total = sum(rates)
    slots = problem.max_loadables
    if slots is not None and any(_slots(parts, core) > slots for core in problem.cores):
        found = _sharing(problem, lanes, columns, rates, bound, bounds, effort)
        if found is None:
            raise _ended()
        parts, total = found
    return Mix(tuple(parts), 1e6 * total, 1e6 * max(bound, total), effort.clocked)


def _ended() -> GateError:
    return GateError(
        "no placement was found within the solver's limits, and none is proved impossible",
        code="plan.limit",
        hint="loosen the bounds or remove pins",
    )


def _lanes(problem: Problem) -> list[Lane]:
    """Returns the cores in groups that are alike; one lane without a core when there is none."""
    shared = tuple(d for d in range(len(problem.devices)) if d not in problem.cores)
    if not problem.cores:
        return [Lane(problem, (), shared)]
    groups: list[list[int]] = []
    alike = set(twins(problem))
    for core in problem.cores:
        if groups and (groups[-1][-1], core) in alike:
            groups[-1].append(core)
        else:
            groups.append([core])
    return [Lane(_only(problem, group[0]), tuple(group), shared) for group in groups]


def _only(problem: Problem, core: int) -> Problem:
    """Returns the problem without its other cores."""
    others = set(problem.cores) - {core}
    return replace(
        problem,
        costs=tuple(
            tuple(None if problem.device(m) in others else cost for m, cost in enumerate(row))
            for row in problem.costs
        ),
        launch=tuple(None if d in others else cost for d, cost in enumerate(problem.launch)),
    )


def _known(
    problem: Problem, lanes: Sequence[Lane], bounds: Mapping[str, float], known: Sequence[Placing]
) -> list[Column]:
    goal = Goal((*(1.0 for _ in problem.devices), 0.0), bounds=bounds)
    found: list[Column] = []
    for placing in known:
        used = {problem.device(m) for m in placing.modes} & set(problem.cores)
        for number, lane in enumerate(lanes):
            if len(used) > 1 or not used <= set(lane.cores):
                continue
            modes = placing.modes
            if used and used != {lane.cores[0]}:
                modes = _on(problem, modes, used.pop(), lane.cores[0])
            own = evaluate(lane.problem, modes, goal)
            if own and not any(own.load_us == c.placing.load_us for c in found):
                found.append(Column(number, own, goal))
    return found


def _on(problem: Problem, modes: Sequence[int], core: int, other: int) -> tuple[int, ...]:
    image = swapped_modes(problem, core, other)
    assert image is not None
    return tuple(image[m] for m in modes)


def _generate(
    lanes: Sequence[Lane],
    columns: list[Column],
    bounds: Mapping[str, float],
    effort: Effort,
    progress: Callable[[float, float], None] | None = None,
) -> tuple[list[float], float, bool]:
    """Adds columns until none is missing.

    Returns:
        Their rates, the bound of the sum, and whether a search ended without any answer.
    """
    bound = INFINITY
    unsettled = False
    rates: list[float] = []
    prices: Sequence[float] = ()
    for _ in range(ROUNDS):
        fresh: list[Column] = []
        least = INFINITY
        for number, lane in enumerate(lanes):
            goal = Goal(lane.weights(prices, number), bounds=bounds)
            found = minimise(lane.problem, goal, effort=effort)
            if found.placing is None and found.bound < INFINITY:
                unsettled = True
            least = min(least, found.bound)
            if found.placing:
                fresh.append(Column(number, found.placing, goal))
        if prices and least > 0:
            bound = min(bound, capacity(lanes, prices) / least)
        new = [c for c in fresh if not any(c.same(other) for other in columns)]
        columns += new
        if (prices and sum(rates) >= bound * (1 - ENOUGH)) or not columns:
            break
        if (prices and not new) or effort.over:
            break
        prices = prices_of(lanes, columns)
        rates = rates_of(lanes, columns)
        if progress and bound < INFINITY:
            progress(1e6 * sum(rates), 1e6 * bound)
    if len(rates) < len(columns):
        rates = rates_of(lanes, columns)
    return rates, bound, unsettled


def _slots(parts: Sequence[Part], core: int) -> int:
    return sum(step.device == core for part in parts for step in part.placing.steps)


def _mirrored(
    problem: Problem,
    lanes: Sequence[Lane],
    columns: Sequence[Column],
    rates: Sequence[float],
    bounds: Mapping[str, float],
) -> list[Part]:
    total = sum(rates)
    wanted: list[tuple[Placing, float]] = []
    for column, rate in zip(columns, rates, strict=True):
        if rate <= NOTHING * total:
            continue
        lane = lanes[column.lane]
        idle = not any(step.device in problem.cores for step in column.placing.steps)
        cores = lane.cores[:1] if idle else lane.cores
        for core in cores or (None,):
            wanted.append((_moved(problem, lane, column, core, bounds), rate / max(1, len(cores))))
    return _parts(wanted)


def _moved(
    problem: Problem, lane: Lane, column: Column, core: int | None, bounds: Mapping[str, float]
) -> Placing:
    """Returns a column's plan on another core of its lane."""
    if core is None or core == lane.cores[0]:
        return column.placing
    modes = _on(problem, column.placing.modes, lane.cores[0], core)
    weights = list(column.goal.weights or ())
    weights[core], weights[lane.cores[0]] = weights[lane.cores[0]], weights[core]
    placing = evaluate(_only(problem, core), modes, Goal(tuple(weights), bounds=bounds))
    assert placing is not None  # the cores are alike
    return placing


def _parts(wanted: Sequence[tuple[Placing, float]]) -> list[Part]:
    """Returns plans with shares of the whole, the largest first, equal plans joined."""
    total = sum(rate for _, rate in wanted)
    shares: dict[tuple[int, ...], tuple[float, Placing]] = {}
    for placing, rate in wanted:
        shares[placing.modes] = (shares.get(placing.modes, (0.0, placing))[0] + rate, placing)
    parts = [Part(rate / total, placing) for rate, placing in shares.values()]
    return sorted(parts, key=lambda part: (-round(part.share, 9), part.placing.modes))


def _sharing(
    problem: Problem,
    lanes: Sequence[Lane],
    columns: list[Column],
    rates: Sequence[float],
    bound: float,
    bounds: Mapping[str, float],
    effort: Effort,
) -> tuple[list[Part], float] | None:
    """Returns a mix whose plans fit together into the slots of their cores, and its rate."""
    slots = problem.max_loadables or 0
    total = sum(rates)
    leading = [c for c, rate in zip(columns, rates, strict=True) if rate > NOTHING * total]
    chosen = sharing(lanes, columns, slots)
    splits = min(slots, SPLITS) // 2
    for i in range(splits + 1):
        few = i * slots // max(1, 2 * splits)
        for limit in (few, slots - few):
            _extend(lanes, columns, [], limit, bounds, effort)
        chosen = sharing(lanes, columns, slots)
        if sum(rate for _, _, rate in chosen) >= bound * (1 - PROVEN):
            break
    if sum(rate for _, _, rate in chosen) < bound * (1 - PROVEN):
        _balanced(lanes, columns, bounds, effort)
        chosen = sharing(lanes, columns, slots)
    tried: list[Column] = []
    for _ in range(ALTERNATIONS):
        if sum(rate for _, _, rate in chosen) >= bound * (1 - PROVEN):
            break
        for column in leading:
            if not any(column.same(other) for other in tried):
                tried.append(column)
                limit = slots - column.slots(lanes)
                _extend(lanes, columns, [column], limit, bounds, effort)
        chosen = sharing(lanes, columns, slots)
        leading = [column for column, _, _ in chosen]
    if not chosen:
        return None
    wanted = [
        (_moved(problem, lanes[column.lane], column, core, bounds), rate)
        for column, core, rate in chosen
    ]
    return _parts(wanted), sum(rate for _, rate in wanted)


def _balanced(
    lanes: Sequence[Lane], columns: list[Column], bounds: Mapping[str, float], effort: Effort
) -> None:
    """Adds each lane's plan with the least period: beside others, none of the hull may be it."""
    for number, lane in enumerate(lanes):
        goal = Goal.of(lane.problem, "period", bounds)
        placing = minimise(lane.problem, goal, effort=effort).placing
        if placing is not None:
            goal = Goal(lane.weights((), number), bounds=bounds)
            column = Column(number, placing, goal)
            columns += [column] if not any(column.same(other) for other in columns) else []


def _extend(
    lanes: Sequence[Lane],
    columns: list[Column],
    beside: Sequence[Column],
    limit: int,
    bounds: Mapping[str, float],
    effort: Effort,
) -> None:
    """Adds the plans of at most ``limit`` loadables that are best together with others."""
    fewer = [replace(lane, problem=replace(lane.problem, max_loadables=limit)) for lane in lanes]
    more = list(beside)
    _generate(fewer, more, bounds, effort)
    columns += [c for c in more if not any(c.same(other) for other in columns)]
