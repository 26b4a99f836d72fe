"""Suppression: if two boxes overlap too much, the box with the lower score is removed."""

from __future__ import annotations

from typing import List

from edgekit_device.detection.arrays import namespace, on_host
from edgekit_device.detection.results import Array

MOST_CANDIDATES = 30000
"""Boxes above the least score that are looked at: the best."""

# boxes that are compared with one another at once: the GPU waits for the CPU once per block
_BLOCK = 256


def overlaps(box: Array, boxes: Array) -> Array:
    """Returns intersection over union of a box [4] with each of [n, 4]; 0 for empty boxes. Boxes
    [m, 1, 4] are compared with all: the result is [m, n].
    """
    xp = namespace(boxes)
    common = shared_area(box, boxes)
    union = area(box) + area(boxes) - common
    # the inner ``where``: both branches are computed, and NumPy warns about 0 / 0
    return xp.where(union > 0, common / xp.where(union > 0, union, 1), 0)


def shared_area(box: Array, boxes: Array) -> Array:
    """Returns the area of the intersections; shapes are as for ``overlaps``."""
    xp = namespace(boxes)
    width = xp.minimum(box[..., 2], boxes[..., 2]) - xp.maximum(box[..., 0], boxes[..., 0])
    height = xp.minimum(box[..., 3], boxes[..., 3]) - xp.maximum(box[..., 1], boxes[..., 1])
    return xp.maximum(width, 0) * xp.maximum(height, 0)


def area(boxes: Array) -> Array:
    """Returns the areas [...] of boxes [..., 4]."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def suppress(boxes: Array, scores: Array, classes: Array, iou: float, most: int) -> Array:
    """Returns the indices of the kept boxes, the best first.

    Args:
        boxes: [n, 4]: left, top, right, bottom.
        scores: [n].
        classes: [n]: boxes of different classes do not suppress each other.
        iou: Overlap above which the box with the lower score is removed.
        most: Largest number of kept boxes.
    """
    xp = namespace(boxes)
    order = xp.argsort(-scores, kind="stable")[:MOST_CANDIDATES]
    kept = order[:0]
    # in blocks: the matrix of all pairs of 30,000 boxes would take 3.6 GB in float32
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        if len(kept):
            # only survivors are compared with one another, which is the sequential part
            block = block[~_suppression(boxes, classes, kept, block, iou).any(axis=0)]
        left = _kept_rows(
            on_host(_suppression(boxes, classes, block, block, iou)), most - len(kept)
        )
        kept = xp.concatenate([kept, block[xp.asarray(left, dtype=xp.int64)]])
        if len(kept) >= most:
            break
    return kept


def _suppression(boxes: Array, classes: Array, first: Array, second: Array, iou: float) -> Array:
    """Returns [first, second] of bool: True if a box of ``first`` suppresses one of ``second``."""
    same = classes[first][:, None] == classes[second]
    return same & (overlaps(boxes[first][:, None], boxes[second]) > iou)


def _kept_rows(above: Array, most: int) -> List[int]:
    """Returns the rows that no earlier kept row suppresses; ``above`` is [n, n]."""
    free = ~above
    alive = free[:0].all(axis=0)  # all True, from no rows
    left: List[int] = []
    for row in range(len(free)):
        if len(left) < most and alive[row]:
            left.append(row)
            alive &= free[row]
    return left
