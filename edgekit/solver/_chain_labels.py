"""What a partial placement of a chain has used up: loadables by core, transitions, devices."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from edgekit.solver._problem import Problem

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["Labels"]

START = -1  # the device before the first node


class Labels:
    """All combinations of the counts that matter, numbered, and the moves between them.

    Args:
        problem: A chain.
        active: Which of slots, transitions and contiguous are counted.
    """

    def __init__(self, problem: Problem, active: frozenset[str]) -> None:
        cores = problem.cores if "slots" in active else ()
        self.cores = {core: place for place, core in enumerate(cores)}
        sizes = [(problem.max_loadables or 0) + 1] * len(cores)
        self.transitions = self.seen = None
        if "transitions" in active:
            self.transitions = len(sizes)
            sizes.append((problem.max_transitions[0] or 0) + 1)
        if "contiguous" in active:
            self.seen = len(sizes)
            sizes.append(2 ** len(problem.devices))
        self.sizes = tuple(sizes)
        self.count = prod(sizes)

    def sources(self, before: int, device: int, begins: bool) -> Array:
        """Returns by label the label that a move comes from; ``count`` where there is none.

        Args:
            before: The device of the node before, or START.
            device: The device of the node.
            begins: Whether a loadable begins at the node.
        """
        import numpy as np

        places = np.indices(self.sizes).reshape(len(self.sizes), self.count)
        good = np.ones(self.count, dtype=bool)
        if begins and device in self.cores:
            places[self.cores[device]] -= 1
        if self.transitions is not None and before not in (device, START):
            places[self.transitions] -= 1
        if self.seen is not None:
            bit = 1 << device
            seen = places[self.seen]
            good &= (seen & bit) > 0
            if before != device:
                places[self.seen] = seen & ~bit
        good &= (places >= 0).all(axis=0)
        if not self.sizes:
            return np.zeros(1, dtype=int)
        flat = np.ravel_multi_index(tuple(np.maximum(places, 0)), self.sizes)
        return np.where(good, flat, self.count)
