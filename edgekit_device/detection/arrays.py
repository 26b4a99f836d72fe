"""NumPy or CuPy, by the arrays' device: decoding runs on the GPU if the maps are there."""

from __future__ import annotations

import sys
from typing import Any

from edgekit_device.detection.results import Array


def namespace(value: Array) -> Any:
    """Returns the module for arrays like ``value``: cupy or numpy."""
    # not imported: an array of CuPy exists only if its caller has imported it
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(value, cupy.ndarray):
        return cupy
    import numpy

    return numpy


def on_host(value: Array) -> Array:
    """Returns a NumPy array of the values."""
    return value.get() if namespace(value).__name__ == "cupy" else value


def float32(value: Array) -> Array:
    """Returns the values as float32, in which heads are decoded."""
    return value.astype(namespace(value).float32, copy=False)


def sigmoid(value: Array) -> Array:
    """Returns 1 / (1 + exp(-value)), without overflow, in the type of ``value``."""
    xp = namespace(value)
    # exp of numbers up to 0 only, which cannot overflow
    small = xp.exp(-xp.abs(value))
    return xp.where(value >= 0, xp.ones_like(small), small) / (1 + small)


def softmax(value: Array, axis: int) -> Array:
    """Returns exponentials of ``value`` that sum to 1 along ``axis``."""
    xp = namespace(value)
    raised = xp.exp(value - value.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


def rows(value: Array, values: int) -> Array:
    """Returns a map [batch, n * values, height, width] as [batch, height * width * n, values]."""
    batch, channels, height, width = value.shape
    split = value.reshape(batch, channels // values, values, height, width)
    return split.transpose(0, 3, 4, 1, 2).reshape(batch, -1, values)
