"""Which plan to measure next: optima of the times as they are known, of samples of what
they may be (Thompson sampling), and of one node elsewhere. Placements are searched by the
solver with the estimated times.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from edgekit.placement.assembly import assemble
from edgekit.placement.costs import CostModel
from edgekit.placement.kernels import LayerKernel
from edgekit.placement.plan import Options, Plan, Share
from edgekit.placement.profiles.estimation import CLASSES, EXTRA, Estimate
from edgekit.placement.profiles.measured import shares
from edgekit.placement.search import PlanShare, Solved, optimise
from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Cost, Goal, PlacementProblem, Placing

if TYPE_CHECKING:
    from edgekit.placement.placing import Prepared


# Which plan to measure next.
#
# Candidates are optima: of the times as they are known, of samples of what they may be (Thompson
# sampling, Biometrika 25, 1933), of the known times with one node elsewhere (the second best plan
# is among these), and their neighbours. Each is judged by its own deviation, in which what layers
# share counts once.


SIGMAS = 2.0
SAMPLES = 12
FLIPS = 16
RETRIES = 2
Forced = Mapping[int, str]
"""The class of device ("GPU", "DLA") that nodes of the problem must have, by node."""
BALANCING = 5
"""Placements that are looked at for a small period."""
STEPS = 40
"""Of shares: 0.25 each and 0.3 with 0.2 can differ by a twentieth of the frames a second."""


@dataclass(frozen=True)
class Candidate:
    """A plan with what it may take: the objective's cost (less is better), and its deviation."""

    plan: Plan
    key: str
    mean: float
    sd: float

    @property
    def low(self) -> float:
        """What it takes at best, by what is known."""
        return max(0.0, self.mean - SIGMAS * self.sd)

    def gain(self, best: float) -> float:
        """Returns the expected improvement on ``best`` (Mockus, 1978)."""
        if self.sd <= 0:
            return max(0.0, best - self.mean)
        z = (best - self.mean) / self.sd
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return float(self.sd * (z * (1 + math.erf(z / math.sqrt(2))) / 2 + density))


@dataclass(frozen=True)
class Scenario:
    """A way to see what no measurement shows alone: what conversions and other devices cost.

    Attributes:
        moving: The part of transfers that keeps the GPU busy; the rest only delays a frame.
        together: Period measured over the busiest device's own time, where several work at once:
            mean and deviation.
        weight: How well it explains what was measured; the weights of all ways add up to 1.
    """

    moving: float = 1.0
    together: tuple[float, float] = (1.0, 0.15)
    weight: float = 1.0


