"""Chains: an exact dynamic programme over (node, mode, loadables of each core, transitions).

A chain's running order is its only one, so a loadable is an interval of nodes, and the best way to
reach a node depends on the node before alone (Bellman, 1957). What a loadable may hold limits how
far back it may begin; :mod:`edgekit.solver._chain_window` keeps the best of those beginnings.
Constraints that count along the whole chain (slots, transitions, unbroken runs) enlarge the state:
they are added only when the optimum without them breaks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.solver._problem import (
    OUTSIDE,
    Border,
    Cost,
    Goal,
    Optimum,
    Placing,
    Problem,
    Step,
    Transfer,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["chain_optimum"]

TIE = 1e-8  # relative to the optimum: what all transitions of a chain together may cost in a tie
CELLS = 20_000_000  # states of all nodes: 160 MB; beyond, another method is quicker


@dataclass(frozen=True)
class Chain:
    """A chain's costs, weighed by a goal.

    Attributes:
        problem: The problem.
        goal: The goal.
        unary: By node and mode: the node itself and what it exchanges with the outside.
        moves: By node and two modes: what passes from the node before (row) to it (column).
        launch: By device: weighed cost of a loadable; 0 for a device without loadables.
        first: By node, the first node of the longest loadable that ends there.
        tie: What a transition costs beside, to prefer fewer among equals.
    """

    problem: Problem
    goal: Goal
    unary: Array
    moves: Array
    launch: tuple[float, ...]
    first: tuple[int, ...]
    tie: float


def chain_optimum(
    problem: Problem, goal: Goal, *, likely: AbstractSet[str] = frozenset()
) -> Optimum | None:
    """Returns the proven optimum of a chain, or None when this method cannot carry the problem.

    It carries one network in which every node feeds the next one only, a goal that is a weighted
    sum, and every constraint of the problem but bounds on metrics. ``likely`` says which of slots,
    transitions and contiguous are worth counting at once, because the optimum without breaks them.
    """
    from edgekit.solver._chain_search import search

    chain = read_chain(problem, goal)
    if chain is None:
        return None
    active = set(likely)
    while True:
        found = search(chain, frozenset(active), CELLS)
        if found is None:
            return None
        value, modes, starts = found
        if modes is None:
            return Optimum(None, float("inf"))
        placing = settle_chain(problem, goal, modes, starts)
        broken = full_or_broken(problem, placing)[1] - active
        if not broken:
            # The tie term is part of what was minimised, so this much the value may be above.
            slack = 2 * chain.tie * len(problem.costs)
            return Optimum(placing, min(placing.value, max(value - slack, 0.0)))
        active |= broken


def read_chain(problem: Problem, goal: Goal) -> Chain | None:
    """Returns a problem as a chain, or None when it is none."""
    import numpy as np

    count, kinds = len(problem.costs), len(problem.modes)
    if goal.weights is None or goal.bounds or len(problem.max_transitions) != 1 or not count:
        return None
    if any(problem.predecessors[v] != ((v - 1,) if v else ()) for v in range(count)):
        return None
    unary = np.array([[_weigh(goal, c) for c in row] for row in problem.costs], dtype=float)
    moves = np.zeros((count, kinds, kinds))
    for border in problem.borders:
        if not _add(problem, goal, border, unary, moves):
            return None
    finite = np.where(np.isfinite(unary), unary, np.inf).min(axis=1)
    tie = TIE * float(np.where(np.isfinite(finite), finite, 0.0).sum()) / count
    launch = tuple(_weigh(goal, cost) if cost else 0.0 for cost in problem.launch)
    return Chain(problem, goal, unary, moves, launch, _first(problem), tie)


def _add(problem: Problem, goal: Goal, border: Border, unary: Array, moves: Array) -> bool:
    """Adds what a tensor's transfers cost; returns whether that is a matter of neighbours."""
    if border.producer == OUTSIDE and border.transfers and len(set(border.consumers)) != 1:
        return False
    for transfer in border.transfers:
        cost = min(_weigh(goal, way) for way in transfer.ways)
        for before, after in sorted(transfer.pairs):
            if border.producer == OUTSIDE:
                if before == problem.outside:
                    unary[border.consumers[0], after] += cost
            elif border.consumers and not (
                border.output and (before, problem.outside) in transfer.pairs
            ):
                moves[border.producer + 1, before, after] += cost
        if border.output and border.producer != OUTSIDE:
            for mode in range(len(problem.modes)):
                if (mode, problem.outside) in transfer.pairs:
                    unary[border.producer, mode] += cost
    return True


