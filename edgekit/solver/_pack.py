"""Which sets of nodes can be one loadable, given what has been done."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgekit.solver._problem import Problem

__all__ = ["SLACK", "Packer", "fits"]

SLACK = 1e-9  # relative, on a pool's limit
SETS = 4_000  # candidates looked at for one loadable before the search is cut short
EFFORT = 40_000  # and for all of them together; then a hundred each


def fits(problem: Problem, nodes: Sequence[int]) -> bool:
    """Returns whether nodes can be in one loadable together, whatever its least size."""
    for pool in problem.pools:
        if sum(pool.needs[v] for v in nodes) > pool.limit * (1 + SLACK):
            return False
    return problem.fits is None or problem.fits(frozenset(nodes))


class Packer:
    """Finds loadables among the nodes of one network; sets are bit masks over its nodes."""

    def __init__(
        self, problem: Problem, nodes: Sequence[int], before: Sequence[int], wild: Collection[int]
    ) -> None:
        """Takes a network's nodes; the ``wild`` ones (by index) need nothing."""
        self.problem, self.nodes, self.before = problem, nodes, before
        self.wild = frozenset(wild)
        self.min_size = 0 if wild else problem.min_size
        self._effort = 0
        self._fits: dict[int, bool] = {}
        self._found: dict[tuple[int, int], tuple[tuple[int, ...], bool]] = {}

    def allows(self, nodes: Sequence[int]) -> bool:
        """Returns whether nodes of the problem can be one loadable."""
        index = {v: i for i, v in enumerate(self.nodes)}
        mask = sum(1 << index[v] for v in nodes)
        return self._fitting(mask) and self._large(mask)

    def _members(self, mask: int) -> list[int]:
        return [v for i, v in enumerate(self.nodes) if mask >> i & 1 and i not in self.wild]

    def _fitting(self, mask: int) -> bool:
        known = self._fits.get(mask)
        if known is None:
            known = self._fits[mask] = fits(self.problem, self._members(mask))
        return known

    def _large(self, mask: int) -> bool:
        sizes = self.problem.sizes
        return sum(sizes[v] if sizes else 1 for v in self._members(mask)) >= self.min_size

    def loadables(self, ready: int, done: int) -> tuple[tuple[int, ...], bool]:
        """Returns the sets worth a loadable among what is ready, largest first, if all were seen.

        ``ready`` is closed: a node in it has its predecessors there or in ``done``. Without a
        least size only the sets that cannot take another node count.
        """
        small = self.min_size > 1
        if not small and self._fitting(ready):
            return (ready,), True
        key = (ready, done if small else done & self._needed(ready))
        if key not in self._found:
            self._found[key] = self._every(ready, done, small)
        return self._found[key]

    def _needed(self, mask: int) -> int:
        needed = 0
        for i, before in enumerate(self.before):
            if mask >> i & 1:
                needed |= before
        return needed

    def _every(self, ready: int, done: int, small: bool) -> tuple[tuple[int, ...], bool]:
        """Walks through the sets of ready nodes that are closed and fit, each once."""
        order = [i for i in range(len(self.nodes)) if ready >> i & 1]
        found: list[int] = []
        whole = True
        stack = [(0, 0, 0)]  # position, taken, left out
        looked, most = 0, SETS if self._effort < EFFORT else 100 + len(order)
        while stack:
            position, taken, left = stack.pop()
            looked += 1
            if looked > most:
                whole = False
                break
            if position == len(order):
                if not taken:
                    continue
                if small:
                    if self._large(taken):
                        found.append(taken)
                elif not self._growing(order, taken, done):
                    found.append(taken)
                continue
            i = order[position]
            bit = 1 << i
            stack.append((position + 1, taken, left | bit))
            if self.before[i] & ~(done | taken) == 0 and self._fitting(taken | bit):
                stack.append((position + 1, taken | bit, left))
        self._effort += looked
        found.sort(key=lambda mask: (-mask.bit_count(), mask))
        return tuple(found), whole

    def _growing(self, order: Sequence[int], taken: int, done: int) -> bool:
        """Returns whether another node has room."""
        return any(
            not taken >> i & 1
            and self.before[i] & ~(done | taken) == 0
            and self._fitting(taken | 1 << i)
            for i in order
        )
