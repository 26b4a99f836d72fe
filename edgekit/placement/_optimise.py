"""One objective, solved: plans with shares, the value and its proven bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgekit.placement._period import one_core, period_starts
from edgekit.placement._types import Options
from edgekit.solver import Effort, Goal, Placing, Problem, metrics, minimise, mix_plans

__all__ = [
    "Part", "Solved", "Tell", "is_better", "nothing", "objective_value", "optimise",
]  # fmt: skip

METRIC = {
    "latency": "latency_us", "energy": "energy_uj", "gpu_time": "gpu_us", "period": "period_us",
    "throughput": "period_us",
}  # fmt: skip
SAME = 1e-9  # relative: two values of an objective are equal
EFFORT = 45.0  # units of the solver's Effort: counted work, so that a plan is the same everywhere
PERIOD_EFFORT = 16.0  # of one plan for all frames, whose proof can take hours: it keeps a gap
STARTS_SHARE = 0.3  # of it, for placements to begin from

Tell = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A plan of a mix: its share of the frames and its placement over all devices."""

    share: float
    placing: Placing


@dataclass(frozen=True)
class Solved:
    """Parts with shares, the objective's value (frames a second for throughput) and a bound.

    ``clocked``: the wall clock ended the search, so that another run may end elsewhere.
    """

    parts: tuple[Part, ...]
    value: float
    bound: float
    clocked: bool = False


def objective_value(
    objective: str, problem: Problem, load_us: Sequence[float], energy_uj: float
) -> float:
    """Returns what one plan is worth for an objective; less is better."""
    return metrics(problem, load_us, energy_uj)[METRIC[objective]]


def optimise(
    problem: Problem,
    options: Options,
    starts: Sequence[Placing] = (),
    progress: Tell | None = None,
) -> Solved:
    """Returns the best plans for the options' objective under its bounds.

    Where none was found there are no parts, and the bound is that of :func:`nothing` if there
    provably are none.
    """
    none = nothing(options)
    if options.objective == "throughput":
        mix = mix_plans(problem, options.bounds, starts, progress=progress)
        if mix is None:
            return none
        parts = tuple(Part(part.share, part.placing) for part in mix.parts)
        return Solved(parts, mix.qps, mix.bound, mix.clocked)
    if not options.gpu:
        problem = one_core(problem)  # a second core is a replica: it shortens no frame
    goal = Goal.of(problem, options.objective, options.bounds)
    effort = Effort(EFFORT)
    if options.objective == "period":
        effort = Effort(PERIOD_EFFORT)
        if problem.cores and all(any(row) for row in problem.costs):
            part = effort.part(effort.left * STARTS_SHARE)
            starts = [*starts, *period_starts(problem, options.bounds, part)]
    found = minimise(problem, goal, starts=starts, effort=effort, progress=progress)
    if found.placing is None:
        return replace(none, bound=found.bound, clocked=effort.clocked)
    parts = (Part(1.0, found.placing),)
    return Solved(parts, found.placing.value, found.bound, effort.clocked)


def nothing(options: Options) -> Solved:
    """Returns what is known where no plan can be: the worst value."""
    worst = 0.0 if options.objective == "throughput" else math.inf
    return Solved((), worst, worst)


def is_better(options: Options, value: float, than: float) -> bool:
    """Whether a value of the objective is better than another, beyond rounding."""
    if options.objective == "throughput":
        return value > than * (1 + SAME)
    return value < than * (1 - SAME)
