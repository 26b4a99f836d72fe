"""Distances from each place to the four sides of a box: YOLOv8, v9, v10, 11, 12 and 26.

A place's centre is half a place from its corner. A distance, in places, is the mean of a
distribution over ``bins`` (Generalized Focal Loss, https://arxiv.org/abs/2006.04388), or is the
map's own value. A keypoint is, in places, ``reach`` times the map's value from the place's
centre, minus (``reach`` - 1) / 2.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from edgekit_device.detection.arrays import float32, namespace, sigmoid
from edgekit_device.detection.head import DistanceHead
from edgekit_device.detection.results import Array, Candidates


def decode(part: DistanceHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns "boxes" [batch, 4, places], "scores" [batch, classes, places], "extra" (keypoints in
    pixels or mask coefficients) and "prototypes".
    """
    raw = [float32(maps[level.boxes]) for level in part.levels]
    xp = namespace(raw[0])
    centres, strides = _places(part, raw)
    values = xp.concatenate([_flatten(raw_map) for raw_map in raw], axis=2)
    if part.levels[0].scores:
        scores = [_flatten(float32(maps[level.scores])) for level in part.levels]
        logits = xp.concatenate(scores, axis=2)
    else:
        # one map per level: the boxes' channels come before the classes'
        values, logits = values[:, : 4 * part.bins], values[:, 4 * part.bins :]
    found = {"boxes": _boxes(part, values, centres) * strides, "scores": sigmoid(logits)}
    if part.levels[0].extra:
        extra = [_flatten(float32(maps[level.extra])) for level in part.levels]
        found["extra"] = xp.concatenate(extra, axis=2)
    if part.keypoints:
        raw = found["extra"]
        points = raw.reshape(raw.shape[0], part.keypoints, part.keypoint_size, -1)
        places = (points[:, :, :2] * part.reach + (centres - (part.reach - 1) / 2)) * strides
        joined = xp.concatenate([places, sigmoid(points[:, :, 2:])], axis=2)
        found["extra"] = joined.reshape(raw.shape)
    if part.prototypes:
        found["prototypes"] = float32(maps[part.prototypes])
    return found


def candidates(part: DistanceHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns the boxes of each frame; a network's top-k boxes are not suppressed."""
    boxes = tensors["boxes"]
    xp = namespace(boxes)
    if not part.corners:
        centre, half = boxes[:, :2], boxes[:, 2:] / 2
        boxes = xp.concatenate([centre - half, centre + half], axis=1)
    extra = tensors.get("extra")
    if extra is not None:
        extra = extra.transpose(0, 2, 1)
        if part.keypoints:
            extra = extra.reshape(len(extra), -1, part.keypoints, part.keypoint_size)
    return [
        Candidates(
            boxes[frame].T,
            tensors["scores"][frame].T,
            None if extra is None else extra[frame],
            tensors["prototypes"][frame] if part.prototypes else None,
            part.prototype_stride,
            suppress=not part.most,
            most=part.most,
        )
        for frame in range(len(boxes))
    ]


def _flatten(value: Array) -> Array:
    return value.reshape(value.shape[0], value.shape[1], -1)


def _places(part: DistanceHead, maps: List[Array]) -> Tuple[Array, Array]:
    """Returns x and y of the places' centres [2, places], in places, and their strides."""
    xp = namespace(maps[0])
    centres, strides = [], []
    for level, level_map in zip(part.levels, maps):  # noqa: B905 (Python 3.8)
        height, width = level_map.shape[2:]
        x = xp.arange(width, dtype=xp.float32) + 0.5
        y = xp.arange(height, dtype=xp.float32) + 0.5
        centres.append(xp.stack([xp.tile(x, height), xp.repeat(y, width)]))
        strides.append(xp.full(height * width, level.stride, dtype=xp.float32))
    return xp.concatenate(centres, axis=1), xp.concatenate(strides)


def _boxes(part: DistanceHead, values: Array, centres: Array) -> Array:
    xp = namespace(values)
    if part.bins > 1:
        batch, _, places = values.shape
        values = values.reshape(batch, 4, part.bins, places)
        # minus the largest, so that exp cannot overflow; the quotient is the same
        shares = xp.exp(values - values.max(axis=2, keepdims=True))
        numbers = xp.arange(part.bins, dtype=xp.float32)
        # the sum of the shares, and of the bins' numbers weighted by shares, in one product
        sums = xp.matmul(xp.stack([xp.ones_like(numbers), numbers]), shares)
        values = sums[:, :, 1] / sums[:, :, 0]
    first, last = centres - values[:, :2], centres + values[:, 2:]
    if part.corners:
        return xp.concatenate([first, last], axis=1)
    return xp.concatenate([(first + last) / 2, last - first], axis=1)
