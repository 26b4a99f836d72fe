"""The exact trade-off of two metrics of a plan: its Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from edgekit.errors import GateError
from edgekit.placement._ask import Ask
from edgekit.placement._assemble import OPTIMAL_GAP
from edgekit.placement._compare import plan_summary
from edgekit.placement._place import Prepared, energy_sums
from edgekit.solver import Front, Point, metrics, pareto

__all__ = ["pareto_front"]

SCHEMA = "edgekit.pareto/1"
POINTS = 25
APART = 1e-5  # relative: points of two fronts whose metrics differ by less are one
OBJECTIVES = {
    "latency_us": "latency", "energy_uj": "energy", "gpu_us": "gpu_time", "period_us": "period",
}  # fmt: skip


def pareto_front(
    ask: Ask, first: str, second: str, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Returns an ``edgekit.pareto/1``: the placements that no other one beats in both metrics.

    Args:
        ask: What was asked; its objective does not matter, its bounds hold for every point.
        first: "latency_us", "energy_uj", "gpu_us" or "period_us".
        second: Another one of them.
        progress: Called with the points found and the gaps between them still to look at.

    Raises:
        UsageError: Metrics that are none, or the same one twice.
        GateError: No placement keeps what is asked ("plan.infeasible").
    """
    objective = OBJECTIVES.get(first, ask.options.objective)
    asked = replace(ask, options=replace(ask.options, objective=objective))
    energy = "energy_uj" in (first, second)
    sums = energy_sums(replace(ask.options, objective="energy" if energy else "latency"))
    fronts = []
    for beside in sums:
        prepared = asked.prepared(beside)
        front = pareto(
            prepared.problem, (first, second), bounds=ask.options.bounds, limit=POINTS,
            progress=progress,
        )  # fmt: skip
        if front is not None:
            fronts.append((prepared, front))
        if not prepared.request.cores:
            break
    if not fronts:
        raise GateError("no placement keeps the bounds", code="plan.infeasible")
    points = []
    for prepared, point, bound in _joined(fronts, (first, second)):
        plan = prepared.plan(point.placing, bound)
        summary = plan_summary(plan)
        predicted = summary["predicted"]
        gap = max(0.0, point.first - bound) / point.first if point.first else 0.0
        optimal = point.optimal and gap <= OPTIMAL_GAP
        points.append(
            {**predicted, first: point.first, second: point.second, "bound": bound,
             "gap": gap, "optimal": optimal, "extrapolated": list(plan.extrapolated),
             "loadables": summary["loadables"],
             "transitions": summary["transitions"],
             "dla_layers": sum(layer.device != "GPU" for layer in plan.layers),
             "layers": {layer.name: layer.device for layer in plan.layers}}
        )  # fmt: skip
    complete = all(front.complete for _, front in fronts)
    across, down = (max(front.resolution[i] for _, front in fronts) for i in range(2))
    note = "" if complete else (
        f"not complete; between neighbours lies at most {100 * across:.3g} % of the range of "
        f"{first} and {100 * down:.3g} % of that of {second}"
    )  # fmt: skip
    return {
        "schema": SCHEMA,
        "clock": "predicted",
        "target": ask.target.name,
        "power_mode": ask.target.mode(ask.power_mode).name,
        "precision": ask.precision,
        "metrics": [first, second],
        "bounds": dict(ask.options.bounds),
        "complete": complete,
        "resolution": [across, down],
        "note": note,
        "points": points,
    }


def _joined(
    fronts: Sequence[tuple[Prepared, Front]], names: tuple[str, str]
) -> list[tuple[Prepared, Point, float]]:
    """Returns the points of all fronts that no other one beats, with the energy of a plan.

    Each front is exact for one of the sums whose less is a placement's energy; with each point
    comes what bounds its first metric in every front.
    """
    found = []
    for prepared, front in fronts:
        problem = prepared.problem
        for point in front.points:
            load_us = point.placing.load_us
            energy_uj, _ = prepared.request.model.energy(problem.devices, load_us)
            have = metrics(problem, load_us, energy_uj)
            found.append((prepared, replace(point, first=have[names[0]], second=have[names[1]])))
    found.sort(key=lambda one: (one[1].first, one[1].second))
    kept: list[tuple[Prepared, Point, float]] = []
    for prepared, point in found:
        if kept and point.second >= kept[-1][1].second * (1 - APART):
            continue
        within = [one.bound for _, one in found if one.second <= point.second]
        kept.append((prepared, point, min(point.first, *within, point.bound)))
    return kept
