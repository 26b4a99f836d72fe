"""Suppression: of boxes that overlap too much the one with the lower score goes."""

from __future__ import annotations

from typing import List

from edgekit_device.detection.arrays import namespace
from edgekit_device.detection.results import Array

MOST_CANDIDATES = 30000
"""Boxes above the least score that are looked at: the best."""


def overlaps(box: Array, boxes: Array) -> Array:
    """Returns intersection over union of a box [4] with each of [n, 4]; 0 for empty boxes."""
    xp = namespace(boxes)
    width = xp.minimum(box[2], boxes[:, 2]) - xp.maximum(box[0], boxes[:, 0])
    height = xp.minimum(box[3], boxes[:, 3]) - xp.maximum(box[1], boxes[:, 1])
    shared = xp.maximum(width, 0) * xp.maximum(height, 0)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    union = (box[2] - box[0]) * (box[3] - box[1]) + area - shared
    return xp.where(union > 0, shared / xp.where(union > 0, union, 1), 0)


def suppress(boxes: Array, scores: Array, classes: Array, iou: float, most: int) -> Array:
    """Returns the indices of the boxes that stay, the best first.

    Args:
        boxes: [n, 4]: left, top, right, bottom.
        scores: [n].
        classes: [n]: boxes of different classes do not suppress each other.
        iou: Overlap above which the lower score goes.
        most: Boxes that stay at most.
    """
    xp = namespace(boxes)
    order = xp.argsort(-scores, kind="stable")[:MOST_CANDIDATES]
    boxes, classes = boxes[order], classes[order]
    kept: List[Array] = []
    left = xp.arange(len(order))
    while len(left) and len(kept) < most:
        best = left[0]
        kept.append(best)
        rest = left[1:]
        away = (overlaps(boxes[best], boxes[rest]) > iou) & (classes[rest] == classes[best])
        left = rest[~away]
    return order[xp.asarray(kept, dtype=xp.int64)] if kept else order[:0]
