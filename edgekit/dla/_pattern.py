"""Zeros in weights, counted block by block so that large weights stay on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pattern_share"]

_BLOCK = 1 << 22


def pattern_share(weights: NDArray[np.generic], zeros: int, of: int) -> float:
    """Returns the part of the groups of ``of`` along axis 1 with at least ``zeros`` zeros.

    Args:
        weights: (output maps, input channels of a group, kernel...); may be a memory map.
        zeros: Zeros that a group needs.
        of: Values in a group; a last group that is not full is filled up with zeros.
    """
    maps, channels = weights.shape[:2]
    kernel = weights.size // max(maps * channels, 1)
    step = max(1, _BLOCK // max(channels * kernel, 1))
    good = total = 0
    for first in range(0, maps, step):
        block = np.asarray(weights[first : first + step])
        filled = np.zeros((len(block), -(-channels // of) * of, kernel), bool)
        filled[:, :channels] = block.reshape(len(block), channels, kernel) != 0
        used = filled.reshape(len(block), -1, of, kernel).sum(axis=2)
        good += int(np.count_nonzero(used <= of - zeros))
        total += used.size
    return good / total if total else 1.0
