"""Which sets of nodes one loadable can be, by what the duals of a programme pay for its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.solver._pack import SLACK, fits
from edgekit.solver._problem import Problem
from edgekit.solver._small import Reach

__all__ = ["Pricing"]

AT_ONCE = 20  # columns of one round
LOOKED = 20_000  # sets looked at for the best ones
EVERY = 400_000  # and for all that count


class Pricing:
    """Searches the convex sets of nodes of one network that one loadable holds.

    Nodes are taken or left in topological order; what could still be won is a fractional knapsack
    of the fullest pool (Dantzig, 1957).

    Attributes:
        looked: Sets that the last search looked at.
    """

    looked = 0

    def __init__(self, problem: Problem, network: int, nodes: Sequence[int]) -> None:
        self.problem, self.nodes = problem, nodes
        own = problem.networks[network]
        reach = Reach(problem)
        self.up, self.down = reach.up, reach.down
        self.others = sum(1 << v for v in set(own) - set(nodes))
        self.sizes = problem.sizes or (1,) * len(problem.costs)
        self.pools = [pool for pool in problem.pools if any(pool.needs[v] for v in nodes)]

    def allows(self, nodes: Sequence[int]) -> bool:
        """Returns whether nodes can be one loadable."""
        large = sum(self.sizes[v] for v in nodes) >= self.problem.min_size
        return large and fits(self.problem, nodes)

    def best(self, gain: Mapping[int, float], least: float) -> tuple[list[tuple[int, ...]], float]:
        """Returns sets that gain more than ``least``, and what none gains more than."""
        found: list[tuple[float, tuple[int, ...]]] = []
        whole, most = self._search(gain, least, found, rising=True)
        found.sort(reverse=True)
        top = found[0][0] if found else least
        return [nodes for _, nodes in found[:AT_ONCE]], top if whole else most

    def every(
        self, gain: Mapping[int, float], least: float, limit: int
    ) -> list[tuple[int, ...]] | None:
        """Returns all sets that gain at least ``least``; None: more than ``limit``."""
        found: list[tuple[float, tuple[int, ...]]] = []
        whole, _ = self._search(gain, least, found, rising=False, limit=limit)
        return [nodes for _, nodes in found] if whole else None

    def _search(  # noqa: PLR0915
        self,
        gain: Mapping[int, float],
        least: float,
        found: list[tuple[float, tuple[int, ...]]],
        *,
        rising: bool,
        limit: int = 1_000_000,
    ) -> tuple[bool, float]:
        """Walks through the sets; returns whether all were seen, and the root's bound."""
        pool = min(self.pools, key=lambda p: p.limit / sum(p.needs), default=None)
        needs = pool.needs if pool else (0.0,) * len(self.problem.costs)
        room = pool.limit * (1 + SLACK) if pool else 0.0
        dense = sorted(
            ((gain[v], needs[v], 1 << v) for v in self.nodes if gain[v] > 0),
            key=lambda item: -item[0] / (item[1] + 1e-12),
        )
        small = self.problem.min_size > 1
        plain = self.problem.fits is None and len(self.pools) <= 1
        up, down, order = self.up, self.down, self.nodes

        def promise(away: int, left: float) -> float:
            total = 0.0
            for worth, need, bit in dense:
                if bit & away:
                    continue
                if need > left:
                    return total + worth * left / need
                total += worth
                left -= need
            return total

        top = promise(0, room)
        behind = [0] * (len(order) + 1)  # bits of the nodes decided by position
        for i, v in enumerate(order):
            behind[i + 1] = behind[i] | 1 << v
        # position, taken, what cannot be taken any more, gain, room
        stack = [(0, 0, 0, 0.0, room)]
        self.looked = 0
        floor = least
        while stack:
            i, taken, blocked, worth, left = stack.pop()
            self.looked += 1
            if self.looked > (LOOKED if rising else EVERY):
                return False, top
            if worth + promise(blocked | behind[i], left) < floor:
                continue
            if i == len(order):
                continue
            v = order[i]
            bit = 1 << v
            related = up[v] & taken
            out = blocked
            if related:
                out = blocked | down[v]
            stack.append((i + 1, taken, out, worth, left))
            if (
                blocked & bit
                or needs[v] > left
                or (rising and gain[v] <= 0 and not related and not small)
            ):
                continue
            # a node that cannot be on the core and lies between keeps the two apart
            if related and self._apart(v, taken):
                continue
            more = taken | bit
            members = tuple(w for w in order[: i + 1] if more >> w & 1)
            if not plain and not fits(self.problem, members):
                continue
            total = worth + gain[v]
            worthy = total > floor if rising else total >= floor
            if worthy and (not small or self.allows(members)):
                found.append((total, members))
                if len(found) > limit:
                    return False, top
                floor = total if rising else floor
            stack.append((i + 1, more, blocked, total, left - needs[v]))
        return True, top

    def _apart(self, v: int, taken: int) -> bool:
        between = self.up[v] & self.others
        while between:
            low = between & -between
            if self.up[low.bit_length() - 1] & taken:
                return True
            between ^= low
        return False
