"""The search over placements, and over the ways to cut the network into kernels.

A kernel lies on one device. The problem has a kernel cut wherever verdicts, pins or batches differ,
and whole again where its parts are on one device; TensorRT's automatic placement can cut others,
at the border of a loadable that it makes. Where such a cut is worth more it is searched, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from edgekit.errors import GateError
from edgekit.placement._baselines import Baseline
from edgekit.placement._build_problem import build_problem
from edgekit.placement._built import Built
from edgekit.placement._optimise import Solved, Tell, is_better, nothing, optimise
from edgekit.placement._request import Request
from edgekit.solver import Goal, Mode, Placing, Problem, evaluate

__all__ = ["keeping", "search"]

Compared = Mapping[str, Baseline | None]


def search(
    request: Request, built: Built, compared: Compared, tell: Tell | None = None
) -> tuple[Built, Solved, list[str]]:
    """Returns the best plan, the problem it is a placement of, and what is to be said of it.

    Its bound holds for every cut into kernels that was searched. ``tell`` is called with the best
    value and the bound now and then.

    Raises:
        GateError: Nothing keeps what is asked ("plan.infeasible"), or the solver's limits ended the
            search before anything was found or ruled out ("plan.limit").
    """
    options = request.options
    best = optimise(built.problem, options, _starts(built, compared), tell)
    clocked = best.clocked
    tried, at, notes = [built], 0, list[str]()
    bound = best.bound
    for name, baseline in _cut_otherwise(built, compared):
        if best.parts and not is_better(options, _value(request, built, baseline), best.value):
            continue
        other = build_problem(request, kernels=baseline.built.kernels)
        found = optimise(other.problem, options, _starts(other, compared), tell)
        clocked = clocked or found.clocked
        bound = (max if options.objective == "throughput" else min)(bound, found.bound)
        if found.parts and is_better(options, found.value, best.value):
            best, at = found, len(tried)
            notes = [f"layers are fused as in {name}: their other fusion is slower"]
        tried.append(other)
    if clocked:
        notes.append("the wall clock ended the search: another run may end elsewhere")
    if best.parts:
        return tried[at], replace(best, bound=bound), notes
    if bound != nothing(options).bound:
        raise GateError(
            "no placement was found within the solver's limits, and none is proved impossible",
            code="plan.limit",
            hint="loosen the bounds or remove pins",
        )
    raise GateError(
        "no placement keeps all that is asked",
        code="plan.infeasible",
        hint="loosen the bounds, remove pins, or allow more",
    )


def _cut_otherwise(built: Built, compared: Compared) -> Iterator[tuple[str, Baseline]]:
    """Yields the baselines with other kernels, those with the same kernels once."""
    known = {built.kernels}
    for name, baseline in compared.items():
        if baseline is not None and baseline.built.kernels not in known:
            known.add(baseline.built.kernels)
            yield name, baseline


def _starts(built: Built, compared: Compared) -> list[Placing]:
    """Returns the baselines as placements of the problem, where they are any."""
    goal = Goal.of(built.problem, "period", {})
    found = []
    for baseline in compared.values():
        modes = _modes_like(built, baseline) if baseline else None
        placing = evaluate(built.problem, modes, goal) if modes else None
        if placing is not None:
            found.append(placing)
    return found


def _modes_like(built: Built, baseline: Baseline) -> tuple[int, ...] | None:
    """Returns modes that put kernels where a baseline has their last layers, if they may be."""
    theirs, problem = baseline.built, built.problem
    mode_of: dict[int, Mode] = {
        i: theirs.problem.modes[baseline.modes[v]]
        for v, kernel in enumerate(theirs.kernels)
        for i in kernel.layers
    }
    modes = []
    for v, kernel in enumerate(built.kernels):
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


def _value(request: Request, built: Built, baseline: Baseline) -> float:
    """Returns what a baseline is worth as a plan: the worst value where it breaks a wish."""
    placing = keeping(request, built.problem, baseline)
    if placing is None or (request.options.objective == "throughput" and not placing.value):
        return nothing(request.options).value
    return 1e6 / placing.value if request.options.objective == "throughput" else placing.value


def keeping(request: Request, asked: Problem, baseline: Baseline) -> Placing | None:
    """Returns a baseline as a placement that keeps what is asked; None where it breaks a wish."""
    options, base = request.options, baseline.built.problem
    if not _keeps_pins(request, baseline):
        return None
    on_dla = [bool(base.device(m)) for m in baseline.modes]
    problem = replace(
        base,
        max_transitions=asked.max_transitions,
        min_size=asked.min_size,
        fits=request.room.fits(baseline.built.kernels, on_dla) if any(on_dla) else None,
    )
    bounds = dict(options.bounds)
    if baseline.energy_uj > bounds.pop("energy_uj", math.inf):
        return None
    one = "period" if options.objective == "throughput" else options.objective
    return evaluate(problem, baseline.modes, Goal.of(problem, one, bounds))


def _keeps_pins(request: Request, baseline: Baseline) -> bool:
    """Whether a baseline, which ignores wishes, has every layer where it may be."""
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
