"""The smallest set of constraints that cannot hold together.

More constraints than a conflicting set conflict, too. So a deletion filter finds a set of which
every constraint is needed (Chinneck, Feasibility and Infeasibility in Optimization, 2008, section
6.2), and smaller sets are then tried by size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

__all__ = ["smallest_conflict"]

TRIALS = 60
"""Sets that the search for a smaller one may try."""

T = TypeVar("T", bound=Hashable)


def smallest_conflict(
    constraints: Sequence[T], fails: Callable[[Sequence[T]], bool]
) -> tuple[list[T], bool]:
    """Returns a smallest conflicting set, and whether all smaller ones were tried.

    Args:
        constraints: All of them, which together conflict; what comes first is dropped first.
        fails: Whether some of them cannot hold together.
    """
    needed = list(constraints)
    for one in constraints:
        rest = [other for other in needed if other != one]
        if fails(rest):
            needed = rest
    tried = 0
    for size in range(1, len(needed)):
        for few in itertools.combinations(constraints, size):
            if set(few) <= set(needed):
                continue  # all of the set are needed for its conflict
            if tried == TRIALS:
                return needed, False
            tried += 1
            if fails(few):
                return list(few), True
    return needed, True
