"""Two plans beside each other: what they reach, and which layers moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from edgekit.placement._ask import UNITS, plan_value
from edgekit.placement._types import Plan

__all__ = ["compare_plans", "percent_change", "plan_summary"]

SCHEMA = "edgekit.whatif/1"


def plan_summary(plan: Plan) -> dict[str, Any]:
    """Returns a plan's main figures; all of them are predicted."""
    return {
        "target": plan.target,
        "power_mode": plan.power_mode,
        "precision": plan.precision,
        "objective": plan.objective,
        "value": plan_value(plan),
        "unit": UNITS[plan.objective],
        "optimal": plan.optimal,
        "bound": plan.bound,
        "gap": plan.gap,
        "extrapolated": list(plan.extrapolated),
        "predicted": plan.predicted.to_json(),
        "bands": {name: list(band) for name, band in plan.bands.items()},
        "layers": dict(sorted(Counter(layer.device for layer in plan.layers).items())),
        "loadables": len(plan.loadables),
        "transitions": plan.transitions,
    }


def percent_change(before: float, after: float) -> float | None:
    """Returns by how many percent a figure grew; None from zero."""
    return 100 * (after - before) / before if before else None


def compare_plans(before: Plan, after: Plan, changes: Sequence[str]) -> dict[str, Any]:
    """Returns an ``edgekit.whatif/1``: both plans in short, their differences, layers that moved.

    Args:
        before: The plan as asked.
        after: The plan with the changes.
        changes: What was changed, in the user's words.
    """
    old, new = before.predicted.to_json(), after.predicted.to_json()
    was = {layer.name: layer.device for layer in before.layers}
    now = {layer.name: layer.device for layer in after.layers}
    same = before.objective == after.objective
    difference = {key: _difference(old[key], new[key]) for key in old}
    return {
        "schema": SCHEMA,
        "changes": list(changes),
        "before": plan_summary(before),
        "after": plan_summary(after),
        "objective": _difference(plan_value(before), plan_value(after)) if same else None,
        "difference": difference,
        "moved": [
            {"layer": name, "from": was[name], "to": device}
            for name, device in now.items()
            if was.get(name, device) != device
        ],
        "only_before": [name for name in was if name not in now],
        "only_after": [name for name in now if name not in was],
    }


def _difference(before: float, after: float) -> dict[str, float | None]:
    return {"by": after - before, "percent": percent_change(before, after)}
