"""Brute force over every assignment and every running order, written apart from the optimiser.

Numpy gives a lower bound for each assignment (its loads with one launch per core in use and the
cheapest ways); in ascending order of it, all legal partitions into loadables are tried until the
bound passes the best value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import OUTSIDE, Cost, Goal, PlacementProblem
from tests.solver.cases import Case, faults

Counts = tuple[int, ...]
GAP = 1e-4  # up to which an answer counts as the optimum


def disagreement(case: Case) -> str:
    """Returns what is wrong with the optimiser's answer, or nothing."""
    found = minimise(case.problem, case.goal)
    least = brute(case.problem, case.goal)
    if found.placing is None:
        if least == math.inf == found.bound:
            return ""
        return f"no placement, bound {found.bound:.6g}, but there is one with {least:.6g}"
    wrong = faults(case.problem, case.goal, found.placing)
    value = found.placing.value
    if value > least * (1 + GAP) + 1e-9:
        wrong.append(f"found {value:.9g}, but there is {least:.9g}")
    if value < least * (1 - 1e-6) - 1e-9:
        wrong.append(f"found {value:.9g}, below the least {least:.9g}")
    if found.bound > least * (1 + 1e-6) + 1e-9:
        wrong.append(f"bound {found.bound:.9g} above the least {least:.9g}")
    if value - found.bound > GAP * value + 1e-9:
        wrong.append(f"not proven: found {value:.9g}, bound {found.bound:.9g}")
    return "; ".join(wrong)


def brute(problem: PlacementProblem, goal: Goal) -> float:
    """Returns the least value, infinite when nothing is allowed."""
    spots = [[m for m, cost in enumerate(row) if cost is not None] for row in problem.costs]
    if not all(spots):
        return math.inf
    choices = np.array(list(itertools.product(*spots)), dtype=np.int16)
    loads, options = _loads(problem, choices)
    device = np.array([mode.device for mode in problem.modes])[choices]
    low = loads.copy()
    for one in options:
        for paid, costs in one:
            low[paid] += costs.min(axis=0)
    for core in problem.cores:
        used = (device == core).any(axis=1)
        low[used] += _vector(problem.launch[core])
    bound = _value(goal, low)
    bound[~_keeps(problem, goal, low)] = np.inf
    best = np.inf
    for i in np.argsort(bound, kind="stable"):
        if bound[i] >= best - 1e-9:
            break
        ways = [costs for one in options for paid, costs in one if paid[i]]
        best = min(best, _least(problem, goal, device[i].tolist(), loads[i], ways, best))
    return float(best)


def _vector(cost: Cost | None) -> np.ndarray:
    assert cost is not None
    return np.array([*cost.load_us, cost.energy_uj])


def _loads(problem: PlacementProblem, choices: np.ndarray):  # type: ignore[no-untyped-def]
    """Returns what the nodes take, and by border (where paid, its ways) of its transfers."""
    loads = np.zeros((len(choices), len(problem.devices) + 2))
    for v, row in enumerate(problem.costs):
        table = np.array(
            [np.zeros(loads.shape[1]) if cost is None else _vector(cost) for cost in row]
        )
        loads += table[choices[:, v]]
    options = []
    for border in problem.borders:
        one = []
        outside = np.full(len(choices), problem.outside)
        source = outside if border.producer == OUTSIDE else choices[:, border.producer]
        ends = [choices[:, v] for v in border.consumers] + ([outside] if border.output else [])
        for transfer in border.transfers:
            table = np.zeros((len(problem.modes),) * 2, dtype=bool)
            for a, b in transfer.pairs:
                table[a, b] = True
            paid = np.zeros(len(choices), dtype=bool)
            for end in ends:
                paid |= table[source, end]
            one.append((paid, np.array([_vector(way) for way in transfer.ways])))
        options.append(one)
    return loads, options


def _value(goal: Goal, loads: np.ndarray) -> np.ndarray:
    if goal.weights is None:
        return loads[:, :-2].max(axis=1)
    return loads[:, :-1] @ np.array(goal.weights) + goal.energy * loads[:, -1]


