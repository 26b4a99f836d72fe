"""The exact trade-off of two metrics of a plan: its Pareto front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edgekit.errors import GateError
from edgekit.placement._ask import Ask
from edgekit.placement._compare import plan_summary

__all__ = ["pareto_front"]

SCHEMA = "edgekit.pareto/1"
POINTS = 25
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
    from edgekit.solver import pareto

    objective = OBJECTIVES.get(first, ask.options.objective)
    asked = replace(ask, options=replace(ask.options, objective=objective))
    prepared = asked.prepared()
    front = pareto(
        prepared.problem, (first, second), bounds=ask.options.bounds, limit=POINTS,
        progress=progress,
    )  # fmt: skip
    if front is None:
        raise GateError("no placement keeps the bounds", code="plan.infeasible")
    points = []
    for point in front.points:
        plan = prepared.plan(point.placing, point.bound)
        summary = plan_summary(plan)
        predicted = summary["predicted"]
        gap = max(0.0, point.first - point.bound) / point.first if point.first else 0.0
        points.append(
            {**predicted, first: point.first, second: point.second, "bound": point.bound,
             "gap": gap, "optimal": point.optimal, "extrapolated": list(plan.extrapolated),
             "loadables": summary["loadables"],
             "transitions": summary["transitions"],
             "dla_layers": sum(layer.device != "GPU" for layer in plan.layers),
             "layers": {layer.name: layer.device for layer in plan.layers}}
        )  # fmt: skip
    across, down = front.resolution
    note = "" if front.complete else (
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
        "complete": front.complete,
        "resolution": list(front.resolution),
        "note": note,
        "points": points,
    }
