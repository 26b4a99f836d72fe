"""Boxes relative to anchors: YOLOv5's and v7's heads.

A centre is at most one place and a half from the place's corner, a size at most four times the
anchor's. A score is the probability of any object times the class's.
"""

from __future__ import annotations

from typing import Dict, List, Mapping

from edgekit_device.detection.arrays import float32, namespace, sigmoid
from edgekit_device.detection.head import AnchorHead
from edgekit_device.detection.results import Array, Candidates

_BOX = 5  # x, y, width, height, any object


def decode(part: AnchorHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns "output" [batch, places, 5 + classes + masks] (centre, size, probabilities, mask
    coefficients) and "prototypes". Places are ordered by level, anchor, row and column.
    """
    levels = [
        _level(part, level.stride, anchors, float32(maps[level.boxes]))
        for level, anchors in zip(part.levels, part.anchors)  # noqa: B905 (Python 3.8)
    ]
    found = {"output": namespace(levels[0]).concatenate(levels, axis=1)}
    if part.prototypes:
        found["prototypes"] = float32(maps[part.prototypes])
    return found


def candidates(part: AnchorHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns the boxes of each frame."""
    output = tensors["output"]
    xp = namespace(output)
    centre, half = output[:, :, :2], output[:, :, 2:4] / 2
    boxes = xp.concatenate([centre - half, centre + half], axis=2)
    end = output.shape[2] - part.masks
    return [
        Candidates(
            boxes[frame],
            output[frame, :, 4:_BOX] * output[frame, :, _BOX:end],
            output[frame, :, end:] if part.masks else None,
            tensors["prototypes"][frame] if part.masks else None,
            part.prototype_stride,
        )
        for frame in range(len(output))
    ]


def _level(part: AnchorHead, stride: int, anchors: object, raw: Array) -> Array:
    """Returns the part of "output" that is computed from one map."""
    xp = namespace(raw)
    sizes = xp.asarray(anchors, dtype=xp.float32)
    batch, channels, height, width = raw.shape
    count = len(sizes)
    values = raw.reshape(batch, count, channels // count, height, width).transpose(0, 1, 3, 4, 2)
    end = values.shape[4] - part.masks
    shares = sigmoid(values[..., :end])
    x = xp.arange(width, dtype=xp.float32)[None, :].repeat(height, axis=0)
    y = xp.arange(height, dtype=xp.float32)[:, None].repeat(width, axis=1)
    joined = xp.concatenate(
        [
            (shares[..., :2] * 2 - 0.5 + xp.stack([x, y], axis=2)) * stride,
            (shares[..., 2:4] * 2) ** 2 * sizes[:, None, None, :],
            shares[..., 4:],
            values[..., end:],
        ],
        axis=4,
    )
    return joined.reshape(batch, -1, channels // count)
