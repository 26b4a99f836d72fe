"""A board whose every time is known: what each layer takes where, and what hand-overs cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from edgekit.benchmark.document import Bench
from edgekit.benchmark.energy import Energy, TotalEnergy
from edgekit.errors import BoardError
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import Plan
from edgekit.placement.search import PlanShare
from edgekit.solver.evaluation import evaluate
from edgekit.solver.problem import Goal
from edgekit.tuning.candidates import PlacementSpace, plan_signature
from edgekit_device.benchmark.measurement import Clock, Pipelined, SegmentTimes


@dataclass
class World:
    """A network whose plans are measured in a moment.

    Attributes:
        query: What is placed.
        times: Microseconds by device class and layer kind; "*" for those not named.
        switch_us: Of each change of devices.
        together: Factor on a device's time while another one works.
        noise: Relative deviation of a run.
        fails: Plans that cannot be built, by what they have on the DLA.
        clock: Which clock it claims to have.
        broken: Not even its plan to begin with can be built.
    """

    query: PlacementQuery
    times: Mapping[str, Mapping[str, float]]
    switch_us: float = 10.0
    together: float = 1.0
    noise: float = 0.0
    fails: frozenset[str] = frozenset()
    clock: Clock = "board-measured"
    again_s: float = 0.0
    power: bool = False
    seed: int = 1
    name: str = ""
    model: str = ""
    backend: str = "tensorrt"
    broken: bool = False
    measured: list[str] = field(default_factory=list)

    @cached_property
    def start(self) -> Plan:
        if self.broken:
            raise BoardError("it does not build", code="build.failed")
        return self.query.plan()

    @cached_property
    def kinds(self) -> dict[str, str]:
        return {layer.name: layer.kind for layer in self.query.network.layers}

    def layer_us(self, name: str, device: str) -> float:
        own = self.times["GPU" if device == "GPU" else "DLA"]
        return own.get(name, own.get(self.kinds[name], own["*"]))

    def segments(self, plan: Plan) -> dict[tuple[int, int], tuple[str, list[str], float]]:
        """By lane and index: device, layers, microseconds."""
        found: dict[tuple[int, int], tuple[str, list[str], float]] = {}
        for lane, share in enumerate(plan.plans):
            for layer in share.layers:
                key = lane, layer.segment
                device, names, us = found.get(key, (layer.device, [], 0.0))
                us += self.layer_us(layer.name, layer.device)
                found[key] = (device, [*names, layer.name], us)
        return found

    def cost(self, plan: Plan, objective: str) -> float:
        """The truth, without noise."""
        segments = self.segments(plan)
        shares = [share.share for share in plan.plans]
        if objective == "latency":
            total = sum(shares[lane] * us for (lane, _), (*_, us) in segments.items())
            return total + self.switch_us * sum(s.share * s.transitions for s in plan.plans)
        load: dict[str, float] = {}
        for (lane, _), (device, _, us) in segments.items():
            load[device] = load.get(device, 0.0) + shares[lane] * us
        if objective == "gpu_time":
            return load.get("GPU", 0.0)
        if objective == "energy":
            return 30.0 * load.get("GPU", 0.0) + 4.0 * sum(load.values())
        return max(load.values()) * (self.together if len(load) > 1 else 1.0)

    def measure(self, plan: Plan) -> Bench:
        layers = [layer for share in plan.plans for layer in share.layers]
        on_dla = {layer.name for layer in layers if layer.device != "GPU"}
        if self.fails & on_dla:
            raise BoardError("the builder gave up", code="build.failed")
        self.measured.append(plan_signature(plan))
        random = np.random.default_rng([self.seed, len(self.measured)])

        def run(us: float) -> float:
            return us * float(1 + self.noise * random.standard_normal())

        latency = [run(self.cost(plan, "latency")) / 1e3 for _ in range(15)]
        segments = [
            SegmentTimes(
                lane=lane,
                index=index,
                device=device,
                layers=names,
                latency_ms={"median": run(us) / 1e3},
            )
            for (lane, index), (device, names, us) in self.segments(plan).items()
        ]
        pipelined = None
        if len({device for device, *_ in self.segments(plan).values()}) > 1:
            qps = 1e6 / run(self.cost(plan, "period"))
            pipelined = Pipelined(frames=15, throughput_qps=qps)
        drawn = run(self.cost(plan, "energy")) if self.power else None
        return Bench(
            clock=self.clock,
            iterations=15,
            samples_ms=latency,
            latency_ms={"median": float(np.median(latency))},
            throughput_qps=1e3 / float(np.mean(latency)),
            segments=segments,
            pipelined=pipelined,
            energy=None if drawn is None else energy_of(drawn),
        )


def energy_of(uj: float) -> Energy:
    """An inference's energy in microjoules, of one rail."""
    rail = {"mean_mw": 1.0, "median_mw": 1.0, "uj_per_inference": uj}
    return Energy(
        by_rail={},
        total=TotalEnergy(rails=["VDD_IN"], **rail),
        window_s=[0.0, 1.0],
        samples=9,
        idle_samples=0,
        clock="board-measured",
    )


def world_of(
    query: PlacementQuery, gpu: Mapping[str, float], dla: Mapping[str, float], **more: Any
) -> World:
    """A world for a network; microseconds by layer's name or kind."""
    return World(query, {"GPU": gpu, "DLA": dla}, **more)


def every_plan(query: PlacementQuery) -> Iterator[Plan]:
    """Every placement of the network's kernels that can be."""
    space = PlacementSpace(query.prepared())
    problem = space.problem
    choices = []
    for row in problem.costs:
        first: dict[int, int] = {}
        for mode, cost in enumerate(row):
            if cost is not None:
                first.setdefault(problem.device(mode), mode)
        choices.append(list(first.values()))
    goal = Goal.of(problem, "latency")
    for modes in product(*choices):
        placing = evaluate(problem, modes, goal)
        if placing is not None and (plan := space.plan([PlanShare(1.0, placing)])) is not None:
            yield plan


def best_mix(query: PlacementQuery, world: World, cores: int) -> float:
    """The truth of the best mix: microseconds a frame.

    Cores are alike, so a mix has a GPU's and a core's load: of two sums, no more than two plans are
    needed, and where two plans are mixed both devices have as much to do.
    """
    loads = []
    for plan in every_plan(query):
        work = {"GPU": 0.0, "DLA": 0.0}
        for device, _, us in world.segments(plan).values():
            work["GPU" if device == "GPU" else "DLA"] += us
        loads.append((work["GPU"], work["DLA"] / cores))
    alone = [gpu for gpu, dla in loads if not dla]
    together = [max(pair) for pair in loads if pair[1]]
    for one, other in product(loads, loads):
        apart = (one[1] - one[0]) - (other[1] - other[0])
        part = (other[0] - other[1]) / apart if apart else -1.0
        if 0.0 <= part <= 1.0:
            together.append(part * one[0] + (1 - part) * other[0])
    return min(*alone, world.together * min(together))
