"""A network's own best plans as routes: what it can do beside its chain of groups.

Groups leave every tensor in its best format and move only where one tensor crosses. The plans of
:func:`~edgekit.placement.place` know neither limit, so that networks together are placed no worse
than by a choice among each one's own plans. What these plans prove of each network alone is also
what no placement of all of them can beat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.errors import GateError
from edgekit.placement._build_problem import build_problem
from edgekit.placement._built import Built
from edgekit.placement._place import Prepared
from edgekit.placement._request import make_request
from edgekit.placement._search import search
from edgekit.placement._several_tasks import route_of_plan
from edgekit.solver import Placing, Route

__all__ = ["OwnPlan", "Single", "single_plans"]

_METRICS = {
    "latency": "latency_us", "gpu_time": "gpu_us", "throughput": "period_us",
    "energy": "energy_uj",
}  # fmt: skip
_MOST = 300  # tasks of all frames on one network's routes
_FEW = 4  # routes that are kept however many their tasks


@dataclass(frozen=True)
class OwnPlan:
    """A plan of a network alone; ``nodes`` are the problem's, by task of its route."""

    prepared: Prepared
    built: Built
    placing: Placing
    route: Route
    nodes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Single:
    """What a network can do alone.

    ``bounds`` are proved of all its placements: latency_us, gpu_us, energy_uj and period_us (of a
    mix of plans); 0 where nothing is proved. ``refusal`` says why there is no plan at all.
    """

    plans: tuple[OwnPlan, ...]
    bounds: Mapping[str, float]
    refusal: GateError | None = None


def single_plans(whole: Prepared, *, one_core: bool, frames: int) -> Single:
    """Returns the best plans of a network for each objective.

    Args:
        whole: The network on all devices.
        one_core: Whether it may use only one core.
        frames: How often it runs in a hyperperiod; more frames leave room for fewer routes.
    """
    found, bounds, refusal = list[OwnPlan](), dict.fromkeys(_METRICS.values(), math.inf), None
    for alike in _asked(whole, one_core):
        for objective, metric in _METRICS.items():
            try:
                plans, bound = _solve(alike[0], objective)
            except GateError as error:
                refusal = refusal or error
                if error.code != "plan.infeasible":
                    bounds[metric] = 0.0  # nothing is proved
                continue
            bounds[metric] = min(bounds[metric], bound)
            for prepared in alike:
                found += [_own(prepared, built, placing, whole) for built, placing in plans]
    kept, tasks = list[OwnPlan](), 0
    for plan in _distinct(found):
        tasks += len(plan.route.tasks) * frames
        if len(kept) < _FEW or tasks <= _MOST:
            kept.append(plan)
    return Single(tuple(kept), bounds, None if kept else refusal)


def _asked(whole: Prepared, one_core: bool) -> list[list[Prepared]]:
    """Returns the network on the devices that a plan may use, those together that are alike."""
    request = whole.request
    if len(request.cores) < 2:
        return [[whole]]
    each = list[Prepared]()
    for core in request.cores:
        options = replace(request.options, dla_cores=(core,))
        try:
            own = make_request(request.network, request.judgement, request.model, options)
        except GateError:  # a pin to another core
            continue
        each.append(Prepared(own))
    if one_core and not each:
        error = GateError(
            "its pins need two DLA cores, and a hybrid engine drives one",
            code="plan.infeasible",
            hint="pin to DLA instead of to a core, or choose build.mode split",
        )
        error.extra["binding"] = {"kind": "placement"}
        raise error
    named = any(device.startswith("DLA") and device != "DLA" for device in request.pins.values())
    groups = [[one] for one in each] if named else [each]
    return groups if one_core else [[whole], *groups]


def _solve(prepared: Prepared, objective: str) -> tuple[list[tuple[Built, Placing]], float]:
    request = prepared.request
    asked = replace(request, options=replace(request.options, objective=objective, bounds={}))
    built, solved, _ = search(asked, prepared.built, prepared.baselines)
    bound = solved.bound
    if objective == "throughput":
        bound = 1e6 / bound if bound else 0.0
    return [(built, part.placing) for part in solved.parts], bound


def _own(prepared: Prepared, built: Built, placing: Placing, whole: Prepared) -> OwnPlan:
    """Returns a plan that was found for one core as one of another that is alike."""
    if built.problem.devices != prepared.request.devices:
        same = prepared.built.kernels == built.kernels
        built = prepared.built if same else build_problem(prepared.request, kernels=built.kernels)
    route, nodes = route_of_plan(built.problem, placing, whole.request.devices)
    return OwnPlan(prepared, built, placing, route, nodes)


def _distinct(plans: Sequence[OwnPlan]) -> Iterator[OwnPlan]:
    seen = set()
    for plan in plans:
        key = tuple((task.device, round(task.work_us, 3)) for task in plan.route.tasks)
        if key not in seen:
            seen.add(key)
            yield plan
