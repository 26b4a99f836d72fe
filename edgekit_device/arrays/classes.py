"""Finds the axis of the classes in an output."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple


def class_axis(shape: Sequence[int]) -> Optional[int]:
    """Returns the axis of the classes: the first after the batch with a size above 1."""
    for axis in range(1, len(shape)):
        if shape[axis] > 1:
            return axis
    return None


def class_shape(shape: Sequence[int]) -> Optional[Tuple[int, int]]:
    """Returns the batch and the number of classes of an output with a single class per input."""
    axis = class_axis(shape)
    others = [size for place, size in enumerate(shape) if place not in (0, axis)]
    if axis is None or any(size != 1 for size in others):
        return None
    return shape[0], shape[axis]
