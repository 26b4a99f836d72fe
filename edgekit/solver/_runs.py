"""Rows for a network's running order: few device changes, or one unbroken run per device.

A running order with ``n`` changes has ``n + 1`` runs, each on one device. Between two devices, the
longest alternating path tells the number of runs; among more, every run gets a device.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

from edgekit.solver._highs import Expression, Program
from edgekit.solver._problem import Problem

__all__ = ["limit_runs"]

On = Callable[[int, int], Expression]


def limit_runs(problem: Problem, program: Program, on: On, network: int) -> None:
    """Adds the rows of ``max_transitions`` and ``contiguous`` for one network."""
    nodes = problem.networks[network]
    devices = sorted(
        {
            problem.device(m)
            for v in nodes
            for m, cost in enumerate(problem.costs[v])
            if cost is not None
        }
    )
    if problem.contiguous[network] and len(devices) > 1:
        _one_run_each(problem, program, on, nodes, devices)
    limit = problem.max_transitions[network]
    if limit is not None and len(devices) > 1 and limit < len(nodes) - 1:
        if len(devices) == 2:
            _alternating(problem, program, on, nodes, devices, limit)
        else:
            _numbered(problem, program, on, nodes, devices, limit)


def _one_run_each(
    problem: Problem, program: Program, on: On, nodes: tuple[int, ...], devices: list[int]
) -> None:
    """One order of the devices holds for every edge."""
    before = {}
    for a, b in permutations(devices, 2):
        if a < b:
            before[a, b] = Expression({program.variable(1.0, integer=True): 1.0})
            before[b, a] = Expression().plus(before[a, b], -1.0)
            before[b, a].constant = 1.0
    for a, b, c in permutations(devices, 3):
        circle = Expression().plus(before[a, b]).plus(before[b, c]).plus(before[c, a])
        program.row(circle, high=2.0)
    for v in nodes:
        for u in problem.predecessors[v]:
            for a, b in permutations(devices, 2):
                terms = Expression().plus(on(u, a)).plus(on(v, b)).plus(before[a, b], -1.0)
                program.row(terms, high=1.0)


def _alternating(
    problem: Problem,
    program: Program,
    on: On,
    nodes: tuple[int, ...],
    devices: list[int],
    limit: int,
) -> None:
    """Two devices take turns: runs by node, counted from whichever device begins."""
    begins = Expression({program.variable(1.0, integer=True): 1.0})  # the second device
    runs = {v: program.variable(float(limit)) for v in nodes}
    one, other = devices
    for v in nodes:
        terms = Expression({runs[v]: 1.0}).plus(on(v, other), -1.0).plus(begins)
        program.row(terms, low=0.0)
        terms = Expression({runs[v]: 1.0}).plus(on(v, one), -1.0).plus(begins, -1.0)
        terms.constant += 1.0
        program.row(terms, low=0.0)
        for u in problem.predecessors[v]:
            program.row(Expression({runs[v]: 1.0, runs[u]: -1.0}), low=0.0)
            for device in devices:
                terms = Expression({runs[v]: 1.0, runs[u]: -1.0})
                program.row(terms.plus(on(v, device), -1.0).plus(on(u, device)), low=0.0)


def _numbered(
    problem: Problem,
    program: Program,
    on: On,
    nodes: tuple[int, ...],
    devices: list[int],
    limit: int,
) -> None:
    """Every node is in one of the runs, in order along the edges; a run has one device."""
    count = min(limit + 1, len(nodes))
    chosen = [{d: program.variable(1.0, integer=True) for d in devices} for _ in range(count)]
    for spots in chosen:
        program.row(Expression(dict.fromkeys(spots.values(), 1.0)), high=1.0)
    reached = {  # whether the node is in this run or a later one; in the first always
        v: [Expression({program.variable(1.0, integer=True): 1.0}) for _ in range(count - 1)]
        for v in nodes
    }
    for v in nodes:
        steps = reached[v]
        for early, late in pairwise(steps):
            program.row(Expression().plus(early).plus(late, -1.0), low=0.0)
        for u in problem.predecessors[v]:
            for mine, theirs in zip(steps, reached[u], strict=True):
                program.row(Expression().plus(mine).plus(theirs, -1.0), low=0.0)
        for run in range(count):
            inside = Expression()
            if run:
                inside.plus(steps[run - 1])
            else:
                inside.constant = 1.0
            if run < count - 1:
                inside.plus(steps[run], -1.0)
            for d in devices:
                terms = Expression().plus(inside).plus(on(v, d))
                terms.add(chosen[run][d], -1.0)
                program.row(terms, high=1.0)
