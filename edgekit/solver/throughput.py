"""Throughput: the mix of plans with the most frames a second, each plan on the GPU and at most
one core.

Frames may use different plans, so the steady state is a linear programme over plans: maximise the
sum of their rates such that each device works at most a second per second. If devices slow each
other down, the second is divided among the sets of devices that work at once
(``PlacementProblem.together``), which keeps the programme linear. Its columns are generated on
demand (Dantzig and Wolfe, 1960): the prices of the devices weigh their loads in the exact
optimiser, which returns the plan of the highest value, or proves that none is missing. Identical
cores are one resource with their number as capacity; each plan is then mirrored over the cores.

The bound is for mixes in which each plan has all slots of its core. Plans of a core share its
slots, so if the best mix needs more, :func:`choose_plans` chooses among the plans found; the bound
stays the bound without sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.errors import GateError
from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import (
    Effort,
    Goal,
    PlacementProblem,
    Placing,
    swapped_modes,
    twin_cores,
)
from edgekit.solver.program import INFINITY, Expression, Program

ENOUGH = 1e-6  # relative distance to the bound at which the search for plans ends
ROUNDS = 60
SHARING_GAP = 5e-5  # gap at which the search for a better sharing of the slots ends
SPLITS = 16  # ways to divide a core's slots between two plans
ALTERNATIONS = 4  # of choosing plans and searching better plans to go with the chosen
NOTHING = 1e-9  # a share below this is rounding
LEAST_US = 1e-6  # a plan without any load would have no limit
SMALLEST_RATE = 1e-7


@dataclass(frozen=True, slots=True)
class MixPart:
    """A plan of a mix: its share of the frames, 0 to 1, and its placement over all devices."""

    share: float
    placing: Placing


@dataclass(frozen=True, slots=True)
class Mix:
    """Plans with shares that add up to 1, frames a second, and a proven upper bound of the rate.

    ``clocked``: the wall clock ended the search, so that another run may end elsewhere.
    ``quick``: of the plans found, the mix whose slowest frame is quickest within the slack; empty
    if it equals this mix.
    """

    parts: tuple[MixPart, ...]
    qps: float
    bound: float
    clocked: bool = False
    quick: tuple[MixPart, ...] = ()


def mix_plans(
    problem: PlacementProblem,
    bounds: Mapping[str, float],
    known: Sequence[Placing] = (),
    *,
    seconds: float = 120.0,
    slack: float = 0.0,
    progress: Callable[[float, float], None] | None = None,
) -> Mix | None:
    """Returns the mix with the most frames a second, or None if no plan keeps the bounds.

    Args:
        problem: The placement problem; all plans share its devices other than cores.
        bounds: Limits that every plan of the mix keeps.
        known: Placements to begin with; placements on more than one core are left out.
        seconds: Seconds of search, as in ``minimise``; the bound then shows the open gap.
        slack: Largest loss of ``quick`` in frames a second, as a share.
        progress: Called with the frames a second so far and the bound.

    Raises:
        GateError: No plan was found within the limits, and none was proved impossible
            ("plan.limit").
    """
    effort = Effort(seconds)
    lanes = _make_lanes(problem)
    columns = _known_columns(problem, lanes, bounds, known)
    rates, bound, unsettled = _generate_columns(lanes, columns, bounds, effort, progress)
    if not columns and unsettled:
        raise _search_limit_error()
    if not columns:
        return None
    parts = _mixed_by_symmetry(problem, lanes, columns, rates, bounds)
    total = sum(rates)
    slots = problem.max_loadables
    if slots is not None and any(_count_loadables(parts, core) > slots for core in problem.cores):
        found = _mix_within_slots(problem, lanes, columns, rates, bound, bounds, effort)
        if found is None:
            raise _search_limit_error()
        parts, total = found
    quick: list[MixPart] = []
    if slack:
        quick = _quicker_mix(problem, lanes, columns, parts, (1 - slack) * total, bounds)
    return Mix(tuple(parts), 1e6 * total, 1e6 * max(bound, total), effort.clocked, tuple(quick))


def _quicker_mix(
    problem: PlacementProblem,
    lanes: Sequence[CoreLane],
    columns: Sequence[PlanColumn],
    parts: Sequence[MixPart],
    least: float,
    bounds: Mapping[str, float],
) -> list[MixPart]:
    """Returns the mix of known plans with at least a rate whose slowest plan is quickest.

    Empty if no mix is quicker than ``parts``.
    """

    def latency(placing: Placing) -> float:
        return sum(placing.load_us)

    slowest = max(latency(part.placing) for part in parts)
    # ascending: the first mix with the rate has the quickest slowest plan
    for most in sorted({latency(column.placing) for column in columns}):
        if most >= slowest * (1 - NOTHING):
            break
        few = [column for column in columns if latency(column.placing) <= most]
        rates, _ = best_rates(lanes, few)
        # too few frames a second for the slack
        if sum(rates) < least:
            continue
        found = _mixed_by_symmetry(problem, lanes, few, rates, bounds)
        slots = problem.max_loadables
        if slots is None or all(_count_loadables(found, core) <= slots for core in problem.cores):
            return found
    return []


def _search_limit_error() -> GateError:
    return GateError(
        "no placement was found within the solver's limits, but one may exist",
        code="plan.limit",
        hint="relax the bounds or remove pins",
    )


def _make_lanes(problem: PlacementProblem) -> list[CoreLane]:
    """Returns groups of identical cores; a single lane without a core if there are no cores."""
    # the GPU is in every plan, whatever its core
    shared = tuple(d for d in range(len(problem.devices)) if d not in problem.cores)
    if not problem.cores:
        return [CoreLane(problem, (), shared)]
    groups: list[list[int]] = []
    alike = set(twin_cores(problem))
    for core in problem.cores:
        if groups and (groups[-1][-1], core) in alike:
            groups[-1].append(core)
        else:
            groups.append([core])
    return [CoreLane(_keep_core(problem, group[0]), tuple(group), shared) for group in groups]


def _keep_core(problem: PlacementProblem, core: int) -> PlacementProblem:
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


def _known_columns(
    problem: PlacementProblem,
    lanes: Sequence[CoreLane],
    bounds: Mapping[str, float],
    known: Sequence[Placing],
) -> list[PlanColumn]:
    goal = Goal((*(1.0 for _ in problem.devices), 0.0), bounds=bounds)
    found: list[PlanColumn] = []
    for placing in known:
        used = {problem.device(m) for m in placing.modes} & set(problem.cores)
        for number, lane in enumerate(lanes):
            # a plan of a mix is on one core
            if len(used) > 1 or not used <= set(lane.cores):
                continue
            modes = placing.modes
            if used and used != {lane.cores[0]}:
                modes = _move_modes(problem, modes, used.pop(), lane.cores[0])
            own = evaluate(lane.problem, modes, goal)
            if own and not any(own.load_us == c.placing.load_us for c in found):
                found.append(PlanColumn(number, own, goal))
    return found


def _move_modes(
    problem: PlacementProblem, modes: Sequence[int], core: int, other: int
) -> tuple[int, ...]:
    image = swapped_modes(problem, core, other)
    assert image is not None
    return tuple(image[m] for m in modes)


def _generate_columns(
    lanes: Sequence[CoreLane],
    columns: list[PlanColumn],
    bounds: Mapping[str, float],
    effort: Effort,
    progress: Callable[[float, float], None] | None = None,
) -> tuple[list[float], float, bool]:
    """Adds columns until none is missing.

    Returns:
        Their rates, the bound of the sum, and True if a search ended without an answer.
    """
    bound = INFINITY
    unsettled = False
    rates: list[float] = []
    prices: Sequence[float] = ()
    for _ in range(ROUNDS):
        fresh: list[PlanColumn] = []
        least = INFINITY
        for number, lane in enumerate(lanes):
            goal = Goal(lane.weights(prices, number), bounds=bounds)
            found = minimise(lane.problem, goal, effort=effort)
            if found.placing is None and found.bound < INFINITY:
                unsettled = True
            # the next plan may come from any lane
            least = min(least, found.bound)
            if found.placing:
                fresh.append(PlanColumn(number, found.placing, goal))
        # At these prices each frame costs at least `least`, and all devices together have the
        # capacity: weak duality bounds the rate.
        if prices and least > 0:
            bound = min(bound, capacity(lanes, prices) / least)
        new = [c for c in fresh if not any(c.same(other) for other in columns)]
        columns += new
        if (prices and sum(rates) >= bound * (1 - ENOUGH)) or not columns:
            break
        # no plan is worth more than its price: the mix is best
        if (prices and not new) or effort.over:
            break
        rates, prices = best_rates(lanes, columns)
        if progress and bound < INFINITY:
            progress(1e6 * sum(rates), 1e6 * bound)
    # the last columns came after the last rates
    if len(rates) < len(columns):
        rates, _ = best_rates(lanes, columns)
    return rates, bound, unsettled


def _count_loadables(parts: Sequence[MixPart], core: int) -> int:
    return sum(step.device == core for part in parts for step in part.placing.steps)


def _mixed_by_symmetry(
    problem: PlacementProblem,
    lanes: Sequence[CoreLane],
    columns: Sequence[PlanColumn],
    rates: Sequence[float],
    bounds: Mapping[str, float],
) -> list[MixPart]:
    total = sum(rates)
    wanted: list[tuple[Placing, float]] = []
    for column, rate in zip(columns, rates, strict=True):
        if rate <= NOTHING * total:
            continue
        lane = lanes[column.lane]
        # A plan on the GPU alone is the same for every core.
        idle = not any(step.device in problem.cores for step in column.placing.steps)
        cores = lane.cores[:1] if idle else lane.cores
        for core in cores or (None,):
            wanted.append(
                (_move_plan(problem, lane, column, core, bounds), rate / max(1, len(cores)))
            )
    return _join_parts(wanted)


def _move_plan(
    problem: PlacementProblem,
    lane: CoreLane,
    column: PlanColumn,
    core: int | None,
    bounds: Mapping[str, float],
) -> Placing:
    """Returns a column's plan on another core of its lane."""
    if core is None or core == lane.cores[0]:
        return column.placing
    modes = _move_modes(problem, column.placing.modes, lane.cores[0], core)
    weights = list(column.goal.weights or ())
    # the goal chose the plan's ways; with exchanged weights it chooses the same on this core
    weights[core], weights[lane.cores[0]] = weights[lane.cores[0]], weights[core]
    placing = evaluate(_keep_core(problem, core), modes, Goal(tuple(weights), bounds=bounds))
    assert placing is not None  # the cores are identical
    return placing


