"""Loadables that cannot be ordered, because they wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from edgekit.solver._problem import Problem, Step
from edgekit.solver._small import Reach

__all__ = ["Cut", "circles", "ordered"]

Cut = tuple[frozenset[int], ...]
"""Pairs of nodes: loadables that each hold one of the pairs wait for each other in a circle."""
PAIRS = 3  # by two loadables of a circle
EACH = 12  # cuts of a circle
ALL = 200  # cuts of a solution


def ordered(
    problem: Problem, modes: Sequence[int], loadables: Sequence[Step], *, split: bool = False
) -> list[Step] | None:
    """Returns all steps in a running order, or None when there is none.

    With ``split`` a loadable of a circle is divided, and there always is one.
    """
    before = [frozenset(found) for found in problem.predecessors]
    inside = {v: i for i, step in enumerate(loadables) for v in step.nodes}
    steps: list[Step] = []
    for network, nodes in enumerate(problem.networks):
        left = set(nodes)
        last = -1
        while left:
            alone = [v for v in nodes if v in left and v not in inside]
            able = sorted({problem.device(modes[v]) for v in alone if not left & before[v]})
            if able:
                device = last = last if last in able else able[0]
                run = []
                for v in alone:
                    if problem.device(modes[v]) == device and not left & before[v]:
                        run.append(v)
                        left.discard(v)
                steps.append(Step(network, device, tuple(run)))
                continue
            ready = [
                step
                for step in loadables
                if step.network == network
                and left.issuperset(step.nodes)
                and not any(left & before[v] - {*step.nodes} for v in step.nodes)
            ]
            if not ready and not split:
                return None
            if not ready:
                ready = [part for step in loadables if (part := _part(step, left, before))]
            steps.append(
                min(ready, key=lambda step: (step.device != last, -len(step.nodes), step.nodes))
            )
            last = steps[-1].device
            left -= {*steps[-1].nodes}
    return steps


def _part(step: Step, left: set[int], before: Sequence[frozenset[int]]) -> Step | None:
    """Returns what of a loadable can run now."""
    run: list[int] = []
    for v in step.nodes:
        if v in left and not left - {*run} & before[v]:
            run.append(v)
    return Step(step.network, step.device, tuple(run)) if run else None


def circles(reach: Reach, loadables: Sequence[tuple[int, ...]]) -> list[Cut]:
    """Returns the shortest circles of loadables as cuts.

    Loadables that each hold both nodes of a pair cannot all be there, whatever else they hold:
    each pair's one node waits for the pair before, the next pair waits for its other one.
    """
    masks = [sum(1 << v for v in nodes) for nodes in loadables]
    above = [0] * len(loadables)
    for i, nodes in enumerate(loadables):
        for v in nodes:
            above[i] |= reach.up[v]
    after = {
        i: [k for k in range(len(loadables)) if k != i and above[i] & masks[k]]
        for i in range(len(loadables))
    }
    found: dict[frozenset[int], list[int]] = {}
    for start in after:
        circle = _shortest(after, start)
        if circle:
            found.setdefault(frozenset(circle), circle)
    least = min(map(len, found.values()), default=0)
    cuts: dict[frozenset[frozenset[int]], Cut] = {}
    for circle in found.values():
        if len(circle) > least:
            continue
        joints = [
            sorted(
                (v - u, u, v) for v in loadables[i] for u in loadables[k] if reach.up[v] >> u & 1
            )[:PAIRS]
            for i, k in zip(circle, [*circle[1:], circle[0]], strict=True)
        ]
        for chosen in islice(product(*joints), EACH):
            # a loadable holds the node that waits and the one that the loadable before waits for
            cut = tuple(
                frozenset((mine[2], before[1]))
                for mine, before in zip(chosen, [chosen[-1], *chosen[:-1]], strict=True)
            )
            cuts.setdefault(frozenset(cut), cut)
    return list(cuts.values())[:ALL]


def _shortest(after: dict[int, list[int]], start: int) -> list[int]:
    parent = {start: -1}
    queue = [start]
    for i in queue:
        for k in after[i]:
            if k == start:
                path = [i]
                while parent[path[-1]] != -1:
                    path.append(parent[path[-1]])
                return path[::-1]
            if k not in parent:
                parent[k] = i
                queue.append(k)
    return []
