"""The plan with the fewest loadables among plans that are equal within the prediction's noise: a
region that would be cut into many small loadables stays whole on the GPU.

An additional loadable costs a launch, a hand-over and a slot of its core. If its predicted gain is
within the prediction's error, it has no measurable benefit. The placement is solved again with a
maximum number of loadables and with bounds on the objective and on the figure that decides within
the slack: the smallest number that keeps both bounds is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edgekit.network.model import Network
from edgekit.placement.assembly import assemble
from edgekit.placement.baselines import Baseline
from edgekit.placement.costs.kernel_costs import noise
from edgekit.placement.cuts import whole_modules
from edgekit.placement.inputs import PlacementInputs
from edgekit.placement.plan import SECOND_METRICS, FewerLoadables, Plan, plan_value
from edgekit.placement.problem import BuiltProblem
from edgekit.placement.search import (
    SLACK_GAIN,
    PlanShare,
    Solved,
    fixed_uj,
    limit_cores,
    solver_bounds,
)
from edgekit.solver.optimiser import APART, minimise
from edgekit.solver.problem import METRIC, Effort, Goal, Placing
from edgekit.text import counted, listed, percent

Placed = tuple[PlacementInputs, BuiltProblem, Solved, list[str], int]
_EFFORT = 2.0  # units of the solver's Effort for all numbers of loadables together
_SHOWN = 4


def reduce_loadables(
    optimum: Plan, chosen: Plan, found: Sequence[Placed], compared: Mapping[str, Baseline | None]
) -> Plan:
    """Returns the plan with the fewest loadables, one or more, that is as good as ``chosen``.

    As good: its objective is within the slack of the optimum, and the second metric
    (``SECOND_METRICS``), which ranks plans within the slack, is worse than that of ``chosen`` by at
    most the slack; both slacks are limited to the prediction's noise. Returns ``chosen`` itself if
    there is no such plan, without slack, and if it has at most one loadable.

    Args:
        optimum: The best plan.
        chosen: The plan within the slack of the optimum.
        found: The solved problems: request, problem, solution, notes, and cores in use.
        compared: The baselines.
    """
    allowed = min(found[0][0].options.slack, noise())
    if not allowed or len(chosen.loadables) < 2 or not plan_value(optimum):
        return chosen
    best = chosen
    if 0 < len(optimum.loadables) < len(chosen.loadables) and _keeps_limits(
        optimum, chosen, allowed
    ):
        # the optimum itself can have fewer loadables than the choice within the slack
        best = optimum
    for request, built, solved, notes, cores in found:
        limits = _limits(request, optimum, chosen, allowed, cores)
        most = min(len(best.loadables), len(chosen.loadables) - 1)
        for placing in _try_fewer(request, built, solved, limits, most):
            parts = (PlanShare(1.0, placing),)
            other = replace(solved, parts=parts)
            plan = assemble(request, built, other, compared, notes, optimum, few=True)
            if (
                plan.loadables
                and _rank(plan) < _rank(best)
                and _keeps_limits(plan, chosen, allowed)
            ):
                best = plan
    if best is chosen:
        return chosen
    fewer = _describe_change(found[0][0].network, best, chosen)
    return replace(best, fewer=fewer, notes=(fewer_note(fewer, best), *best.notes))


def _limits(
    request: PlacementInputs, optimum: Plan, chosen: Plan, allowed: float, cores: int
) -> dict[str, float]:
    """Returns bounds for the solver that every plan as good as ``chosen`` keeps."""
    limits, objective = solver_bounds(request, cores), request.options.objective
    value = plan_value(optimum)
    if objective == "throughput":
        # the solver bounds the period
        value = 1e6 / value
    own = {
        METRIC[objective]: value / (1 - allowed)
        if objective == "throughput"
        else value * (1 + allowed),
        SECOND_METRICS[objective]: _second_figure(chosen) * (1 + allowed),
    }
    for metric, most in own.items():
        # the solver's energy has no idle part
        known = most - fixed_uj(request, cores) if metric == "energy_uj" else most
        limits[metric] = min(max(known, 1e-6), limits.get(metric, math.inf))
    return limits


def _try_fewer(
    request: PlacementInputs,
    built: BuiltProblem,
    solved: Solved,
    limits: Mapping[str, float],
    most: int,
) -> Iterable[Placing]:
    """Yields placements on one core within limits, the fewer loadables the later."""
    problem = limit_cores(built.problem)
    second = "energy" if request.options.objective == "latency" else "latency"
    goal, effort = Goal.of(problem, second, limits), Effort(_EFFORT)
    starts = [part.placing for part in solved.parts]
    low, high = 1, most
    count = low  # one loadable is the usual answer; for more, the range is halved
    while low <= high and not effort.over:
        few = replace(problem, max_loadables=count)
        placing = minimise(few, goal, starts=starts, effort=effort, enough=SLACK_GAIN).placing
        if placing is None:
            low = count + 1
        else:
            yield placing
            high = count - 1
        count = (low + high) // 2


def _rank(plan: Plan) -> tuple[int, float, int]:
    return len(plan.loadables), _second_figure(plan), plan.transitions


def _second_figure(plan: Plan) -> float:
    return float(getattr(plan.predicted, SECOND_METRICS[plan.objective]) or 0.0)


def _keeps_limits(plan: Plan, chosen: Plan, allowed: float) -> bool:
    """Returns True if an assembled plan keeps both limits."""
    assert plan.slack is not None
    most = _second_figure(chosen) * (1 + allowed) * (1 + APART)
    return plan.slack.given_up <= allowed * (1 + APART) and _second_figure(plan) <= most


def _describe_change(network: Network, plan: Plan, otherwise: Plan) -> FewerLoadables:
    """Returns the cost and the gain of a plan against a plan with more loadables."""
    was = {layer.name: layer.device for layer in otherwise.layers}
    now = {layer.name: layer.device for layer in plan.layers}
    on_gpu = [x for x in network.layers if now.get(x.name) == "GPU" != was.get(x.name)]
    away = [x for x in network.layers if now.get(x.name, "GPU") != "GPU"]
    on_dla = tuple(x.name for x in away if was.get(x.name) == "GPU")
    value, before = plan_value(plan), plan_value(otherwise)
    sign = -1 if plan.objective == "throughput" else 1
    return FewerLoadables(
        instead_of=len(otherwise.loadables),
        gpu_layers=tuple(layer.name for layer in on_gpu),
        gpu_modules=whole_modules(on_gpu, away),
        dla_layers=on_dla,
        given_up=sign * (value - before) / before if before else 0.0,
        metric=SECOND_METRICS[plan.objective],
        given_up_second=_second_figure(plan) / _second_figure(otherwise) - 1
        if _second_figure(otherwise)
        else 0.0,
        noise=noise(),
    )


def fewer_note(fewer: FewerLoadables, plan: Plan) -> str:
    """Returns the note on why a region is not cut into more loadables."""
    objective = "GPU time" if plan.objective == "gpu_time" else plan.objective
    lost = [
        f"{percent(share, 2)} of the {name}"
        for share, name in (
            (fewer.given_up, objective),
            (fewer.given_up_second, fewer.metric.partition("_")[0]),
        )
        if share > APART
    ]
    what = "kept whole on the GPU" if fewer.gpu_layers else "joined on the DLA"
    names = fewer.gpu_modules or fewer.gpu_layers or fewer.dla_layers
    count = counted(len(fewer.gpu_layers or fewer.dla_layers), "layer")
    gone = counted(fewer.instead_of - len(plan.loadables), "loadable")
    price = " and ".join(lost) or "nothing"
    return (
        f"{what}: {listed(names, _SHOWN)} ({count}): {gone} fewer for {price} (predicted), within "
        f"the prediction's noise of {percent(fewer.noise)} and placement.slack"
    )
