"""Placements to begin from when one plan is to keep all devices equally busy."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from edgekit.solver import Effort, Goal, Placing, Problem, evaluate, minimise

__all__ = ["one_core", "period_starts"]

POSITIONS = 120  # cuts tried along the network
BEST = 12  # of them are worth their exact value


def one_core(problem: Problem, count: int = 1) -> Problem:
    """Returns the problem with its first cores only."""
    kept = {d for d in range(len(problem.devices)) if d not in problem.cores[count:]}
    costs = tuple(
        tuple(cost if problem.device(m) in kept else None for m, cost in enumerate(row))
        for row in problem.costs
    )
    return replace(problem, costs=costs)


def period_starts(problem: Problem, bounds: Mapping[str, float], effort: Effort) -> list[Placing]:
    """Returns the fastest plan for one frame, the best with one core, and the best cuts.

    A cut gives each device an unbroken stretch of the kernels' order; what it cannot run goes to
    the GPU.
    """
    goal = Goal.of(problem, "period", bounds)
    latency = Goal.of(problem, "latency", bounds)
    found = [minimise(problem, latency, effort=effort.part(effort.left / 2)).placing]
    found += [evaluate(problem, modes, goal) for modes in _cuts(problem)]
    if len(problem.cores) > 1:
        starts = [p for p in found if p and not _uses(problem, p) - {0, problem.cores[0]}]
        alone = minimise(one_core(problem), goal, starts=starts, effort=effort).placing
        if alone is not None:
            found.append(evaluate(problem, alone.modes, goal))
    return [placing for placing in found if placing is not None]


def _uses(problem: Problem, placing: Placing) -> set[int]:
    return {problem.device(m) for m in placing.modes}


def _cuts(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yields the modes of the cuts into stretches with the least load, hand-overs left out."""
    count = len(problem.costs)
    modes = [_modes_on(problem, device) for device in range(len(problem.devices))]
    sums = [_running(problem, own) for own in modes]
    step = -(-count // POSITIONS)
    at = [*range(0, count, step), count]
    found: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
    for order in permutations(range(len(problem.devices)), min(3, len(problem.devices))):
        for i, a in enumerate(at):
            for b in at[i:] if len(order) > 2 else (count,):
                edges = (0, a, b, count)[: len(order) + 1]
                load = [
                    sum(sums[x][d][high] - sums[x][d][low]
                        for x, low, high in zip(order, edges, edges[1:]))  # noqa: B905
                    for d in range(len(problem.devices))
                ]  # fmt: skip
                found.append((max(load), order, edges))
    for _, order, edges in heapq.nsmallest(BEST, found):
        parts = [modes[x][low:high] for x, low, high in zip(order, edges, edges[1:])]  # noqa: B905
        yield tuple(m for part in parts for m in part)


def _modes_on(problem: Problem, device: int) -> list[int]:
    """Returns each node's mode on a device; the GPU's first one where it has none there."""
    found: list[int] = []
    for row in problem.costs:
        able = [m for m, cost in enumerate(row) if cost is not None]
        own = [m for m in able if problem.device(m) == device]
        own = own or [m for m in able if problem.device(m) == 0]
        found.append((own or able)[0])
    return found


def _running(problem: Problem, modes: Sequence[int]) -> list[list[float]]:
    """Returns, by device, the load of the first nodes."""
    sums = [[0.0] for _ in problem.devices]
    for v, m in enumerate(modes):
        cost = problem.costs[v][m]
        for d, column in enumerate(sums):
            column.append(column[-1] + (cost.load_us[d] if cost else 0.0))
    return sums
