"""Cuts for a least size of loadables: what a small one could be joined with.

Where nodes of one core hang together and none of their neighbours is on it, such a node can share
a loadable only with nodes that no path joins with it by way of a neighbour (convexity). As long as
the neighbours stay away, what is in reach has to make up the least size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgekit.solver._problem import Problem

__all__ = ["Reach", "too_small"]


class Reach:
    """Ancestors and descendants by node, as bit masks that include the node."""

    def __init__(self, problem: Problem) -> None:
        count = len(problem.costs)
        self.up = [1 << v for v in range(count)]
        self.down = [1 << v for v in range(count)]
        self.users: list[list[int]] = [[] for _ in range(count)]
        for v, before in enumerate(problem.predecessors):
            for u in before:
                self.up[v] |= self.up[u]
                self.users[u].append(v)
        for v in range(count - 1, -1, -1):
            for user in self.users[v]:
                self.down[v] |= self.down[user]


def too_small(
    problem: Problem, reach: Reach, devices: Sequence[int]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yields nodes whose loadable cannot be large enough, with neighbours and what is in reach."""
    sizes = problem.sizes or (1,) * len(devices)
    seen: set[int] = set()
    for first, device in enumerate(devices):
        if device not in problem.cores or first in seen:
            continue
        group, border = _together(problem, reach, devices, first)
        seen |= group
        for v in sorted(group):
            between = [b for b in sorted(border) if (reach.up[b] | reach.down[b]) >> v & 1]
            near = _within(problem, reach, v, between)
            if sum(sizes[w] for w in near if devices[w] == device) < problem.min_size:
                yield v, between, near


def _together(
    problem: Problem, reach: Reach, devices: Sequence[int], first: int
) -> tuple[set[int], set[int]]:
    group, border, stack = {first}, set[int](), [first]
    while stack:
        v = stack.pop()
        for w in (*problem.predecessors[v], *reach.users[v]):
            if devices[w] != devices[first]:
                border.add(w)
            elif w not in group:
                group.add(w)
                stack.append(w)
    return group, border


def _within(problem: Problem, reach: Reach, v: int, between: Sequence[int]) -> list[int]:
    """Returns what no path joins with a node by way of a neighbour."""
    away = 0
    for b in between:
        away |= reach.down[b] if reach.up[b] >> v & 1 else reach.up[b]
    network = problem.network_of or (0,) * len(problem.costs)
    return [w for w, n in enumerate(network) if n == network[v] and not away >> w & 1]
