"""Dimensions cut into smaller ones, for shapes of the same elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["cut_dimensions", "dimensions_of"]


def cut_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Cuts dimensions where another shape of the same elements has its borders.

    Dimensions of size 1 have no parts; None where a border does not divide.
    """
    borders = {math.prod(shape[index:]) for index in range(len(shape) + 1)}
    high, found = math.prod(sizes), []
    for size in sizes:
        low = high // size
        points = [high, *sorted((b for b in borders if low < b < high), reverse=True), low]
        pairs = list(pairwise(points))
        if any(above % below for above, below in pairs):
            return None
        found.append([above // below for above, below in pairs if above != below])
        high = low
    return found


def dimensions_of(sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the dimension of ``shape`` that each atom lies in."""
    found, dim, left = [], 0, shape[0] if shape else 1
    for size in sizes:
        while left == 1:
            dim += 1
            left = shape[dim]
        found.append(dim)
        left //= size
    return tuple(found)