def _keeps(problem: PlacementProblem, goal: Goal, loads: np.ndarray) -> np.ndarray:
    gpu = [d for d, name in enumerate(problem.devices) if name == "GPU"]
    have = {
        "latency_us": loads[:, :-1].sum(axis=1),
        "energy_uj": loads[:, -1],
        "gpu_us": loads[:, gpu].sum(axis=1),
        "period_us": loads[:, :-2].max(axis=1),
    }
    retained = np.ones(len(loads), dtype=bool)
    for name, limit in goal.bounds.items():
        retained &= have[name] <= limit * (1 + 1e-9)
    return retained


def _least(problem, goal, devices, loads, ways, best):  # type: ignore[no-untyped-def]
    every = (
        np.array(
            [
                sum((np.asarray(c) for c in chosen), np.zeros_like(loads))
                for chosen in itertools.product(*ways)
            ]
        )
        if len(ways)
        else np.zeros((1, len(loads)))
    )
    every = np.unique(every, axis=0)
    for counts in _counts(problem, devices):
        launched = sum(
            n * _vector(problem.launch[core]) for core, n in zip(problem.cores, counts, strict=True)
        )
        whole = loads + launched + every
        retained = _keeps(problem, goal, whole)
        if retained.any():
            best = min(best, _value(goal, whole[retained]).min())
    return best


def _counts(problem: PlacementProblem, devices: list[int]) -> Iterator[Counts]:
    """Yields loadables by core of every legal running order."""
    for counts in sorted(_Orders(problem, devices).counts()):
        if problem.max_loadables is None or max(counts, default=0) <= problem.max_loadables:
            yield counts


class _Orders:
    """Walks through the running orders, one step (or GPU node) after the other."""

    def __init__(self, problem: PlacementProblem, devices: list[int]) -> None:
        self.problem, self.devices = problem, devices
        self.nodes = frozenset(range(len(devices)))
        self.limit = problem.max_transitions
        self.tracks = self.limit is not None
        self.known: dict[object, set[tuple[Counts, int]]] = {}

    def counts(self) -> set[Counts]:
        ends = self._from(frozenset(), None)
        return {c for c, changes in ends if self.limit is None or changes <= self.limit}

    def _from(self, done, last):  # type: ignore[no-untyped-def]
        key = (done, last)
        if key not in self.known:
            found = set()
            if done == self.nodes:
                found.add(((0,) * len(self.problem.cores), 0))
            for device, step in self._steps(done):
                change = self.tracks and last is not None and device != last
                rest = self._from(done | step, device if self.tracks else None)
                for counts, changes in rest:
                    more = tuple(
                        n + (core == device)
                        for core, n in zip(self.problem.cores, counts, strict=True)
                    )
                    found.add((more, changes + change))
            self.known[key] = {
                (c, t)
                for c, t in found
                if not any(
                    (d, u) != (c, t) and u <= t and all(a <= b for a, b in zip(d, c, strict=True))
                    for d, u in found
                )
            }
        return self.known[key]

    def _steps(self, done):  # type: ignore[no-untyped-def]
        """Yields every next step: closed sets of a core's nodes, single nodes elsewhere."""
        before = self.problem.predecessors
        free = sorted(
            v
            for v in self.nodes - done
            if self.devices[v] not in self.problem.cores and done.issuperset(before[v])
        )
        if free:
            yield self.devices[free[0]], frozenset(free[:1])
            if not self.tracks:  # what takes no loadable may as well run first
                return
            for v in free[1:]:
                yield self.devices[v], frozenset((v,))
        for core in self.problem.cores:
            sets = {frozenset[int]()}
            for v in sorted(self.nodes - done):
                if self.devices[v] == core:
                    sets |= {s | {v} for s in sets if (done | s).issuperset(before[v])}
            for chosen in sets - {frozenset()}:
                if self._legal(chosen):
                    yield core, chosen

    def _legal(self, chosen: frozenset[int]) -> bool:
        problem = self.problem
        size = sum(problem.sizes[v] if problem.sizes else 1 for v in chosen)
        return (
            size >= problem.min_size
            and all(sum(p.needs[v] for v in chosen) <= p.limit * (1 + 1e-9) for p in problem.pools)
            and (problem.fits is None or problem.fits(chosen))
        )