def _join_parts(wanted: Sequence[tuple[Placing, float]]) -> list[MixPart]:
    """Returns plans with shares of the whole, the largest first, equal plans joined."""
    total = sum(rate for _, rate in wanted)
    shares: dict[tuple[int, ...], tuple[float, Placing]] = {}
    for placing, rate in wanted:
        shares[placing.modes] = (shares.get(placing.modes, (0.0, placing))[0] + rate, placing)
    parts = [MixPart(rate / total, placing) for rate, placing in shares.values()]
    return sorted(parts, key=lambda part: (-round(part.share, 9), part.placing.modes))


def _mix_within_slots(
    problem: PlacementProblem,
    lanes: Sequence[CoreLane],
    columns: list[PlanColumn],
    rates: Sequence[float],
    bound: float,
    bounds: Mapping[str, float],
    effort: Effort,
) -> tuple[list[MixPart], float] | None:
    """Returns a mix whose plans fit together into the slots of their cores, and its rate."""
    slots = problem.max_loadables or 0
    total = sum(rates)
    leading = [c for c, rate in zip(columns, rates, strict=True) if rate > NOTHING * total]
    chosen = choose_plans(lanes, columns, slots)
    # Plans of `few` and of the remaining slots fit beside each other on a core.
    splits = min(slots, SPLITS) // 2
    for i in range(splits + 1):
        few = i * slots // max(1, 2 * splits)
        for limit in (few, slots - few):
            _extend(lanes, columns, [], limit, bounds, effort)
        chosen = choose_plans(lanes, columns, slots)
        if sum(rate for _, _, rate in chosen) >= bound * (1 - SHARING_GAP):
            break
    if sum(rate for _, _, rate in chosen) < bound * (1 - SHARING_GAP):
        _balance_columns(lanes, columns, bounds, effort)
        chosen = choose_plans(lanes, columns, slots)
    tried: list[PlanColumn] = []
    # plans for the slots that each chosen plan leaves on its core
    for _ in range(ALTERNATIONS):
        if sum(rate for _, _, rate in chosen) >= bound * (1 - SHARING_GAP):
            break
        for column in leading:
            if not any(column.same(other) for other in tried):
                tried.append(column)
                limit = slots - column.slots(lanes)
                _extend(lanes, columns, [column], limit, bounds, effort)
        chosen = choose_plans(lanes, columns, slots)
        leading = [column for column, _, _ in chosen]
    if not chosen:
        return None
    wanted = [
        (_move_plan(problem, lanes[column.lane], column, core, bounds), rate)
        for column, core, rate in chosen
    ]
    return _join_parts(wanted), sum(rate for _, rate in wanted)


