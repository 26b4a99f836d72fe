"""Which plan is worth measuring next.

Candidates are optima: of the times as they are known, of samples of what they may be (Thompson
sampling, Biometrika 25, 1933), of the known times with one node elsewhere (the second best plan is
among these), and their neighbours. Each is judged by its own deviation, in which what layers share
counts once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.placement._trial_learn import Learnt
from edgekit.placement._trial_pieces import Piece, class_of, pieces
from edgekit.placement._trial_space import Placed, Space

if TYPE_CHECKING:
    import numpy as np

    from edgekit.placement._types import Plan

__all__ = ["SIGMAS", "Candidate", "Knowledge", "Way", "candidates"]

SIGMAS = 2.0
SAMPLES = 12
FLIPS = 16
RETRIES = 2


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
class Way:
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


@dataclass(frozen=True)
class Knowledge:
    """What was learnt, as costs of plans.

    Attributes:
        space: The placements.
        learnt: The times.
        objective: What is made small.
        ways: What may be, the likeliest first. Plans that are alike under one way tell nothing of
            the others, so all that explain the measurements count.
        watts: By class, watts of the module while it works.
        energy: By class, measured over predicted energy.
        energy_sd: By class, its deviation.
    """

    space: Space
    learnt: Learnt
    objective: str
    ways: tuple[Way, ...] = (Way(),)
    watts: Mapping[str, float] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    energy_sd: Mapping[str, float] = field(default_factory=dict)

    @property
    def together(self) -> float:
        """What working at once costs."""
        return sum(way.weight * way.together[0] for way in self.ways)

    def cost(self, plan: Plan) -> tuple[float, float]:
        """Returns what a plan costs and its deviation: microseconds, for energy microjoules."""
        every = pieces(plan, self.space.index)
        if self.objective == "latency":
            return self._alone(every)
        found = [(way.weight, *self._cost(every, way)) for way in self.ways]
        mean = sum(weight * us for weight, us, _ in found)
        square = sum(weight * (us * us + sd * sd) for weight, us, sd in found)
        return mean, math.sqrt(max(0.0, square - mean * mean))

    def _cost(self, every: tuple[Piece, ...], way: Way) -> tuple[float, float]:
        if self.objective == "gpu_time":
            return self._load(every, "GPU", way.moving)
        if self.objective == "energy":
            return self._energy(every, way.moving)
        mean, sd, devices = self._busiest(every, way.moving)
        if devices < 2:
            return self._alone(every)  # the caller's part of a frame is no other device's
        factor, spread = way.together
        return mean * factor, math.hypot(sd * factor, mean * spread)

    def _alone(self, every: tuple[Piece, ...]) -> tuple[float, float]:
        piece = max(every, key=lambda one: one.share)
        return self.learnt.value(self.learnt.row(piece.layers, piece.extra))

    def _load(self, every: tuple[Piece, ...], device: str, moving: float) -> tuple[float, float]:
        row = sum(
            piece.share * self.learnt.row(piece.load.get(device, ()), _extra(piece, device, moving))
            for piece in every
        )
        return self.learnt.value(row)  # type: ignore[arg-type]

    def busiest(self, plan: Plan, moving: float) -> tuple[float, float, int]:
        """Returns the busiest device's time a frame, its deviation, and how many devices work."""
        return self._busiest(pieces(plan, self.space.index), moving)

    def _busiest(self, every: tuple[Piece, ...], moving: float) -> tuple[float, float, int]:
        devices = {name for piece in every for name in piece.load}
        mean, sd = max(self._load(every, name, moving) for name in devices)
        return mean, sd, len(devices)

    def _energy(self, every: tuple[Piece, ...], moving: float) -> tuple[float, float]:
        mean = var = 0.0
        for device in {name for piece in every for name in piece.load}:
            us, sd = self._load(every, device, moving)
            name = class_of(device)
            watts = self.watts.get(name, 1.0)
            factor = watts * self.energy.get(name, 1.0)
            doubt = us * watts * self.energy_sd.get(name, 0.0)
            mean, var = mean + us * factor, var + (sd * factor) ** 2 + doubt**2
        return mean, math.sqrt(var)

    def solve(
        self,
        logs: np.ndarray | None = None,
        forced: Mapping[int, str] | None = None,
        way: Way | None = None,
    ) -> Placed | None:
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

    def fresh(placed: Placed | None) -> Iterator[Candidate]:
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


def _extra(piece: Piece, device: str, moving: float) -> dict[str, float]:
    if device == "GPU":
        return {"transfer": piece.extra["transfer"] * moving}
    if device not in piece.load:
        return {}
    return {"launch": piece.extra["launch"] / sum(name != "GPU" for name in piece.load)}
