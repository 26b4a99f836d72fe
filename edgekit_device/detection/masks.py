"""Masks of objects: coefficients times prototypes, above one half after the sigmoid."""

from __future__ import annotations

import math
from typing import Tuple

from edgekit_device.detection.arrays import namespace
from edgekit_device.detection.results import Array


def mask(
    coefficients: Array, prototypes: Array, box: Tuple[float, float, float, float], stride: int
) -> Array:
    """Returns the object's pixels of the input: [height, width] of bool.

    Values between the prototypes' places are interpolated linearly, as by PyTorch's
    ``interpolate(mode="bilinear", align_corners=False)``; only pixels in the box are computed.

    Args:
        coefficients: [masks].
        prototypes: [masks, height, width].
        box: Left, top, right, bottom, in pixels of the input; no pixel outside is the object's.
        stride: Pixels of the input for a place of the prototypes.
    """
    xp = namespace(prototypes)
    height, width = prototypes.shape[1] * stride, prototypes.shape[2] * stride
    pixels = xp.zeros((height, width), dtype=bool)
    left, right = _pixel_range(box[0], box[2], width)
    top, bottom = _pixel_range(box[1], box[3], height)
    if left < right and top < bottom:
        logits = xp.tensordot(coefficients, prototypes, axes=1)
        rows = _interpolate(logits, top, bottom, stride)
        # the sigmoid is above one half if its argument is above 0
        pixels[top:bottom, left:right] = _interpolate(rows.T, left, right, stride).T > 0
    return pixels


def _pixel_range(first: float, last: float, size: int) -> Tuple[int, int]:
    """Returns the first pixel of a range and the pixel after its last: pixels with
    first <= pixel < last. A NaN counts as 0.
    """
    ends = [math.ceil(min(float(size), max(0.0, edge))) for edge in (first, last)]
    return ends[0], ends[1]


def _interpolate(values: Array, first: int, last: int, stride: int) -> Array:
    """Returns the values at pixels ``first`` to ``last`` along the first axis."""
    xp = namespace(values)
    end = values.shape[0] - 1
    at = (xp.arange(first, last, dtype=xp.float32) + 0.5) / stride - 0.5
    at = xp.clip(at, 0, end)
    before = xp.floor(at).astype(xp.int64)
    after = xp.minimum(before + 1, end)
    share = (at - before)[:, None].astype(xp.float32)
    return values[before] * (1 - share) + values[after] * share