def _balance_columns(
    lanes: Sequence[CoreLane],
    columns: list[PlanColumn],
    bounds: Mapping[str, float],
    effort: Effort,
) -> None:
    """Adds each lane's plan with the least period, which the generated columns may lack."""
    for number, lane in enumerate(lanes):
        goal = Goal.of(lane.problem, "period", bounds)
        placing = minimise(lane.problem, goal, effort=effort).placing
        if placing is not None:
            goal = Goal(lane.weights((), number), bounds=bounds)
            column = PlanColumn(number, placing, goal)
            columns += [column] if not any(column.same(other) for other in columns) else []


def _extend(
    lanes: Sequence[CoreLane],
    columns: list[PlanColumn],
    others: Sequence[PlanColumn],
    limit: int,
    bounds: Mapping[str, float],
    effort: Effort,
) -> None:
    """Adds the plans of at most ``limit`` loadables that are best together with others."""
    fewer = [replace(lane, problem=replace(lane.problem, max_loadables=limit)) for lane in lanes]
    more = list(others)
    _generate_columns(fewer, more, bounds, effort)
    columns += [c for c in more if not any(c.same(other) for other in columns)]


@dataclass(frozen=True, slots=True)
class CoreLane:
    """A group of identical cores, with the problem reduced to the first core.

    In the linear programme of a mix, the resources are the devices other than cores, then one for
    each lane. ``shared`` are the devices that the plans of every lane use.
    """

    problem: PlacementProblem
    cores: tuple[int, ...]
    shared: tuple[int, ...]

    def weights(self, prices: Sequence[float], number: int) -> tuple[float, ...]:
        """Returns the prices by resource of the problem; without prices all are equal."""
        weights = [1.0] * len(self.problem.devices)
        if prices:
            weights = [0.0] * len(self.problem.devices)
            for device, price in zip(self.shared, prices, strict=False):
                weights[device] = price
            for core in self.cores[:1]:
                weights[core] = prices[len(self.shared) + number]
        return (*weights, 0.0)


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A plan in a lane, on the lane's first core, and the goal that it was found for."""

    lane: int
    placing: Placing
    goal: Goal

    def same(self, other: PlanColumn) -> bool:
        """Returns True if two columns are the same plan."""
        return self.lane == other.lane and (
            self.placing.load_us == other.placing.load_us
            and self.placing.modes == other.placing.modes
        )

    def slots(self, lanes: Sequence[CoreLane]) -> int:
        """Returns the number of loadables of the plan."""
        core = lanes[self.lane].cores[:1]
        return sum(step.device in core for step in self.placing.steps)