class PlacementSpace:
    """A network's placements, to be searched with times as they were learnt."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self.network = prepared.request.network
        self.options = prepared.request.options
        self._plans: dict[object, Plan | None] = {}
        self._keys: dict[object, str | None] = {}
        self._own: dict[tuple[int, ...], Placing | None] = {}
        self.index = {layer.name: i for i, layer in enumerate(self.network.layers)}

    @property
    def model(self) -> CostModel:
        """What predicts."""
        return self._prepared.request.model

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in use."""
        return self._prepared.request.devices

    @property
    def kernels(self) -> tuple[LayerKernel, ...]:
        """By node of the problem, its layers."""
        return self._prepared.built.kernels

    @property
    def problem(self) -> PlacementProblem:
        """The problem with predicted times."""
        return self._prepared.problem

    @cached_property
    def prior_us(self) -> dict[str, np.ndarray]:
        """By class, each layer's predicted microseconds; NaN where it cannot run."""
        found = {name: np.full(len(self.network.layers), np.nan) for name in CLASSES}
        for v, kernel in enumerate(self.kernels):
            for name, us in self._least(v).items():
                for i, part in shares(self.network, kernel.layers, us).items():
                    found[name][i] = part
        return found

    def _least(self, v: int) -> dict[str, float]:
        return self._leasts[v]

    @cached_property
    def _leasts(self) -> list[dict[str, float]]:
        problem, found = self.problem, []
        for row in problem.costs:
            best: dict[str, float] = {}
            for m, cost in enumerate(row):
                if cost is not None:
                    name = device_class(problem.devices[problem.device(m)])
                    best[name] = min(sum(cost.load_us), best.get(name, float("inf")))
            found.append(best)
        return found

    def classes(self, v: int) -> set[str]:
        """Returns where a node can run."""
        return set(self._least(v))

    def solve(
        self, learnt: Estimate, logs: np.ndarray | None = None, forced: Forced | None = None,
        watts: Mapping[str, float] | None = None, moving: float = 1.0,
    ) -> FoundPlacement | None:  # fmt: skip
        """Returns the best plan with times as they were learnt, None where there is none.

        Args:
            learnt: The times.
            logs: A sample of them.
            forced: What else must hold.
            watts: By class, measured over predicted energy.
            moving: The part of transfers that keeps the GPU busy; for the other objectives all.
        """
        problem = self._scaled(learnt, logs, forced or {}, watts or {}, moving)
        if self.options.objective == "period":
            parts = balanced_placement(problem, self.options)
        else:
            parts = optimise(problem, self.options).parts
        return FoundPlacement(self, parts) if parts else None

    def key(self, parts: Sequence[PlanShare]) -> str | None:
        """Returns the signature of a solved problem's plan, None where it cannot be."""
        key = tuple((round(part.share * STEPS), part.placing.modes) for part in parts)
        if key not in self._keys:
            plan = self.plan(parts)
            self._keys[key] = None if plan is None else plan_signature(plan)
        return self._keys[key]

    def plan(self, parts: Sequence[PlanShare]) -> Plan | None:
        """Returns a solved problem's plan, as predicted by the model, not by what was learnt."""
        # most searches end at a placement that another one ended at, too
        key = tuple((part.share, part.placing.modes) for part in parts)
        if key not in self._plans:
            self._plans[key] = self._plan(parts)
        return self._plans[key]

    def _plan(self, parts: Sequence[PlanShare]) -> Plan | None:
        built, options = self._prepared.built, self.options
        one = "period" if options.objective == "throughput" else options.objective
        goal = Goal.of(self.problem, one)
        shares: list[PlanShare] = []
        for part in parts:
            modes = part.placing.modes
            if modes not in self._own:
                self._own[modes] = evaluate(self.problem, modes, goal)
            placing = self._own[modes]
            if placing is None:
                return None
            shares.append(PlanShare(part.share, placing))
        value = self._value(shares)
        solved = Solved(tuple(shares), value, value)
        return assemble(self._prepared.request, built, solved, self._prepared.baselines)

    def _value(self, parts: Sequence[PlanShare]) -> float:
        if self.options.objective == "energy":
            return self.model.energy(self.problem.devices, parts[0].placing.load_us)[0]
        if self.options.objective != "throughput":
            return parts[0].placing.value
        count = len(self.problem.devices)
        load = [sum(p.share * p.placing.load_us[d] for p in parts) for d in range(count)]
        return 1e6 / max(load) if max(load) else 0.0

    def alone(self, name: str) -> Plan | None:
        """Returns the plan with every node on this class of device that can run there."""
        wanted = {v: name for v in range(len(self.kernels)) if name in self.classes(v)}
        problem = replace(self.problem, costs=self._allowed(wanted))
        options = replace(self.options, objective="latency", bounds={})
        solved = optimise(problem, options)
        return self.plan(solved.parts) if solved.parts else None

    def _allowed(self, forced: Forced) -> tuple[tuple[Cost | None, ...], ...]:
        problem = self.problem
        return tuple(
            tuple(
                cost
                if v not in forced
                or device_class(problem.devices[problem.device(m)]) == forced[v]
                else None
                for m, cost in enumerate(row)
            )
            for v, row in enumerate(problem.costs)
        )  # fmt: skip

    def _scaled(
        self, learnt: Estimate, logs: np.ndarray | None, forced: Forced, watts: Mapping[str, float],
        moving: float,
    ) -> PlacementProblem:  # fmt: skip
        problem, times = self.problem, learnt.times(logs)
        extra = dict(zip(EXTRA, map(float, times["extra"]), strict=True))
        moved = extra["transfer"] * moving
        costs = []
        for v, row in enumerate(self._allowed(forced)):
            least = self._least(v)
            layers = list(self.kernels[v].layers)
            new: list[Cost | None] = []
            for m, cost in enumerate(row):
                if cost is None:
                    new.append(None)
                    continue
                device = problem.device(m)
                name = device_class(problem.devices[device])
                us = float(times[name][layers].sum())
                if least[name] > 0:
                    us *= sum(cost.load_us) / least[name]
                load = [0.0] * len(cost.load_us)
                load[device] = us
                was = sum(cost.load_us)
                energy = cost.energy_uj * (us / was if was else 1.0) * watts.get(name, 1.0)
                new.append(Cost(tuple(load), energy))
            costs.append(tuple(new))
        borders = tuple(
            replace(border, transfers=tuple(
                replace(one, ways=tuple(_times(way, moved) for way in one.ways))
                for one in border.transfers
            ))
            for border in problem.borders
        )  # fmt: skip
        launch = tuple(
            None
            if cost is None
            else _with_delay(_times(cost, extra["launch"]), 2 * extra["transition"])
            for cost in problem.launch
        )
        return replace(problem, costs=tuple(costs), borders=borders, launch=launch)


