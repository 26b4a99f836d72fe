"""One objective, solved: plans with shares, the value and its proven bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.errors import GateError
from edgekit.placement._goal import TOLERANCE, Goal, Placing, evaluate
from edgekit.placement._highs import INFINITY
from edgekit.placement._optimum import minimise
from edgekit.placement._problem import Problem, metrics
from edgekit.placement._throughput import Part, mix_plans
from edgekit.placement._types import Options

__all__ = ["Solved", "objective_value", "solve"]


@dataclass(frozen=True)
class Solved:
    """Parts with shares, the objective's value (frames a second for throughput) and a bound."""

    parts: tuple[Part, ...]
    value: float
    bound: float


def weights_of(problem: Problem, metric: str) -> tuple[float, ...]:
    """Returns the weights of the devices' loads that make up a metric."""
    count = len(problem.devices)
    if metric in ("energy", "energy_uj"):
        return problem.watts
    if metric in ("gpu_time", "gpu_us"):
        return (1.0,) + (0.0,) * (count - 1)
    return (1.0,) * count


def objective_value(objective: str, problem: Problem, load: Sequence[float]) -> float:
    """Returns what one plan is worth for an objective; less is better."""
    if objective in ("throughput", "period"):
        return max(load)
    return metrics(problem, load)[
        {"latency": "latency_us", "energy": "energy_uj", "gpu_time": "gpu_us"}[objective]
    ]


def solve(problem: Problem, options: Options) -> Solved:
    """Returns the best plans for the options' objective under its bounds.

    Raises:
        GateError: Nothing keeps the bounds (code "plan.infeasible").
    """
    if not options.gpu and options.objective != "throughput":
        problem = problem.only(1)  # a second core is a replica: it shortens no frame
    if options.objective == "throughput":
        mix = mix_plans(problem, options.bounds)
        if mix is None:
            raise _infeasible(problem, options)
        return Solved(mix.parts, mix.qps, mix.bound)
    if options.objective == "period":
        goal, starts = Goal(None, options.bounds), _starts(problem, options)
    else:
        goal, starts = Goal(weights_of(problem, options.objective), options.bounds), []
    found = minimise(problem, goal, starts)
    if found.placing is None and found.bound < INFINITY:
        raise GateError(
            "no placement was found within the solver's limits, and none is proved impossible",
            code="plan.limit",
            hint="loosen the bounds or remove pins",
        )
    if found.placing is None:
        raise _infeasible(problem, options)
    return Solved((Part(1.0, found.placing),), found.placing.value, found.bound)


def _starts(problem: Problem, options: Options) -> list[Placing]:
    """Returns placements for the search of a period: the fastest for one frame, and the GPU."""
    fastest = minimise(problem, Goal(weights_of(problem, "latency"), options.bounds)).placing
    found = [fastest] if fastest else []
    if all(row[0] is not None for row in problem.times):
        alone = evaluate(problem, (0,) * len(problem.times), Goal(None, options.bounds))
        found += [alone] if alone else []
    return found


def _infeasible(problem: Problem, options: Options) -> GateError:
    """Says which bound cannot be met and what can be reached."""
    kept: dict[str, float] = {}
    for name, limit in sorted(options.bounds.items()):
        alone = minimise(problem, Goal(weights_of(problem, name))).placing
        if alone is not None and alone.value > limit * (1 + TOLERANCE):
            return _bound_error(name, limit, alone.value, "")
    for name, limit in sorted(options.bounds.items()):
        beside = minimise(problem, Goal(weights_of(problem, name), kept)).placing
        if beside is not None and beside.value > limit * (1 + TOLERANCE):
            others = " and ".join(f"{n} <= {v:g}" for n, v in kept.items())
            return _bound_error(name, limit, beside.value, f" together with {others}")
        kept[name] = limit
    return GateError(
        f"no placement fits in {options.max_loadables} loadables a core",
        code="plan.infeasible",
        hint="remove pins, or allow more loadables",
    )


def _bound_error(name: str, limit: float, best: float, beside: str) -> GateError:
    return GateError(
        f"no placement keeps {name} <= {limit:g}{beside}: the best is {best:.1f}",
        code="plan.infeasible",
        where=f"bounds.{name}",
        hint=f"raise the bound to at least {best:.1f}, or choose a faster power mode",
    )