def column_loads(lanes: Sequence[CoreLane], column: PlanColumn) -> list[float]:
    """Returns a plan's load on every resource, in microseconds."""
    load = [max(LEAST_US, column.placing.load_us[d]) for d in lanes[0].shared]
    for number, lane in enumerate(lanes):
        mine = number == column.lane and lane.cores
        load.append(column.placing.load_us[lane.cores[0]] if mine else 0.0)
    return load


def lane_speeds(lanes: Sequence[CoreLane]) -> tuple[tuple[float, ...], ...]:
    """Returns the speeds of the devices in each set of devices that can work at once."""
    problem = lanes[0].problem
    return problem.together or ((1.0,) * len(problem.devices),)


def _limits(lanes: Sequence[CoreLane]) -> list[list[float]]:
    """Returns the work rate of each resource during each set of devices.

    Cores of a lane are identical, so a set's time is divided evenly among its images under
    exchanges of cores, and all cores of a lane do the same amount of work.
    """
    return [
        [speeds[d] for d in lanes[0].shared]
        + [sum(speeds[c] for c in lane.cores) for lane in lanes]
        for speeds in lane_speeds(lanes)
    ]


def capacity(lanes: Sequence[CoreLane], prices: Sequence[float]) -> float:
    """Returns the value of all devices together."""
    return max(
        sum(limit * price for limit, price in zip(limits, prices, strict=True))
        for limits in _limits(lanes)
    )


