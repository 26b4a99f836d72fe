"""Reductions of N, C, H and W as nodes that the DLA has."""

from __future__ import annotations

from edgekit.rewrite.pooling._common import Part, Reduction
from edgekit.rewrite.pooling._windows import (
    average_parts,
    maximum_parts,
    over_channels,
    sum_parts,
)

__all__ = ["greatest_parts", "mean_parts", "total_parts"]


def mean_parts(item: Reduction) -> list[Part] | None:
    """Returns what makes the mean; None where there is no such form."""
    image = average_parts(item.height, item.width, item.shape[1])
    return _parts(item, image, 1 / item.shape[1])


def total_parts(item: Reduction) -> list[Part] | None:
    """Returns what makes the sum; None where there is no such form."""
    return _parts(item, sum_parts(item.height, item.width, item.shape[1]), 1.0)


def _parts(item: Reduction, image: list[Part] | None, weight: float) -> list[Part] | None:
    ends = item.reshape()
    if not item.axes and ends:
        return ends
    if item.axes == (1,):
        image = []
    if image is None:
        return None
    channels = [over_channels(item.shape[1], weight)] if 1 in item.axes else []
    return [*image, *channels, *ends]


def greatest_parts(item: Reduction) -> list[Part] | None:
    """Returns what makes the maximum over H and W; None over C, where no pool reaches."""
    if 1 in item.axes:
        return None
    ends = item.reshape()
    if not item.axes and ends:
        return ends
    image = maximum_parts(item.height, item.width)
    return None if image is None else [*image, *ends]
