"""The search over placements, and over the ways to cut the network into kernels: one objective
under its bounds, solved to plans with shares, a value and its proven bound.

A kernel is on one device. The problem cuts a kernel at differences of verdicts, pins or batches,
and joins parts on the same device again; TensorRT's automatic placement can cut other kernels, at
the border of its loadables. Such a cut is searched, too, if it gains more.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import permutations

from edgekit.errors import GateError
from edgekit.placement.baselines import Baseline
from edgekit.placement.inputs import PlacementInputs
from edgekit.placement.plan import Options
from edgekit.placement.problem import BuiltProblem, build_problem
from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import (
    METRIC,
    Effort,
    Goal,
    Mode,
    PlacementProblem,
    Placing,
    metrics,
)
from edgekit.solver.throughput import mix_plans

Compared = Mapping[str, Baseline | None]
SAME = 1e-9  # relative: two values of an objective are equal
EFFORT = 45.0  # units of the solver's Effort: counted work, so that plans are reproducible
PERIOD_EFFORT = 16.0  # for one plan for all frames, whose proof can take hours; also seconds
STARTS_SHARE = 0.3  # share of PERIOD_EFFORT for start placements
SLACK_GAIN = 0.02  # minimum gain of the second figure for a search within the slack
SLACK_EFFORT = 4.0  # for the choice within the slack, which has no proof
OnBound = Callable[[float, float], None]
POSITIONS = 120  # cuts tried along the network
MOST_EVALUATED = 12  # cuts with an exact value


def search(
    request: PlacementInputs,
    built: BuiltProblem,
    compared: Compared,
    on_bound: OnBound | None = None,
    *,
    cores: int | None = None,
) -> tuple[BuiltProblem, Solved, list[str]]:
    """Returns the problem of the best plan, its solution, and notes.

    Its bound holds for every cut into kernels that was searched. ``on_bound`` is called
    periodically with the best value and the bound. ``cores``: maximum cores of a plan; None for
    all.

    Raises:
        GateError: No plan meets the request ("plan.infeasible"), or the solver's limits ended the
            search before a plan was found or ruled out ("plan.limit").
    """
    cores = len(request.cores) if cores is None else cores
    options = replace(request.options, bounds=solver_bounds(request, cores))
    built = replace(built, problem=limit_cores(built.problem, cores))
    best = optimise(built.problem, options, _starts(built, compared), on_bound)
    clocked = best.clocked
    tried, at, notes = [built], 0, list[str]()
    bound = best.bound
    for name, baseline in _with_other_kernels(built, compared):
        # kernels cut otherwise are solved only if their baseline is already better than this plan
        if best.parts and not is_better(
            options, _baseline_value(request, built, baseline), best.value
        ):
            continue
        other = build_problem(request, kernels=baseline.built.kernels)
        other = replace(other, problem=limit_cores(other.problem, cores))
        found = optimise(other.problem, options, _starts(other, compared), on_bound)
        clocked = clocked or found.clocked
        # the weakest bound: it must hold for every cut that was searched
        bound = (max if options.objective == "throughput" else min)(bound, found.bound)
        if found.parts and is_better(options, found.value, best.value):
            best, at = found, len(tried)
            notes = [f"layers are fused as in {name}; the alternative fusion is slower"]
        tried.append(other)
    if clocked:
        notes.append("the search reached its time limit; another run may give another result")
    if best.parts:
        return tried[at], replace(best, bound=bound), notes
    # an infinite bound (0 for frames a second) proves that no plan exists
    if bound != no_plan(options).bound:
        raise GateError(
            "the solver found no placement within its limits, but has not proved that none exists",
            code="plan.limit",
            hint="relax the bounds or remove pins",
        )
    raise GateError(
        "no placement meets all constraints",
        code="plan.infeasible",
        hint="relax the bounds, remove pins, or raise the limits",
    )


def fixed_uj(request: PlacementInputs, cores: int) -> float:
    """Returns the part of a frame's energy that the solver does not include: the idle energy at a
    rate, with this number of DLA cores in use."""
    if request.options.rate_hz is None:
        return 0.0
    return request.model.idle_uj((1.0,) * (1 + min(cores, len(request.cores))))


def solver_bounds(request: PlacementInputs, cores: int) -> dict[str, float]:
    """Returns the bounds without ``fixed_uj``, for plans with this number of DLA cores."""
    bounds = dict(request.options.bounds)
    if "energy_uj" in bounds and request.options.rate_hz is not None:
        # 1e-6 replaces negative bounds, and no plan has so little energy
        bounds["energy_uj"] = max(bounds["energy_uj"] - fixed_uj(request, cores), 1e-6)
    return bounds


def _with_other_kernels(built: BuiltProblem, compared: Compared) -> Iterator[tuple[str, Baseline]]:
    """Yields the baselines with other kernels, once for each set of kernels."""
    known = {built.kernels}
    for name, baseline in compared.items():
        if baseline is not None and baseline.built.kernels not in known:
            known.add(baseline.built.kernels)
            yield name, baseline


def _starts(built: BuiltProblem, compared: Compared) -> list[Placing]:
    """Returns the baselines that are placements of the problem."""
    # any goal: only the modes are used
    goal = Goal.of(built.problem, "period", {})
    found = []
    for baseline in compared.values():
        modes = _modes_like(built, baseline) if baseline else None
        placing = evaluate(built.problem, modes, goal) if modes else None
        if placing is not None:
            found.append(placing)
    return found


def _modes_like(built: BuiltProblem, baseline: Baseline) -> tuple[int, ...] | None:
    """Returns modes with a baseline's device for each kernel's last layer; None if not allowed."""
    theirs, problem = baseline.built, built.problem
    mode_of: dict[int, Mode] = {
        i: theirs.problem.modes[baseline.modes[v]]
        for v, kernel in enumerate(theirs.kernels)
        for i in kernel.layers
    }
    modes = []
    for v, kernel in enumerate(built.kernels):
        # the baseline's kernels may be cut differently: the layer that writes the output decides
        want = mode_of[kernel.layers[-1]]
        fitting = [
            (problem.modes[m] != want, m)
            for m, cost in enumerate(problem.costs[v])
            if cost is not None and bool(problem.device(m)) == bool(want.device)
        ]
        if not fitting:
            return None
        modes.append(min(fitting)[1])
    return tuple(modes)


def _baseline_value(request: PlacementInputs, built: BuiltProblem, baseline: Baseline) -> float:
    """Returns the value of a baseline as a plan; the worst value if it breaks a constraint."""
    placing = baseline_within_request(request, built.problem, baseline)
    if placing is None or (request.options.objective == "throughput" and not placing.value):
        return no_plan(request.options).value
    return 1e6 / placing.value if request.options.objective == "throughput" else placing.value


def baseline_within_request(
    request: PlacementInputs, searched: PlacementProblem, baseline: Baseline
) -> Placing | None:
    """Returns a baseline as a placement that meets the request; None if it does not."""
    options, base = request.options, baseline.built.problem
    if not _keeps_pins(request, baseline):
        return None
    on_dla = [bool(base.device(m)) for m in baseline.modes]
    problem = replace(
        base,
        max_transitions=searched.max_transitions,
        min_size=searched.min_size,
        fits=request.capacity.fits(baseline.built.kernels, on_dla) if any(on_dla) else None,
    )
    bounds = dict(options.bounds)
    # the baseline's own energy is compared: the solver counts only one of the two sums
    if baseline.energy_uj > bounds.pop("energy_uj", math.inf):
        return None
    # one plan for all frames
    metric = "period" if options.objective == "throughput" else options.objective
    return evaluate(problem, baseline.modes, Goal.of(problem, metric, bounds))


def _keeps_pins(request: PlacementInputs, baseline: Baseline) -> bool:
    """Returns True if a baseline, which ignores constraints, keeps all pins and verdicts."""
    problem = baseline.built.problem
    used = {d: problem.devices[d] for d in map(problem.device, baseline.modes)}
    if not request.options.gpu and "GPU" in used.values():
        return False
    place = {
        request.network.layers[i].name: used[problem.device(baseline.modes[v])]
        for v, kernel in enumerate(baseline.built.kernels)
        for i in kernel.layers
    }
    return all(
        fnmatchcase(place[name], "DLA*" if device == "DLA" else device)
        for name, device in request.pins.items()
    )


@dataclass(frozen=True, slots=True)
class PlanShare:
    """A plan of a mix: its share of the frames and its placement over all devices."""

    share: float
    placing: Placing


@dataclass(frozen=True)
class Solved:
    """Parts with shares, the objective's value (frames a second for throughput) and a bound.

    ``clocked``: True if the wall clock ended the search, so that another run may differ.
    ``quick``: for a mix, the parts of the mix with the least latency within the slack, if known.
    """

    parts: tuple[PlanShare, ...]
    value: float
    bound: float
    clocked: bool = False
    quick: tuple[PlanShare, ...] = ()


def objective_value(
    objective: str, problem: PlacementProblem, load_us: Sequence[float], energy_uj: float
) -> float:
    """Returns the value of one plan for an objective; smaller is better."""
    return metrics(problem, load_us, energy_uj)[METRIC[objective]]


def optimise(
    problem: PlacementProblem,
    options: Options,
    starts: Sequence[Placing] = (),
    progress: OnBound | None = None,
) -> Solved:
    """Returns the best plans for the options' objective under its bounds.

    If no plan was found there are no parts; if provably no plan exists, the bound is that of
    :func:`no_plan`.
    """
    none = no_plan(options)
    if options.objective == "throughput":
        mix = mix_plans(problem, options.bounds, starts, slack=options.slack, progress=progress)
        if mix is None:
            return none
        parts, quick = (
            tuple(PlanShare(part.share, part.placing) for part in parts)
            for parts in (mix.parts, mix.quick)
        )
        return Solved(parts, mix.qps, mix.bound, mix.clocked, quick)
    if not options.gpu:
        problem = limit_cores(problem)  # a second core is a replica: no frame gets shorter
    goal = Goal.of(problem, options.objective, options.bounds)
    effort = Effort(EFFORT)
    if options.objective == "period":
        effort = Effort(PERIOD_EFFORT, seconds=PERIOD_EFFORT)
        # without a core, or with a node that cannot run, no start is needed
        if problem.cores and all(any(row) for row in problem.costs):
            part = effort.part(effort.left * STARTS_SHARE)
            starts = [*starts, *period_starts(problem, options.bounds, part)]
    found = minimise(problem, goal, starts=starts, effort=effort, progress=progress)
    if found.placing is None:
        return replace(none, bound=found.bound, clocked=effort.clocked)
    parts = (PlanShare(1.0, found.placing),)
    # a search that ended before its first bound has the bound 0: no objective is negative
    return Solved(parts, found.placing.value, max(found.bound, 0.0), effort.clocked)


def optimise_second(
    request: PlacementInputs, built: BuiltProblem, solved: Solved, most: float, cores: int
) -> Solved | None:
    """Returns a solution that beats the optimum in the second figure; None if none was found.

    Args:
        request: The network and the request.
        built: The solved problem.
        solved: The problem's optimum.
        most: Maximum of the objective; a mix has its own.
        cores: Maximum cores of a plan.
    """
    options, problem = request.options, built.problem
    if options.objective == "throughput":
        return replace(solved, parts=solved.quick) if solved.quick else None
    if not options.gpu:
        problem = limit_cores(problem)
    bounds, metric = solver_bounds(request, cores), METRIC[options.objective]
    if options.objective == "energy":
        most -= fixed_uj(request, cores)
    bounds[metric] = min(most, bounds.get(metric, math.inf))
    second = "energy" if options.objective == "latency" else "latency"
    goal = Goal.of(problem, second, bounds)
    starts = [part.placing for part in solved.parts]
    effort = Effort(SLACK_EFFORT)
    found = minimise(problem, goal, starts=starts, effort=effort, enough=SLACK_GAIN).placing
    return None if found is None else replace(solved, parts=(PlanShare(1.0, found),))


def no_plan(options: Options) -> Solved:
    """Returns the solution without a plan: no parts, and the worst value."""
    worst = 0.0 if options.objective == "throughput" else math.inf
    return Solved((), worst, worst)


def is_better(options: Options, value: float, than: float) -> bool:
    """Returns True if a value of the objective is better than another, beyond rounding."""
    if options.objective == "throughput":
        return value > than * (1 + SAME)
    return value < than * (1 - SAME)


def limit_cores(problem: PlacementProblem, count: int = 1) -> PlacementProblem:
    """Returns the problem with its first cores only."""
    devices = {d for d in range(len(problem.devices)) if d not in problem.cores[count:]}
    costs = tuple(
        tuple(cost if problem.device(m) in devices else None for m, cost in enumerate(row))
        for row in problem.costs
    )
    return replace(problem, costs=costs)


def period_starts(
    problem: PlacementProblem, bounds: Mapping[str, float], effort: Effort
) -> list[Placing]:
    """Returns the fastest plan for one frame, the best with one core, and the best cuts.

    A cut gives each device a contiguous range of the kernels' order; kernels that a device cannot
    run go to the GPU.
    """
    goal = Goal.of(problem, "period", bounds)
    latency = Goal.of(problem, "latency", bounds)
    found = [minimise(problem, latency, effort=effort.part(effort.left / 2)).placing]
    found += [evaluate(problem, modes, goal) for modes in _best_cuts(problem)]
    if len(problem.cores) > 1:
        first_core = {0, problem.cores[0]}
        starts = [p for p in found if p and {problem.device(m) for m in p.modes} <= first_core]
        alone = minimise(limit_cores(problem), goal, starts=starts, effort=effort).placing
        if alone is not None:
            found.append(evaluate(problem, alone.modes, goal))
    return [placing for placing in found if placing is not None]


def _best_cuts(problem: PlacementProblem) -> Iterator[tuple[int, ...]]:
    """Yields the modes of the cuts into ranges with the least load, ignoring hand-overs."""
    count = len(problem.costs)
    modes = [_modes_on(problem, device) for device in range(len(problem.devices))]
    sums = [_running_loads(problem, own) for own in modes]
    # the number of pairs of cuts grows with the square of the positions
    step = -(-count // POSITIONS)
    at = [*range(0, count, step), count]
    found: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
    for order in permutations(range(len(problem.devices)), min(3, len(problem.devices))):
        for i, a in enumerate(at):
            # three ranges have two cuts, two ranges one
            for b in at[i:] if len(order) > 2 else (count,):
                edges = (0, a, b, count)[: len(order) + 1]
                load = [
                    sum(
                        sums[x][d][high] - sums[x][d][low]
                        for x, low, high in zip(order, edges, edges[1:])  # noqa: B905
                    )
                    for d in range(len(problem.devices))
                ]
                found.append((max(load), order, edges))
    for _, order, edges in heapq.nsmallest(MOST_EVALUATED, found):
        parts = [modes[x][low:high] for x, low, high in zip(order, edges, edges[1:])]  # noqa: B905
        yield tuple(m for part in parts for m in part)


def _modes_on(problem: PlacementProblem, device: int) -> list[int]:
    """Returns each node's mode on a device; the GPU's first mode if it has none there."""
    found: list[int] = []
    for row in problem.costs:
        able = [m for m, cost in enumerate(row) if cost is not None]
        own = [m for m in able if problem.device(m) == device]
        own = own or [m for m in able if problem.device(m) == 0]
        found.append((own or able)[0])
    return found


def _running_loads(problem: PlacementProblem, modes: Sequence[int]) -> list[list[float]]:
    """Returns, by device, the load of the first n nodes, by n."""
    sums = [[0.0] for _ in problem.devices]
    for v, m in enumerate(modes):
        cost = problem.costs[v][m]
        for d, column in enumerate(sums):
            column.append(column[-1] + (cost.load_us[d] if cost else 0.0))
    return sums
