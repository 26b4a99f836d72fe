"""Every plan of a small problem, with its loads: what mixes and fronts are checked against."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from edgekit.solver.problem import Goal, PlacementProblem
from tests.solver.brute import Counts, _counts, _keeps, _loads, _vector


@dataclass(frozen=True)
class Plan:
    """Devices by node, loadables by core, loads by resource and then the energy."""

    devices: tuple[int, ...]
    counts: Counts
    loads: tuple[float, ...]


def every_plan(problem: PlacementProblem, goal: Goal) -> list[Plan]:
    """Returns all plans that keep the goal's bounds, one for each choice of transfer ways."""
    spots = [[m for m, cost in enumerate(row) if cost is not None] for row in problem.costs]
    choices = np.array(list(itertools.product(*spots)), dtype=np.int16)
    loads, options = _loads(problem, choices)
    found = []
    for i, choice in enumerate(choices):
        devices = [problem.device(m) for m in choice]
        ways = [costs for one in options for paid, costs in one if paid[i]]
        for counts in _counts(problem, devices):
            launched = sum(
                n * _vector(problem.launch[core])
                for core, n in zip(problem.cores, counts, strict=True)
            )
            for chosen in itertools.product(*ways):
                whole = np.sum([loads[i], np.zeros_like(loads[i]) + launched, *chosen], axis=0)
                if _keeps(problem, goal, whole[None])[0]:
                    found.append(Plan(tuple(devices), counts, tuple(whole)))
    return found