def _times(cost: Cost, factor: float) -> Cost:
    return Cost(tuple(us * factor for us in cost.load_us), cost.energy_uj * factor)


def _with_delay(cost: Cost, us: float) -> Cost:
    """Adds time in which no device works; a loadable is entered and left."""
    return Cost((*cost.load_us[:-1], cost.load_us[-1] + us), cost.energy_uj)


def balanced_placement(problem: PlacementProblem, options: Options) -> tuple[PlanShare, ...]:
    """Returns a placement whose busiest device has little to do.

    The proven least takes CP-SAT, in a process of its own; a candidate need not be proven. Prices
    of the devices' time are raised where there is much to do (multiplicative weights), and the
    best placement that any prices have is taken.
    """
    count = len(problem.devices)
    prices = [1.0] * count
    best: Placing | None = None
    for _ in range(BALANCING):
        total = sum(prices)
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


def device_class(device: str) -> str:
    """Returns "GPU" or "DLA": the cores of a board are alike."""
    return "GPU" if device == "GPU" else "DLA"


def plan_signature(plan: Plan) -> str:
    """Returns what identifies a plan's builds: the device of every layer, and the shares."""

    def one(share: Share) -> list[object]:
        # shares follow from times: a mix whose shares moved a little is no other plan
        return [
            round(share.share * STEPS),
            sorted((x.name, x.device, x.segment) for x in share.layers),
        ]

    text = json.dumps([one(share) for share in plan.plans], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class FoundPlacement:
    """What a search found; its plan is made when it is needed, as most were found before."""

    space: PlacementSpace
    parts: tuple[PlanShare, ...]

    @property
    def plan(self) -> Plan | None:
        """The plan, as predicted; None where it cannot be."""
        return self.space.plan(self.parts)

    @property
    def key(self) -> str | None:
        """The plan's signature; None where it cannot be."""
        return self.space.key(self.parts)

    def class_at(self, v: int) -> str:
        """Returns the class of device that the first plan has a node of the problem on."""
        problem = self.space.problem
        return device_class(problem.devices[problem.device(self.parts[0].placing.modes[v])])


@dataclass(frozen=True)
class Knowledge:
    """What was learnt, as costs of plans.

    Attributes:
        space: The placements.
        learnt: The times.
        objective: What is made small.
        ways: What may be, the likeliest first. Plans that are alike under one way say nothing of
            the others, so all that explain the measurements count.
        watts: By class, watts of the module while it works.
        energy: By class, measured over predicted energy.
        energy_sd: By class, its deviation.
    """

    space: PlacementSpace
    learnt: Estimate
    objective: str
    ways: tuple[Scenario, ...] = (Scenario(),)
    watts: Mapping[str, float] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    energy_sd: Mapping[str, float] = field(default_factory=dict)

    @property
    def together(self) -> float:
        """What working at once costs."""
        return sum(way.weight * way.together[0] for way in self.ways)

    def cost(self, plan: Plan) -> tuple[float, float]:
        """Returns what a plan costs and its deviation: microseconds, for energy microjoules."""
        every = plan_terms(plan, self.space.index)
        if self.objective == "latency":
            return self._alone(every)
        found = [(way.weight, *self._cost(every, way)) for way in self.ways]
        mean = sum(weight * us for weight, us, _ in found)
        square = sum(weight * (us * us + sd * sd) for weight, us, sd in found)
        return mean, math.sqrt(max(0.0, square - mean * mean))

    def _cost(self, every: tuple[PlanTerms, ...], way: Scenario) -> tuple[float, float]:
        if self.objective == "gpu_time":
            return self._load(every, "GPU", way.moving)
        if self.objective == "energy":
            return self._energy(every, way.moving)
        mean, sd, devices = self._busiest(every, way.moving)
        if devices < 2:
            return self._alone(every)  # the caller's part of a frame is no other device's
        factor, spread = way.together
        return mean * factor, math.hypot(sd * factor, mean * spread)

    def _alone(self, every: tuple[PlanTerms, ...]) -> tuple[float, float]:
        piece = max(every, key=lambda one: one.share)
        return self.learnt.value(self.learnt.row(piece.layers, piece.extra))

    def _load(
        self, every: tuple[PlanTerms, ...], device: str, moving: float
    ) -> tuple[float, float]:
        row = sum(
            piece.share
            * self.learnt.row(piece.load.get(device, ()), _extra_evidence(piece, device, moving))
            for piece in every
        )
        return self.learnt.value(row)  # type: ignore[arg-type]

    def busiest(self, plan: Plan, moving: float) -> tuple[float, float, int]:
        """Returns the busiest device's time a frame, its deviation, and how many devices work."""
        return self._busiest(plan_terms(plan, self.space.index), moving)

    def _busiest(self, every: tuple[PlanTerms, ...], moving: float) -> tuple[float, float, int]:
        devices = {name for piece in every for name in piece.load}
        mean, sd = max(self._load(every, name, moving) for name in devices)
        return mean, sd, len(devices)

    def _energy(self, every: tuple[PlanTerms, ...], moving: float) -> tuple[float, float]:
        mean = var = 0.0
        for device in {name for piece in every for name in piece.load}:
            us, sd = self._load(every, device, moving)
            name = device_class(device)
            watts = self.watts.get(name, 1.0)
            factor = watts * self.energy.get(name, 1.0)
            doubt = us * watts * self.energy_sd.get(name, 0.0)
            mean, var = mean + us * factor, var + (sd * factor) ** 2 + doubt**2
        return mean, math.sqrt(var)

    def solve(
        self,
        logs: np.ndarray | None = None,
        forced: Mapping[int, str] | None = None,
        way: Scenario | None = None,
    ) -> FoundPlacement | None:
        """Returns the best plan by what is known, or by a sample of it, in one way to see it."""
        moving = 1.0 if self.objective == "latency" else (way or self.ways[0]).moving
        return self.space.solve(self.learnt, logs, forced, self.energy, moving)

    def candidate(self, plan: Plan, key: str) -> Candidate:
        """Returns a plan with its cost."""
        return Candidate(plan, key, *self.cost(plan))


def candidates(
    knowledge: Knowledge,
    known: Collection[str],
    random: np.random.Generator,
    *,
    enough: float = math.inf,
) -> Iterator[Candidate]:
    """Yields plans that were not measured yet, each once; those best by what is known come first.

    Args:
        knowledge: What was learnt.
        known: Plans that were measured or dropped, by their signature.
        random: Of samples.
        enough: How many placements may be searched for; many fewer on large networks.
    """
    space, learnt = knowledge.space, knowledge.learnt
    seen = set(known)
    searched = 0

    def fresh(placed: FoundPlacement | None) -> Iterator[Candidate]:
        nonlocal searched
        searched += 1
        key = placed.key if placed is not None else None
        if placed is not None and key is not None and key not in seen:
            seen.add(key)
            if (plan := placed.plan) is not None:
                yield knowledge.candidate(plan, key)

    best = knowledge.solve()
    yield from fresh(best)
    for way in knowledge.ways[1:]:
        yield from fresh(knowledge.solve(way=way))
    nodes = [v for v in range(len(space.kernels)) if len(space.classes(v)) > 1]
    flips = nodes if len(nodes) <= FLIPS else list(random.choice(nodes, FLIPS, replace=False))
    for v in flips:
        if searched >= enough:
            return
        other = "DLA" if best is not None and best.class_at(int(v)) == "GPU" else "GPU"
        yield from fresh(knowledge.solve(forced={int(v): other}))
    weights = [way.weight for way in knowledge.ways]
    for _ in range(SAMPLES):
        if searched >= enough:
            return
        logs = learnt.sample(random)
        way = knowledge.ways[random.choice(len(weights), p=weights)]
        found = knowledge.solve(logs, way=way)
        for _ in range(RETRIES):
            if found is None or found.key not in seen or not nodes:
                break
            # a plan that is known already: the best with one node elsewhere
            v = int(random.choice(nodes))
            other = "DLA" if found.class_at(v) == "GPU" else "GPU"
            found = knowledge.solve(logs, {v: other}, way)
        yield from fresh(found)


def _extra_evidence(piece: PlanTerms, device: str, moving: float) -> dict[str, float]:
    if device == "GPU":
        return {"transfer": piece.extra["transfer"] * moving}
    if device not in piece.load:
        return {}
    return {"launch": piece.extra["launch"] / sum(name != "GPU" for name in piece.load)}


@dataclass(frozen=True)
class PlanTerms:
    """A plan of a mix as sums of unknown times.

    Attributes:
        share: Of the frames.
        layers: (class, layer's index), in running order.
        load: By device, the layers it runs.
        extra: Multiples of the unknowns that are no layer's.
    """

    share: float
    layers: tuple[tuple[str, int], ...]
    load: Mapping[str, tuple[tuple[str, int], ...]]
    extra: Mapping[str, float]


def plan_terms(plan: Plan, index: Mapping[str, int]) -> tuple[PlanTerms, ...]:
    """Returns the plans of a mix; ``index`` is each layer's place in the network."""
    found = []
    for number, share in enumerate(plan.plans):
        layers = tuple((device_class(one.device), index[one.name]) for one in share.layers)
        load: dict[str, list[tuple[str, int]]] = {}
        for one, pair in zip(share.layers, layers, strict=True):
            load.setdefault(one.device, []).append(pair)
        launch = sum(one.launch_us for one in plan.loadables if one.plan == number)
        own = sum(one.predicted_us for one in share.layers)
        predicted = share.predicted or plan.predicted
        found.append(PlanTerms(
            share.share, layers, {name: tuple(some) for name, some in load.items()},
            {"frame": 1.0, "transition": float(share.transitions), "launch": launch,
             "transfer": max(0.0, predicted.latency_us - own - launch)},
        ))  # fmt: skip
    return tuple(found)
