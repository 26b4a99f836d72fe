"""One objective, solved: plans with shares, the value and its proven bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.errors import GateError
from edgekit.placement._period import one_core, period_starts
from edgekit.placement._types import Options
from edgekit.solver import Goal, Placing, Problem, metrics, minimise, mix_plans

__all__ = ["Part", "Solved", "objective_value", "optimise"]

METRIC = {
    "latency": "latency_us", "energy": "energy_uj", "gpu_time": "gpu_us", "period": "period_us",
    "throughput": "period_us",
}  # fmt: skip
OBJECTIVE = {metric: name for name, metric in METRIC.items() if name != "throughput"}
TOLERANCE = 2e-6  # relative, on bounds; the solver keeps them to that
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

    Raises:
        GateError: Nothing keeps the bounds ("plan.infeasible"), or the solver's limits ended the
            search before anything was found or ruled out ("plan.limit").
    """
    if options.objective == "throughput":
        mix = mix_plans(problem, options.bounds, starts)
        if mix is None:
            raise _infeasible(problem, options)
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
    if found.placing is None and found.bound < float("inf"):
        raise GateError(
            "no placement was found within the solver's limits, and none is proved impossible",
            code="plan.limit",
            hint="loosen the bounds or remove pins",
        )
    if found.placing is None:
        raise _infeasible(problem, options)
    return Solved((Part(1.0, found.placing),), found.placing.value, found.bound)


def _infeasible(problem: Problem, options: Options) -> GateError:
    """Says which bound cannot be met and what can be reached."""
    kept: dict[str, float] = {}
    best_of = _Best(problem)
    for name, limit in sorted(options.bounds.items()):
        alone = best_of.value(name, {})
        if alone is not None and alone > limit * (1 + TOLERANCE):
            return _bound_error(name, limit, alone, best_of.words)
    for name, limit in sorted(options.bounds.items()):
        beside = best_of.value(name, kept)
        if beside is not None and beside > limit * (1 + TOLERANCE):
            others = " and ".join(f"{n} <= {v:g}" for n, v in kept.items())
            return _bound_error(name, limit, beside, best_of.words, f" together with {others}")
        kept[name] = limit
    asked = [f"{options.max_loadables} loadables a core"]
    if options.max_transitions is not None:
        asked.append(f"{options.max_transitions} transitions")
    if options.min_loadable_layers > 1:
        asked.append(f"loadables of {options.min_loadable_layers} layers or more")
    asked += [f"{size} bytes of {name}" for name, size in (options.pools or {}).items()]
    return GateError(
        f"no placement keeps to {', '.join(asked)}",
        code="plan.infeasible",
        hint="remove pins, or allow more",
    )


class _Best:
    """The least value of a metric under bounds, and what to call it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.words = "the best is"

    def value(self, metric: str, bounds: dict[str, float]) -> float | None:
        """Returns the least value found; ``words`` then say whether it is proved."""
        goal = Goal.of(self._problem, OBJECTIVE[metric], bounds)
        found = minimise(self._problem, goal, seconds=SECONDS)
        if found.placing is None:
            return None
        proved = found.placing.value - found.bound <= 1e-4 * found.placing.value
        self.words = "the best is" if proved else "the best found is"
        return found.placing.value


def _bound_error(name: str, limit: float, best: float, words: str, beside: str = "") -> GateError:
    return GateError(
        f"no placement keeps {name} <= {limit:g}{beside}: {words} {best:.1f}",
        code="plan.infeasible",
        where=f"bounds.{name}",
        hint=f"raise the bound to at least {best:.1f}, or choose a faster power mode",
    )
