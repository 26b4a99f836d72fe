"""What a tensor's transfers cost, as rows: between two kinds of modes a cut, else a flow.

Where neither end has more than two kinds of modes, a transfer is at least the difference of two
sums of binaries. Between more kinds the flow of the edge from the producer's modes to the
consumer's is stated (the local polytope), which is tight on trees.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations

from edgekit.solver._highs import Expression, Program
from edgekit.solver._problem import Border, Transfer

__all__ = ["Edges"]


class Edges:
    """States edges in a programme."""

    def __init__(
        self,
        program: Program,
        inside: Callable[[int, Collection[int]], Expression],
        allowed: Callable[[int], Sequence[int]],
    ) -> None:
        """Takes whether a node, OUTSIDE included, is in some modes, and the modes it can have."""
        self.program, self.inside, self.allowed = program, inside, allowed

    def state(self, border: Border, user: int, spent: Sequence[Expression]) -> None:
        """States what one consumer makes of a tensor's transfers."""
        sources = self.allowed(border.producer)
        goals = self.allowed(user)
        rows = _classes(sources, lambda a: [[(a, b) in t.pairs for b in goals]
                                            for t in border.transfers])  # fmt: skip
        columns = _classes(goals, lambda b: [[(a, b) in t.pairs for a in sources]
                                             for t in border.transfers])  # fmt: skip
        active = [
            (transfer, paid)
            for transfer, paid in zip(border.transfers, spent, strict=True)
            if any((a[0], b[0]) in transfer.pairs for a in rows for b in columns)
        ]
        if not active:
            return
        if min(len(rows), len(columns)) <= 1 or max(len(rows), len(columns)) <= 2:
            for transfer, paid in active:
                self._cuts(transfer, paid, (border.producer, rows), (user, columns))
        else:
            self._flow(active, (border.producer, rows), (user, columns))

    def _cuts(
        self,
        transfer: Transfer,
        paid: Expression,
        source: tuple[int, Sequence[Sequence[int]]],
        goal: tuple[int, Sequence[Sequence[int]]],
    ) -> None:
        """Pays for the producers in some modes whose consumers are in none that comes for nothing.

        Over all sets of modes this is the least that one edge can pay (maximum flow, minimum cut).
        """
        (producer, rows), (user, columns) = source, goal
        free = [
            frozenset(k for k, b in enumerate(columns) if (a[0], b[0]) not in transfer.pairs)
            for a in rows
        ]
        paying = [i for i, among in enumerate(free) if len(among) < len(columns)]
        seen = set()
        for size in range(1, len(paying) + 1):
            for chosen in combinations(paying, size):
                among = frozenset[int]().union(*(free[i] for i in chosen))
                if len(among) == len(columns):
                    continue
                whole = frozenset(i for i in paying if free[i] <= among)
                if whole in seen:
                    continue
                seen.add(whole)
                terms = Expression().plus(paid)
                terms.plus(self.inside(producer, [m for i in whole for m in rows[i]]), -1.0)
                terms.plus(self.inside(user, [m for k in among for m in columns[k]]))
                self.program.row(terms, low=0.0)

    def _flow(
        self,
        active: Sequence[tuple[Transfer, Expression]],
        source: tuple[int, Sequence[Sequence[int]]],
        goal: tuple[int, Sequence[Sequence[int]]],
    ) -> None:
        (producer, rows), (user, columns) = source, goal
        flow = {
            (i, k): self.program.variable(1.0)
            for i in range(len(rows))
            for k in range(len(columns))
        }
        for i, modes in enumerate(rows):
            terms = self.inside(producer, modes)
            for k in range(len(columns)):
                terms.add(flow[i, k], -1.0)
            self.program.row(terms, 0.0, 0.0)
        for k, modes in enumerate(columns):
            terms = self.inside(user, modes)
            for i in range(len(rows)):
                terms.add(flow[i, k], -1.0)
            self.program.row(terms, 0.0, 0.0)
        for transfer, paid in active:
            terms = Expression().plus(paid)
            for (i, k), variable in flow.items():
                if (rows[i][0], columns[k][0]) in transfer.pairs:
                    terms.add(variable, -1.0)
            self.program.row(terms, low=0.0)


def _classes(
    modes: Sequence[int], pattern: Callable[[int], Sequence[Sequence[bool]]]
) -> list[list[int]]:
    """Returns modes that no transfer tells apart, together."""
    found: dict[tuple[tuple[bool, ...], ...], list[int]] = {}
    for m in modes:
        found.setdefault(tuple(map(tuple, pattern(m))), []).append(m)
    return list(found.values())
