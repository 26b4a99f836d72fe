"""A last look beside the best plan: one node, or one segment, on the other device.

What was measured are sums of layers, so a layer that is far off what its device and kind are off by
can hide in one, and the search holds a plan for hopeless that is not. Plans beside the best one are
therefore held for possible at more deviations than others. A few are measured in a tuning at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning
    from edgekit.placement import Plan
    from edgekit.placement._trial_search import Candidate, Knowledge
    from edgekit.placement._trial_space import Space

__all__ = ["FAR", "SWEEP", "beside_best", "swept"]

SWEEP = "sweep"
"""The origin of its trials."""
MOST = 6
"""Plans that it measures in a tuning."""
FAR = 4.0
"""Deviations, where the search has two. Of 100 random boards the search alone missed the optimum of
12 by more than 2 %, with this of one (docs/tuning.md)."""
LOOKED = 64
"""Nodes that it looks at on a large network."""


def swept(tuning: Tuning) -> int:
    """Returns how many plans beside the best one were tried."""
    return sum(trial.origin == SWEEP for trial in tuning.trials)


def beside_best(tuning: Tuning, knowledge: Knowledge, limit: float) -> list[Candidate]:
    """Returns the plans beside the best one that may be worth a measurement.

    Args:
        tuning: Its best plan counts; a mix has no plans beside it.
        knowledge: What was learnt.
        limit: What a plan must cost less than.
    """
    if swept(tuning) >= MOST or not tuning.best.counts or len(tuning.best.plan.plans) > 1:
        return []
    known = tuning.known(tuning.best.form)
    return [
        one
        for one in _neighbours(tuning, knowledge)
        if one.key not in known and one.mean - FAR * one.sd < limit
    ]


def _neighbours(tuning: Tuning, knowledge: Knowledge) -> Iterator[Candidate]:
    space, plan = knowledge.space, tuning.best.plan
    here = {v: name for v, (name, _) in enumerate(_places(space, plan))}
    for group in _groups(tuning, space, plan):
        there = {
            v: other
            for v in group
            if (other := "DLA" if here[v] == "GPU" else "GPU") in space.classes(v)
        }
        placed = knowledge.solve(forced={**here, **there}) if there else None
        key = placed.key if placed is not None else None
        if placed is not None and key is not None and (found := placed.plan) is not None:
            yield knowledge.candidate(found, key)


def _groups(tuning: Tuning, space: Space, plan: Plan) -> list[list[int]]:
    """Returns nodes that change places together: each alone, and each segment."""
    import numpy as np

    segments: dict[int, list[int]] = {}
    for v, (_, segment) in enumerate(_places(space, plan)):
        segments.setdefault(segment, []).append(v)
    nodes = [v for v in range(len(space.kernels)) if len(space.classes(v)) > 1]
    if len(nodes) > LOOKED:
        random = np.random.default_rng([tuning.wish.seed, len(tuning.trials)])
        nodes = sorted(int(v) for v in random.choice(nodes, LOOKED, replace=False))
    return [[v] for v in nodes] + [group for group in segments.values() if len(group) > 1]


def _places(space: Space, plan: Plan) -> list[tuple[str, int]]:
    """Returns by node the class of device and the segment that the plan has it in."""
    from edgekit.placement._trial_pieces import class_of

    layers = {layer.name: layer for layer in plan.layers}
    names = [layer.name for layer in space.network.layers]
    own = [layers[names[kernel.layers[0]]] for kernel in space.kernels]
    return [(class_of(layer.device), layer.segment) for layer in own]
