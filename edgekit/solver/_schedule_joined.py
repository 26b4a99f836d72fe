"""The steps of a schedule in which every node runs by itself, or as a run of its order says."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from edgekit.solver._problem import Placing, Problem, Step
from edgekit.solver._schedule_times import Item, Sending

__all__ = ["in_runs", "in_time", "joined"]


def in_runs(problem: Problem, modes: Sequence[int], join: Sequence[bool]) -> tuple[Step, ...]:
    """Returns loadables of joined nodes, and runs on other devices, in the order of the nodes."""
    steps: list[Step] = []
    for network, nodes in enumerate(problem.networks):
        for v in nodes:
            device = problem.device(modes[v])
            last = steps[-1] if steps and steps[-1].network == network else None
            same = last is not None and last.device == device
            if last is not None and same and (join[v] or device not in problem.cores):
                steps[-1] = Step(network, device, (*last.nodes, v))
            else:
                steps.append(Step(network, device, (v,)))
    return tuple(steps)


def in_time(problem: Problem, modes: Sequence[int], starts: Sequence[int]) -> tuple[Step, ...]:
    """Returns every node as a step of its own, in the order in which they start."""
    steps = []
    for network, nodes in enumerate(problem.networks):
        order = sorted(nodes, key=lambda v: (starts[v], v))
        steps += [Step(network, problem.device(modes[v]), (v,)) for v in order]
    return tuple(steps)


def joined(
    problem: Problem, placing: Placing, items: Sequence[Item], sendings: Sequence[Sending]
) -> tuple[Step, ...]:
    """Returns the steps, neighbours of one device joined where that changes no time.

    A loadable's inputs are there before it starts and its outputs are used after it ended.
    """
    at = {item.node: item for item in items}
    needs: list[list[tuple[int, float]]] = [[] for _ in problem.costs]  # from where, there when
    for v, before in enumerate(problem.predecessors):
        needs[v] += [(u, at[u].end_us) for u in before]
    taken: dict[int, float] = {}  # when a node's outputs are first converted
    for sent in sendings:
        border = problem.borders[sent.border]
        if border.producer >= 0:
            start = taken.get(border.producer, math.inf)
            taken[border.producer] = min(start, sent.start_us)
        for v in border.consumers:
            needs[v].append((-1, sent.end_us))
    readers: list[list[int]] = [[] for _ in problem.costs]
    for v, before in enumerate(problem.predecessors):
        for u in before:
            readers[u].append(v)
    queue: dict[int, list[int]] = {}
    for item in items:
        queue.setdefault(item.device, []).append(item.node)
    following = {u: v for nodes in queue.values() for u, v in pairwise(nodes)}  # on the device
    steps: list[list[int]] = []
    for step in placing.steps:
        (v,) = step.nodes
        last = next((s for s in reversed(steps) if following.get(s[-1]) == v), None)
        steps.append([v])
        if last is not None and _may_join(problem, last, v, step, at, needs, readers, taken):
            # what takes no time can run between two others that start and end at once
            more = [[*s, v] if s is last else s for s in steps[:-1]]
            if in_order(problem, more, at) is not None:
                last.append(steps.pop()[0])
    order = in_order(problem, steps, at)
    assert order is not None  # that of the nodes one by one, at least
    runs: list[Step] = []
    for nodes in order:
        step = Step(_network(problem, nodes[0]), at[nodes[0]].device, tuple(sorted(nodes)))
        free = step.device not in problem.cores
        if free and runs and (runs[-1].network, runs[-1].device) == (step.network, step.device):
            step = Step(step.network, step.device, (*runs.pop().nodes, *step.nodes))
        runs.append(step)
    return tuple(Step(s.network, s.device, tuple(sorted(s.nodes))) for s in runs)


def in_order(
    problem: Problem, steps: Sequence[Sequence[int]], at: Mapping[int, Item]
) -> list[Sequence[int]] | None:
    """Returns steps by network in an order in which they can run, the first to start first.

    None: some wait for each other.
    """
    of = {v: i for i, nodes in enumerate(steps) for v in nodes}
    waiting = [
        {of[u] for v in nodes for u in problem.predecessors[v] if u in of} - {i}
        for i, nodes in enumerate(steps)
    ]
    behind: list[list[int]] = [[] for _ in steps]
    for i, before in enumerate(waiting):
        for j in before:
            behind[j].append(i)

    def key(i: int) -> tuple[int, float, int, int]:
        first = steps[i][0]
        return (_network(problem, first), at[first].start_us, first, i)

    ready = [key(i) for i, before in enumerate(waiting) if not before]
    heapq.heapify(ready)
    found: list[Sequence[int]] = []
    while ready:
        i = heapq.heappop(ready)[-1]
        found.append(steps[i])
        for j in behind[i]:
            waiting[j].discard(i)
            if not waiting[j]:
                heapq.heappush(ready, key(j))
    return found if len(found) == len(steps) else None


def _network(problem: Problem, v: int) -> int:
    return problem.network_of[v] if problem.network_of else 0


def _may_join(
    problem: Problem,
    members: Sequence[int],
    v: int,
    step: Step,
    at: Mapping[int, Item],
    needs: Sequence[Sequence[tuple[int, float]]],
    readers: Sequence[Sequence[int]],
    taken: Mapping[int, float],
) -> bool:
    if _network(problem, members[-1]) != step.network or step.device not in problem.cores:
        return False
    first, end = at[members[0]].start_us, at[v].end_us
    slack = 1e-9 * max(1.0, end)
    inside = {*members, v}
    return (
        abs(at[v].start_us - at[members[-1]].end_us) <= slack
        and all(u in inside or there <= first + slack for u, there in needs[v])
        and all(
            taken.get(u, math.inf) >= end - slack
            and all(w in inside or at[w].start_us >= end - slack for w in readers[u])
            for u in members
        )
    )
