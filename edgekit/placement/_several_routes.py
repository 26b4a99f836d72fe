"""A network's own best plans as routes: what it can do beside its chain of groups.

Groups leave every tensor in its best format and move only where one tensor crosses. The plans of
:func:`~edgekit.placement.place` know neither limit, so that networks together are placed no worse
than by a choice among each one's own plans. What these plans prove of each network alone is also
what no placement of all of them can beat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgekit.errors import GateError
from edgekit.placement._build_problem import build_problem
from edgekit.placement._built import Built
from edgekit.placement._optimise import Solved
from edgekit.placement._place import Prepared
from edgekit.placement._request import make_request
from edgekit.placement._search import search
from edgekit.placement._several_prices import Load, least_load
from edgekit.placement._several_tasks import route_of_plan
from edgekit.solver import Goal, Placing, Route, minimise

__all__ = ["Alone", "OwnPlan", "least_together"]

_METRICS = {"latency": "latency_us", "gpu_time": "gpu_us", "energy": "energy_uj"}
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


class Alone:
    """What a network can do alone.

    Attributes:
        bounds: Proved of all its placements: latency_us, gpu_us, energy_uj and period_us (however
            its plans are mixed); 0 where nothing is proved.

    Raises:
        GateError: It has no placement at all.
    """

    def __init__(self, whole: Prepared, *, one_core: bool) -> None:
        """Finds the best plans of the network ``whole``, which may use all cores or only one."""
        self.bounds = dict.fromkeys(_METRICS.values(), math.inf)
        self._whole = whole
        self._groups = _asked(whole, one_core)
        self._found: list[OwnPlan] = []
        self._priced: dict[tuple[float, int], Load] = {}
        refusal: GateError | None = None
        for alike in self._groups:
            for objective, metric in _METRICS.items():
                try:
                    built, solved = _solve(alike[0], objective)
                except GateError as error:
                    refusal = refusal or error
                    if error.code != "plan.infeasible":
                        self.bounds[metric] = 0.0  # nothing is proved
                    continue
                self.bounds[metric] = min(self.bounds[metric], solved.bound)
                for part in solved.parts:
                    self._add(alike, built, part.placing)
        if refusal is not None and not self._found:
            raise refusal
        cores = len(self._groups[0][0].request.cores)
        self.bounds["period_us"] = least_load(lambda price: self.cheapest(price, cores))

    def cheapest(self, price: float, cores: int) -> Load:
        """Returns the plan with the least price * GPU time + (1 - price) * DLA time / cores."""
        known = self._priced.get((price, cores))
        if known is not None:
            return known
        loads, bound = list[Load](), math.inf
        for alike in self._groups:
            problem = alike[0].problem
            weights = [price, *([(1 - price) / max(1, cores)] * len(problem.cores)), 0.0]
            optimum = minimise(problem, Goal(tuple(weights)))
            bound = min(bound, optimum.bound)
            if optimum.placing is None:
                continue
            self._add(alike, alike[0].built, optimum.placing)
            load = optimum.placing.load_us
            loads.append(Load(load[0], sum(load[1:-1]) / max(1, cores), 0.0))
        best = min(loads, key=lambda load: load.at(price), default=Load(0.0, 0.0, 0.0))
        found = replace(best, bound=bound if loads else 0.0)
        self._priced[price, cores] = found
        return found

    def _add(self, alike: Sequence[Prepared], built: Built, placing: Placing) -> None:
        self._found += [_own(prepared, built, placing, self._whole) for prepared in alike]

    def plans(self, frames: int) -> tuple[OwnPlan, ...]:
        """Returns the plans found; fewer of them for a network with many frames to schedule."""
        kept, tasks = list[OwnPlan](), 0
        for plan in _distinct(self._found):
            tasks += len(plan.route.tasks) * frames
            if len(kept) < _FEW or tasks <= _MOST:
                kept.append(plan)
        return tuple(kept)


def least_together(networks: Sequence[Alone], frames: Sequence[int], cores: int) -> float:
    """Returns what the busiest device works in a hyperperiod at least; finds plans on the way."""

    def cheapest(price: float) -> Load:
        loads = [own.cheapest(price, cores) for own in networks]
        rows = list(zip(loads, frames, strict=True))
        return Load(
            sum(load.gpu_us * count for load, count in rows),
            sum(load.core_us * count for load, count in rows),
            sum(load.bound * count for load, count in rows),
        )

    return least_load(cheapest)


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


def _solve(prepared: Prepared, objective: str) -> tuple[Built, Solved]:
    request = prepared.request
    asked = replace(request, options=replace(request.options, objective=objective, bounds={}))
    built, solved, _ = search(asked, prepared.built, prepared.baselines)
    return built, solved


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
