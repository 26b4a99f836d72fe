"""Heads with a centre and a size for each place of a grid: YOLOX.

For each place the network writes the offset of the centre from the place's corner and the logarithm
of the size, both in places: ``centre = (offset + place) * stride``, ``size = exp(value) * stride``.
"""

from __future__ import annotations

from typing import Dict, List, Mapping

from edgekit_device.detection.arrays import float32, namespace, rows, sigmoid
from edgekit_device.detection.head import PointHead
from edgekit_device.detection.results import Array, Candidates


def decode(part: PointHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns ``output`` [batch, places, 5 + classes] in the network's form: centre and size,
    objectness, scores; and ``pixels`` [batch, places, 4], centre and size in pixels.
    """
    xp = namespace(maps[part.levels[0].boxes])
    raw, pixels, scores = [], [], []
    for level in part.levels:
        boxes = float32(maps[level.boxes])
        height, width = boxes.shape[2:]
        y, x = xp.meshgrid(xp.arange(height), xp.arange(width), indexing="ij")
        grid = xp.stack((x, y), axis=-1).reshape(-1, 2).astype(xp.float32)
        raw.append(_places(boxes))
        centre = (raw[-1][..., :2] + grid) * level.stride
        pixels.append(xp.concatenate((centre, xp.exp(raw[-1][..., 2:]) * level.stride), axis=-1))
        both = [float32(maps[name]) for name in (level.objectness, level.scores)]
        scores.append(sigmoid(_places(xp.concatenate(both, axis=1))))
    boxes = xp.concatenate(pixels, axis=1)
    network_boxes = boxes if part.decoded else xp.concatenate(raw, axis=1)
    output = xp.concatenate((network_boxes, xp.concatenate(scores, axis=1)), axis=-1)
    return {"output": output, "pixels": boxes}


def _places(value: Array) -> Array:
    """Returns a map [batch, values, height, width] as [batch, height * width, values]."""
    return rows(value, value.shape[1])


def candidates(part: PointHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns the boxes of each frame; a score is the objectness times the class's."""
    boxes, output = tensors["pixels"], tensors["output"]
    xp = namespace(boxes)
    half = boxes[..., 2:] / 2
    corners = xp.concatenate((boxes[..., :2] - half, boxes[..., :2] + half), axis=-1)
    scores = output[..., 4:5] * output[..., 5:]
    return [Candidates(*frame) for frame in zip(corners, scores)]  # noqa: B905 (Python 3.8)
