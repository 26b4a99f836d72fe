"""Heads with offsets from prior boxes: SSD, RetinaNet, RetinaFace.

For a prior (centre, size) and its offsets, the box's centre is ``centre + offset * variance *
size``, its size ``size * exp(offset * variance)``, and a landmark ``centre + offset * variance *
size`` with the variances of the centre.
"""

from __future__ import annotations

from typing import Dict, List, Mapping

from edgekit_device.detection.arrays import float32, namespace, rows, sigmoid, softmax
from edgekit_device.detection.head import PriorHead, PriorLevel
from edgekit_device.detection.results import Array, Candidates


def decode(part: PriorHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns the network's decoded tensors, with a row per prior.

    These are ``offsets`` and ``boxes`` (left, top, right, bottom in the priors' unit)
    [batch, priors, 4]; ``logits`` and ``scores`` [batch, priors, classes]; for landmarks
    ``landmark_offsets`` and ``landmarks`` [batch, priors, 2 * landmarks].
    """
    levels = part.levels
    xp = namespace(maps[levels[0].boxes])
    offsets = xp.concatenate([rows(float32(maps[level.boxes]), 4) for level in levels], axis=1)
    logits = xp.concatenate(
        [_values(level, float32(maps[level.scores])) for level in levels], axis=1
    )
    priors = _priors(part, maps)
    found = {
        "offsets": offsets,
        "logits": logits,
        "boxes": _boxes(part, priors, offsets),
        "scores": softmax(logits, -1) if part.scores == "softmax" else sigmoid(logits),
    }
    if levels[0].landmarks:
        moves = [_values(level, float32(maps[level.landmarks])) for level in levels]
        found["landmark_offsets"] = xp.concatenate(moves, axis=1)
        offsets = found["landmark_offsets"]
        points = offsets.reshape(*offsets.shape[:2], -1, 2)
        moved = points * xp.asarray(part.variances[:2], dtype=xp.float32)
        places = priors[:, None, :2] + moved * priors[:, None, 2:]
        found["landmarks"] = places.reshape(offsets.shape)
    return found


def _values(level: PriorLevel, value: Array) -> Array:
    return rows(value, value.shape[1] // len(level.priors))


def _boxes(part: PriorHead, priors: Array, offsets: Array) -> Array:
    xp = namespace(offsets)
    moved = offsets * xp.asarray(part.variances, dtype=xp.float32)
    centre = priors[:, :2] + moved[..., :2] * priors[:, 2:]
    # bounded as in the network, so that exp cannot overflow
    growth = xp.minimum(moved[..., 2:], part.growth) if part.growth else moved[..., 2:]
    half = priors[:, 2:] * xp.exp(growth) / 2
    found = xp.concatenate((centre - half, centre + half), axis=-1)
    if part.clip[0]:
        found = xp.minimum(xp.maximum(found, 0), xp.asarray(part.clip * 2, dtype=xp.float32))
    return found


def _priors(part: PriorHead, maps: Mapping[str, Array]) -> Array:
    """Returns centre and size of each prior [priors, 4], by row, column and prior of a place."""
    xp = namespace(maps[part.levels[0].boxes])
    found = []
    for level in part.levels:
        height, width = maps[level.boxes].shape[2:]
        moves = xp.zeros((height, width, 1, 4), dtype=xp.float32)
        moves[..., 0] = (xp.arange(width) * level.step[0])[None, :, None]
        moves[..., 1] = (xp.arange(height) * level.step[1])[:, None, None]
        found.append((moves + xp.asarray(level.priors, dtype=xp.float32)).reshape(-1, 4))
    return xp.concatenate(found)


def candidates(part: PriorHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns the boxes of each frame, without the background, and the landmarks."""
    xp = namespace(tensors["boxes"])
    # the pair twice: x, y of both corners
    corners = tensors["boxes"] * xp.asarray(part.scale * 2, dtype=xp.float32)
    # softmax's first class is the background
    first = 1 if part.scores == "softmax" else 0
    found = []
    for frame, frame_boxes in enumerate(corners):
        points = None
        if "landmarks" in tensors:
            points = tensors["landmarks"][frame].reshape(len(frame_boxes), -1, 2)
            points = points * xp.asarray(part.scale, dtype=xp.float32)
        found.append(Candidates(frame_boxes, tensors["scores"][frame][:, first:], points))
    return found
