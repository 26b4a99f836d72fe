"""One objective, solved: plans with shares, the value and its proven bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgekit.placement._period import one_core, period_starts
from edgekit.placement._types import Options
from edgekit.solver import Goal, Placing, Problem, metrics, minimise, mix_plans

__all__ = [
    "Part", "Solved", "is_better", "nothing", "objective_value", "optimise",
]  # fmt: skip

METRIC = {
    "latency": "latency_us", "energy": "energy_uj", "gpu_time": "gpu_us", "period": "period_us",
    "throughput": "period_us",
}  # fmt: skip
SAME = 1e-9  # relative: two values of an objective are equal
SECONDS = 45.0  # last resort; the node limits come first and are the same everywhere
PERIOD_SECONDS = 16.0  # of one plan for all frames, whose proof can take hours: it keeps a gap

Tell = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A plan of a mix: its share of the frames and its placement over all devices."""

    share: float
    placing: Placing


@dataclass(frozen=True)
class Solved:
    """Parts with shares, the objective's value (frames a second for throughput) and a bound."""

    parts: tuple[Part, ...]
    value: float
    bound: float


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
        mix = mix_plans(problem, options.bounds, starts)
        if mix is None:
            return none
        parts = tuple(Part(part.share, part.placing) for part in mix.parts)
        return Solved(parts, mix.qps, mix.bound)
    if not options.gpu:
        problem = one_core(problem)  # a second core is a replica: it shortens no frame
    goal = Goal.of(problem, options.objective, options.bounds)
    seconds = SECONDS
    if options.objective == "period":
        seconds = PERIOD_SECONDS
        if problem.cores and all(any(row) for row in problem.costs):
            starts = [*starts, *period_starts(problem, options.bounds, seconds / 2)]
    found = minimise(problem, goal, starts=starts, seconds=seconds, progress=progress)
    if found.placing is None:
        return replace(none, bound=found.bound)
    return Solved((Part(1.0, found.placing),), found.placing.value, found.bound)


def nothing(options: Options) -> Solved:
    """Returns what is known where no plan can be: the worst value."""
    worst = 0.0 if options.objective == "throughput" else math.inf
    return Solved((), worst, worst)


def is_better(options: Options, value: float, than: float) -> bool:
    """Whether a value of the objective is better than another, beyond rounding."""
    if options.objective == "throughput":
        return value > than * (1 + SAME)
    return value < than * (1 - SAME)