def _weigh(goal: Goal, cost: Cost | None) -> float:
    return float("inf") if cost is None else goal.value(cost.load_us, cost.energy_uj)


def _first(problem: Problem) -> tuple[int, ...]:
    """Returns by node the first node of the longest loadable that ends there (v + 1: none)."""
    cores = set(problem.cores)
    able = [
        any(c and problem.modes[m].device in cores for m, c in enumerate(row))
        for row in problem.costs
    ]
    found: list[int] = []
    low, sums, whole = 0, [0.0] * len(problem.pools), False
    for v, on_core in enumerate(able):
        if not on_core:
            low, sums = v + 1, [0.0] * len(problem.pools)
            found.append(low)
            continue
        if not v or not able[v - 1]:
            end = next((w for w in range(v, len(able)) if not able[w]), len(able))
            whole = problem.fits is None or problem.fits(frozenset(range(v, end)))
        sums = [total + pool.needs[v] for total, pool in zip(sums, problem.pools, strict=True)]
        while low <= v and (
            any(total > pool.limit for total, pool in zip(sums, problem.pools, strict=True))
            or not (whole or not problem.fits or problem.fits(frozenset(range(low, v + 1))))
        ):
            low += 1
            # Summed anew: differences of floats drift.
            sums = [sum(pool.needs[low : v + 1]) for pool in problem.pools]
        found.append(low)
    return tuple(found)


def settle_chain(
    problem: Problem,
    goal: Goal,
    modes: tuple[int, ...],
    starts: frozenset[int],
    chosen: Mapping[tuple[int, int], int] | None = None,
) -> Placing:
    """Returns the placing of a chain's modes with loadables that begin at ``starts``.

    Without ``chosen``, the way by border and transfer, the ways are those that the goal likes best.
    """
    load = [0.0] * (len(problem.devices) + 1)
    energy = 0.0
    paid: list[Cost] = []
    ways: list[tuple[int, int, int]] = []
    groups: list[list[int]] = []
    for v, mode in enumerate(modes):
        cost = problem.costs[v][mode]
        assert cost is not None
        paid.append(cost)
        device = problem.device(mode)
        if v in starts or not v or device != problem.device(modes[v - 1]):
            groups.append([])
            launch = problem.launch[device]
            if launch is not None:
                paid.append(launch)
        groups[-1].append(v)
    for b, border in enumerate(problem.borders):
        before = problem.outside if border.producer == OUTSIDE else modes[border.producer]
        after = [modes[user] for user in border.consumers]
        after += [problem.outside] * border.output
        for t, transfer in enumerate(border.transfers):
            if any((before, mode) in transfer.pairs for mode in after):
                way = chosen[b, t] if chosen else _best_way(goal, transfer)
                ways.append((b, t, way))
                paid.append(transfer.ways[way])
    for cost in paid:
        load = [total + us for total, us in zip(load, cost.load_us, strict=True)]
        energy += cost.energy_uj
    steps = tuple(Step(0, problem.device(modes[group[0]]), tuple(group)) for group in groups)
    return Placing(modes, steps, tuple(ways), tuple(load), energy, goal.value(load, energy))


def _best_way(goal: Goal, transfer: Transfer) -> int:
    return min(range(len(transfer.ways)), key=lambda way: _weigh(goal, transfer.ways[way]))


def full_or_broken(problem: Problem, placing: Placing) -> tuple[set[str], set[str]]:
    """Returns which constraints that count along the chain are used up, and which are broken."""
    devices = [step.device for step in placing.steps]
    runs = [d for i, d in enumerate(devices) if not i or d != devices[i - 1]]
    most, limit = problem.max_transitions[0], problem.max_loadables
    full, broken = set(), set()
    if limit is not None and problem.cores:
        used = max(devices.count(core) for core in problem.cores)
        full |= {"slots"} if used >= limit else set()
        broken |= {"slots"} if used > limit else set()
    if most is not None:
        full |= {"transitions"} if len(runs) - 1 >= most else set()
        broken |= {"transitions"} if len(runs) - 1 > most else set()
    if problem.contiguous[0]:
        full.add("contiguous")
        broken |= {"contiguous"} if len(set(runs)) < len(runs) else set()
    return full, broken