def best_rates(
    lanes: Sequence[CoreLane], columns: Sequence[PlanColumn]
) -> tuple[list[float], list[float]]:
    """Returns the best rates of plans in frames a microsecond, and the prices by resource.

    At these prices, the duals of the rates, every plan has a value of at least 1.
    """
    # rates near 1: the solver's tolerances are absolute
    unit = sum(column_loads(lanes, columns[0]))
    program = Program()
    rates = [program.real(cost=-1.0) for _ in columns]
    loads = [column_loads(lanes, column) for column in columns]
    sets = _limits(lanes)
    times = [program.real() for _ in sets]
    program.row(Expression(dict.fromkeys(times, 1.0)), high=1.0)
    first = len(program.rows)
    for resource in range(len(sets[0])):
        used = Expression({f: load[resource] / unit for f, load in zip(rates, loads, strict=True)})
        for time, limits in zip(times, sets, strict=True):
            used.add(time, -limits[resource])
        program.row(used, high=0.0)
    found = program.solve()
    assert found.values is not None
    prices = [max(0.0, -dual) / unit for dual in found.duals[first:]]
    return [max(0.0, found.values[rate]) / unit for rate in rates], prices


ChosenPlan = tuple[PlanColumn, "int | None", float]


def choose_plans(
    lanes: Sequence[CoreLane], columns: Sequence[PlanColumn], slots: int
) -> list[ChosenPlan]:
    """Returns plans with the core and the rate (frames a microsecond) of each.

    Args:
        lanes: The cores.
        columns: The plans to choose from.
        slots: Loadables that a core can hold, of all plans together.
    """
    options: list[tuple[PlanColumn, int | None]] = []
    for column in columns:
        cores = lanes[column.lane].cores if column.slots(lanes) else ()
        options += [(column, core) for core in cores or (None,)]
    picked = _solve_rates(lanes, options, slots)
    # Solve again without the others: a basic solution has at most as many plans as devices.
    return _solve_rates(lanes, [(column, core) for column, core, _ in picked], None)


def _solve_rates(
    lanes: Sequence[CoreLane],
    options: Sequence[tuple[PlanColumn, int | None]],
    slots: int | None,
) -> list[ChosenPlan]:
    if not options:
        return []
    unit = sum(column_loads(lanes, options[0][0]))
    program = Program()
    shared = len(lanes[0].shared)
    own = [[us / unit for us in column_loads(lanes, column)] for column, _ in options]
    # frames per time of the busiest device: no rate is larger, even without contention
    most = [1.0 / max(load) for load in own]
    rates = [program.real(limit, cost=-1.0) for limit in most]
    sets = lane_speeds(lanes)
    times = [program.real(1.0) for _ in sets]
    program.row(Expression(dict.fromkeys(times, 1.0)), high=1.0)

    def within(used: Expression, device: int) -> None:
        for time, speeds in zip(times, sets, strict=True):
            used.add(time, -speeds[device])
        program.row(used, high=0.0)

    for number, device in enumerate(lanes[0].shared):
        used = {f: load[number] for f, load in zip(rates, own, strict=True)}
        within(Expression(used), device)
    for core in (core for lane in lanes for core in lane.cores):
        on_core = [i for i, (_, where) in enumerate(options) if where == core]
        loads = {rates[i]: own[i][shared + options[i][0].lane] for i in on_core}
        within(Expression(loads), core)
        if slots is None:
            continue
        taken = Expression()
        for i in on_core:
            # a plan holds its slots whatever its rate is; `most` is the least factor that allows
            # all rates
            loaded = program.variable(1.0, integer=True)
            taken.add(loaded, float(options[i][0].slots(lanes)))
            program.row(Expression({rates[i]: 1.0, loaded: -most[i]}), high=0.0)
        program.row(taken, high=float(slots))
    values = program.solve().values
    if values is None:
        return []
    return [
        (column, core, values[f] / unit)
        for f, (column, core) in zip(rates, options, strict=True)
        if values[f] > SMALLEST_RATE
    ]
