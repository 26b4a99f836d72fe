"""Finds plans that may be better than the measured plans. Times that the measurements leave open
are sampled: each sample ("world") gives every layer a time that reproduces all measurements. A
candidate is judged by its cost in every sample.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgekit.placement.assembly import assemble
from edgekit.placement.costs.model import CostModel
from edgekit.placement.kernels import LayerKernel
from edgekit.placement.plan import Options, Plan, Share
from edgekit.placement.profiles.estimation import CLASSES, EXTRA, Estimate
from edgekit.placement.profiles.measured import divide_time
from edgekit.placement.search import PlanShare, Solved, optimise
from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Cost, Goal, PlacementProblem, Placing

if TYPE_CHECKING:
    from edgekit.placement.placing import Prepared

Costs = npt.NDArray[np.float64]
"""A value for each world."""

LIKELY, FAR = 32, 96
"""Number of worlds after the likeliest: from the prior, and with larger deviations."""
SEARCHED = 16
"""Number of worlds whose optimum is a candidate (Thompson sampling, Biometrika 25, 1933)."""
LOOKED = 64
"""Number of nodes of the best plan that are tried on the other device."""
LARGE_PROBLEM, FEW_SEARCHES = 60, 6
"""Number of nodes above which fewer placements are searched, and their number."""
BALANCING = 5
"""Number of placements that are tried for a short period."""
STEPS = 40
"""Steps of shares: 0.25 each and 0.3 with 0.2 can differ by a twentieth of the frames a second."""


def device_class(device: str) -> str:
    """Returns "GPU" or "DLA": the cores of a board are alike."""
    return "GPU" if device == "GPU" else "DLA"


def plan_signature(plan: Plan) -> str:
    """Returns the key of a plan's builds: the device of every layer, and the shares."""

    def share_key(share: Share) -> list[object]:
        # shares follow from times: slightly different shares make the same plan
        return [
            round(share.share * STEPS),
            sorted((x.name, x.device, x.segment) for x in share.layers),
        ]

    text = json.dumps([share_key(share) for share in plan.plans], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class PlacementSpace:
    """A network's placements, searched with learnt times."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self.network = prepared.request.network
        self.options = prepared.request.options
        self.index = {layer.name: i for i, layer in enumerate(self.network.layers)}
        self._plans: dict[object, Plan | None] = {}

    @property
    def model(self) -> CostModel:
        """The cost model that predicts times."""
        return self._prepared.request.model

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in use."""
        return self._prepared.request.devices

    @property
    def kernels(self) -> tuple[LayerKernel, ...]:
        """The layers of each node of the problem."""
        return self._prepared.built.kernels

    @property
    def problem(self) -> PlacementProblem:
        """The placement problem with predicted times."""
        return self._prepared.problem

    def _device_class(self, mode: int) -> str:
        return device_class(self.problem.devices[self.problem.device(mode)])

    @cached_property
    def least_us(self) -> list[dict[str, float]]:
        """By node and capable device class, the least predicted microseconds."""
        found: list[dict[str, float]] = []
        for row in self.problem.costs:
            best: dict[str, float] = {}
            for m, cost in enumerate(row):
                if cost is not None:
                    name = self._device_class(m)
                    best[name] = min(sum(cost.load_us), best.get(name, float("inf")))
            found.append(best)
        return found

    @cached_property
    def prior_us(self) -> dict[str, np.ndarray]:
        """By device class, each layer's predicted microseconds; NaN if it cannot run there."""
        found = {name: np.full(len(self.network.layers), np.nan) for name in CLASSES}
        for kernel, least in zip(self.kernels, self.least_us, strict=True):
            for name, us in least.items():
                for i, part in divide_time(self.network, kernel.layers, us).items():
                    found[name][i] = part
        return found

    @cached_property
    def free(self) -> list[int]:
        """The nodes that can run on either device."""
        return [v for v, least in enumerate(self.least_us) if len(least) > 1]

    def solve(
        self,
        times: Mapping[str, np.ndarray],
        forced: Mapping[int, str],
        energy: Mapping[str, float],
        moving: float,
    ) -> Plan | None:
        """Returns the best plan with these times, None if there is none.

        Args:
            times: Microseconds by device class, as in ``Estimate.times``.
            forced: The device class that nodes must have, by node index.
            energy: By class, measured over predicted energy.
            moving: The fraction of transfer time that keeps the GPU busy.
        """
        problem = self._scaled_problem(times, forced, energy, moving)
        if self.options.objective == "period":
            parts = balanced_placement(problem, self.options)
        else:
            parts = optimise(problem, self.options).parts
        return self.plan(parts) if parts else None

    def plan(self, parts: Sequence[PlanShare]) -> Plan | None:
        """Returns a solved problem's plan with predicted (not learnt) times."""
        # most searches end at a placement that another search found too
        key = tuple((round(part.share * STEPS), part.placing.modes) for part in parts)
        if key not in self._plans:
            self._plans[key] = self._plan(parts)
        return self._plans[key]

    def _plan(self, parts: Sequence[PlanShare]) -> Plan | None:
        objective = self.options.objective
        goal = Goal.of(self.problem, "period" if objective == "throughput" else objective)
        own: list[PlanShare] = []
        for part in parts:
            placing = evaluate(self.problem, part.placing.modes, goal)
            if placing is None:
                return None
            own.append(PlanShare(part.share, placing))
        value = own[0].placing.value
        if objective == "energy":
            value = self.model.energy(self.problem.devices, own[0].placing.load_us)[0]
        elif objective == "throughput":
            count = len(self.problem.devices)
            load = [sum(p.share * p.placing.load_us[d] for p in own) for d in range(count)]
            value = 1e6 / max(load) if max(load) else 0.0
        prepared, solved = self._prepared, Solved(tuple(own), value, value)
        return assemble(prepared.request, prepared.built, solved, prepared.baselines)

    def alone(self, name: str) -> Plan | None:
        """Returns the plan with every node on this device class if it can run there."""
        wanted = {v: name for v, least in enumerate(self.least_us) if name in least}
        # without bounds and for latency: the plan is measured for its layers' times, not as a
        # candidate
        problem = replace(self.problem, costs=self._costs_with_forced(wanted))
        parts = optimise(problem, replace(self.options, objective="latency", bounds={})).parts
        return self.plan(parts) if parts else None

    def _costs_with_forced(self, forced: Mapping[int, str]) -> tuple[tuple[Cost | None, ...], ...]:
        return tuple(
            tuple(
                cost if v not in forced or self._device_class(m) == forced[v] else None
                for m, cost in enumerate(row)
            )
            for v, row in enumerate(self.problem.costs)
        )

    def _scaled_problem(
        self,
        times: Mapping[str, np.ndarray],
        forced: Mapping[int, str],
        energy: Mapping[str, float],
        moving: float,
    ) -> PlacementProblem:
        problem = self.problem
        extra = dict(zip(EXTRA, map(float, times["extra"]), strict=True))
        moved = extra["transfer"] * moving
        costs = []
        for v, row in enumerate(self._costs_with_forced(forced)):
            layers = list(self.kernels[v].layers)
            new: list[Cost | None] = []
            for m, cost in enumerate(row):
                if cost is None:
                    new.append(None)
                    continue
                name, was = self._device_class(m), sum(cost.load_us)
                us = float(times[name][layers].sum())
                # learnt times are those of a device's fastest mode; a slower mode keeps its
                # predicted ratio
                if self.least_us[v][name] > 0:
                    us *= was / self.least_us[v][name]
                load = [0.0] * len(cost.load_us)
                load[problem.device(m)] = us
                joules = cost.energy_uj * (us / was if was else 1.0) * energy.get(name, 1.0)
                new.append(Cost(tuple(load), joules))
            costs.append(tuple(new))
        borders = tuple(
            replace(
                border,
                transfers=tuple(
                    replace(transfer, ways=tuple(_scale_cost(way, moved) for way in transfer.ways))
                    for transfer in border.transfers
                ),
            )
            for border in problem.borders
        )
        launch = tuple(
            None
            if cost is None
            else _with_delay(_scale_cost(cost, extra["launch"]), 2 * extra["transition"])
            for cost in problem.launch
        )
        return replace(problem, costs=tuple(costs), borders=borders, launch=launch)


def _scale_cost(cost: Cost, factor: float) -> Cost:
    return Cost(tuple(us * factor for us in cost.load_us), cost.energy_uj * factor)


def _with_delay(cost: Cost, us: float) -> Cost:
    """Adds time in which no device works: entering and leaving a loadable."""
    # the last load is no device's
    return Cost((*cost.load_us[:-1], cost.load_us[-1] + us), cost.energy_uj)


def balanced_placement(problem: PlacementProblem, options: Options) -> tuple[PlanShare, ...]:
    """Returns a placement with a low load of the busiest device.

    A proven optimum would need CP-SAT; a candidate needs no proof. The price of a busy device's
    time is raised in each round (multiplicative weights), and the best placement over all rounds is
    returned.
    """
    count = len(problem.devices)
    prices = [1.0] * count
    best: Placing | None = None
    for _ in range(BALANCING):
        total = sum(prices)
        # the last weight is for delays, in which no device works
        weights = (*(price / total for price in prices), 0.0)
        found = minimise(problem, Goal(weights, 0.0, dict(options.bounds)), seconds=10.0).placing
        if found is None:
            break
        if best is None or max(found.load_us[:-1]) < max(best.load_us[:-1]):
            best = found
        mean = sum(found.load_us[:-1]) / count
        prices = [
            price * (0.25 + us / mean if mean else 1.0)
            for price, us in zip(prices, found.load_us, strict=False)
        ]
    return (PlanShare(1.0, best),) if best is not None else ()


@dataclass(frozen=True)
class PlanTerms:
    """A plan of a mix, expressed as sums of unknown times.

    Attributes:
        share: The plan's fraction of the frames.
        layers: (device class, layer's index), in running order.
        load: The layers of each device.
        extra: Multiples of the unknowns that belong to no layer.
    """

    share: float
    layers: tuple[tuple[str, int], ...]
    load: Mapping[str, tuple[tuple[str, int], ...]]
    extra: Mapping[str, float]


def plan_terms(plan: Plan, index: Mapping[str, int]) -> tuple[PlanTerms, ...]:
    """Returns the terms of each plan of a mix; ``index`` is each layer's index in the network."""
    found = []
    for number, share in enumerate(plan.plans):
        layers = tuple((device_class(layer.device), index[layer.name]) for layer in share.layers)
        load: dict[str, list[tuple[str, int]]] = {}
        for layer, pair in zip(share.layers, layers, strict=True):
            load.setdefault(layer.device, []).append(pair)
        launch = sum(loadable.launch_us for loadable in plan.loadables if loadable.plan == number)
        own = sum(layer.predicted_us for layer in share.layers)
        predicted = share.predicted or plan.predicted
        found.append(
            PlanTerms(
                share.share,
                layers,
                {name: tuple(some) for name, some in load.items()},
                {
                    "frame": 1.0,
                    "transition": float(share.transitions),
                    "launch": launch,
                    "transfer": max(0.0, (predicted.latency_us or 0.0) - own - launch),
                },
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class SampledTimes:
    """Samples ("worlds") of the unknown times, the likeliest first; each field has an entry a
    world.

    Attributes:
        space: The placements.
        learnt: The likeliest times.
        objective: The objective that is minimised.
        logs: Logarithms of the times, as in :class:`Estimate`.
        moving: The fraction of transfer time that keeps the GPU busy; the rest only delays a frame.
        together: Period over the busiest device's own time, if several devices work at once.
        energy: By class, measured over predicted energy.
        watts: Predicted watts of the module while a device class works; the same in all worlds.
    """

    space: PlacementSpace
    learnt: Estimate
    objective: str
    logs: np.ndarray
    moving: np.ndarray
    together: np.ndarray
    energy: Mapping[str, np.ndarray]
    watts: Mapping[str, float]

    def costs(self, plan: Plan) -> Costs:
        """Returns a plan's cost in every world, in microseconds (energy: microjoules)."""
        every = plan_terms(plan, self.space.index)
        loads = self._loads(every)
        if self.objective == "gpu_time":
            return loads.get("GPU", np.zeros(len(self.logs)))
        if self.objective == "energy":
            found = np.zeros(len(self.logs))
            for device, us in loads.items():
                name = device_class(device)
                found += us * self.watts.get(name, 1.0) * self.energy[name]
            return found
        if self.objective == "latency" or len(loads) < 2:
            # the calling process's part of a frame occupies no other device
            piece = max(every, key=lambda term: term.share)
            return self.sums(self.learnt.row(piece.layers, piece.extra))
        together: Costs = self.busiest(plan) * self.together
        return together

    def busiest(self, plan: Plan) -> Costs:
        """Returns the busiest device's own time a frame in every world."""
        loads = self._loads(plan_terms(plan, self.space.index))
        found: Costs = np.array(list(loads.values())).max(axis=0)
        return found

    def sums(self, row: np.ndarray) -> Costs:
        """Returns the microseconds of a sum of layers in every world."""
        found: Costs = self._us @ row
        return found

    @cached_property
    def _us(self) -> Costs:
        # e^40 us is beyond any time and far from an overflow
        found: Costs = np.exp(np.minimum(self.logs, 40.0))
        return found

    def _loads(self, every: Sequence[PlanTerms]) -> dict[str, Costs]:
        """Returns each device's own time a frame."""
        found: dict[str, Costs] = {}
        gpu = any("GPU" in piece.load for piece in every)
        for piece in every:
            # `launch` is the sum over the plan's loadables; each core has its part
            cores = sum(name != "GPU" for name in piece.load)
            launch = {"launch": piece.extra["launch"] / max(cores, 1)}
            for device, layers in piece.load.items():
                row = self.learnt.row(layers, {} if device == "GPU" else launch)
                found[device] = found.get(device, 0.0) + piece.share * self.sums(row)
            # a plan without layers on the GPU has no transfers that could keep it busy
            if gpu:
                row = self.learnt.row((), {"transfer": piece.extra["transfer"]})
                moved = piece.share * self.moving * self.sums(row)
                found["GPU"] = found.get("GPU", 0.0) + moved
        return found

    def solve(self, world: int = 0, forced: Mapping[int, str] | None = None) -> Plan | None:
        """Returns the best plan in a world."""
        # a frame waits for its whole transfer, even if the GPU is idle meanwhile
        moving = 1.0 if self.objective == "latency" else float(self.moving[world])
        energy = {name: float(each[world]) for name, each in self.energy.items()}
        return self.space.solve(self.learnt.times(self.logs[world]), forced or {}, energy, moving)


@dataclass(frozen=True)
class Candidate:
    """An unmeasured plan and its cost in every world (less is better)."""

    plan: Plan
    key: str
    costs: Costs

    @property
    def expected(self) -> float:
        """The expected cost."""
        return float(np.median(self.costs[:LIKELY]))

    @property
    def deviation(self) -> float:
        """The standard deviation of the cost."""
        return float(np.std(self.costs[:LIKELY]))

    @property
    def low(self) -> float:
        """The lowest cost in any world."""
        return float(self.costs.min())

    def gain(self, best: float) -> tuple[float, float]:
        """Returns the expected gain on ``best`` (Mockus, 1978): over likely and over all worlds."""
        gains = np.maximum(best - self.costs, 0.0)
        return float(gains[:LIKELY].mean()), float(gains.mean())


def candidates(
    worlds: SampledTimes, known: Collection[str], plans: Iterable[Plan | None]
) -> Iterator[Candidate]:
    """Yields the plans that were not measured yet, each once.

    Args:
        worlds: The samples of learnt times.
        known: Signatures of plans that were measured or dropped.
        plans: From :func:`optimal_plans` or :func:`neighbour_plans`.
    """
    seen = set(known)
    for plan in plans:
        key = plan_signature(plan) if plan is not None else ""
        if plan is not None and key not in seen:
            seen.add(key)
            # without world 0: it is the likeliest, not a sample
            yield Candidate(plan, key, worlds.costs(plan)[1:])


def optimal_plans(worlds: SampledTimes) -> Iterator[Plan | None]:
    """Yields the best plans with the likeliest times and in other worlds."""
    count = FEW_SEARCHES if len(worlds.space.kernels) > LARGE_PROBLEM else SEARCHED
    for world in range(1 + count):
        yield worlds.solve(world)


def neighbour_plans(worlds: SampledTimes, best: Plan, seed: int) -> Iterator[Plan | None]:
    """Yields a plan with a node, or a segment, on the other device; a mix has no neighbours.

    Args:
        worlds: The samples of the plan's network.
        best: The plan.
        seed: Seed of the sampled nodes of a large network.
    """
    space = worlds.space
    if len(best.plans) > 1:
        return
    layers = {layer.name: layer for layer in best.layers}
    own = [layers[space.network.layers[kernel.layers[0]].name] for kernel in space.kernels]
    here = {v: device_class(layer.device) for v, layer in enumerate(own)}
    segments: dict[int, list[int]] = {}
    for v, layer in enumerate(own):
        segments.setdefault(layer.segment, []).append(v)
    nodes = sorted(np.random.default_rng(seed).permutation(space.free)[:LOOKED].tolist())
    # a segment as well: moving one node of it alone would add two transitions
    for group in [*([v] for v in nodes), *(some for some in segments.values() if len(some) > 1)]:
        there = {v: "DLA" if here[v] == "GPU" else "GPU" for v in group if v in space.free}
        if there:
            yield worlds.solve(forced={**here, **there})
