"""The loadables of one core that may still grow at a node of a chain, by where they began.

How far back a loadable may begin moves forward only, so the best beginning is a minimum over a
sliding window. With several modes a core the value of a beginning depends on the modes along the
way; minima of sums over such paths form a semiring, so the window is kept as two stacks (the known
queue of two stacks): beginnings before ``pivot`` are summed up to it once, those after it as they
come. Each node costs a constant number of array operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["Window"]


class Window:
    """Best values of open loadables, by mode, size so far (capped) and label.

    Args:
        modes: Modes of the core.
        labels: Labels of a state, what counts along the chain.
        least: The least size of a loadable.
    """

    def __init__(self, modes: int, labels: int, least: int) -> None:
        import numpy as np

        self._np = np
        self.least = least
        self.open = np.full((modes, least + 1, labels), np.inf)
        self.unit = np.where(np.eye(modes, dtype=bool), 0.0, np.inf)
        self.through = self.unit
        self.pivot = 0
        self.since = 0  # size of the nodes from the pivot
        self.node = -1
        self.front: dict[int, Array] = {}
        self.begun: dict[int, tuple[Array, Array, int]] = {}

    def step(self, move: Array, begin: Array, size: int, first: int) -> Array:
        """Goes on to the next node; returns the best values of loadables that may end there.

        Args:
            move: By mode before and mode: to add when a loadable goes on to this node.
            begin: By mode and label: value of a loadable that begins here.
            size: The node's size.
            first: The first node where a loadable that ends here may begin.
        """
        np = self._np
        self.node += 1
        self.begun[self.node] = (move, begin, size)
        self.since += size
        grown = (self.open[:, None] + move[:, :, None, None]).min(axis=0)
        if size and self.least:
            shifted = np.full_like(grown, np.inf)
            if size <= self.least:
                shifted[:, size:] = grown[:, : self.least + 1 - size]
            shifted[:, -1] = grown[:, max(0, self.least - size) :].min(axis=1)
            grown = shifted
        at = min(size, self.least)
        grown[:, at] = np.minimum(grown[:, at], begin)
        self.open = grown
        self.through = _times(self.through, move)
        if first > self.pivot:
            self._turn(first)
        ended: Array = self.open[:, -1]
        if first < self.pivot:
            wanted = max(0, self.least - self.since)
            before = self.front[first][:, wanted:].min(axis=1)
            ended = np.minimum(ended, (before[:, None] + self.through[:, :, None]).min(axis=0))
        return ended

    def _turn(self, first: int) -> None:
        """Sums the beginnings up to this node, and begins anew after it."""
        np = self._np
        self.front = {}
        path, size = self.unit, 0
        best = np.full_like(self.open, np.inf)
        for node in range(self.node, first - 1, -1):
            move, begin, own = self.begun[node]
            size = min(self.least, size + own)
            best = best.copy()
            value = (begin[:, None] + path[:, :, None]).min(axis=0)
            best[:, size] = np.minimum(best[:, size], value)
            self.front[node] = best
            path = _times(move, path)
        self.begun = {}
        self.open = np.full_like(self.open, np.inf)
        self.through, self.pivot, self.since = self.unit, self.node + 1, 0


def _times(one: Array, other: Array) -> Array:
    """Returns the product in the semiring of minimum and sum."""
    product: Array = (one[:, :, None] + other[None]).min(axis=1)
    return product
