"""Decodes a class and a box for each query: DETR, conditional DETR, RT-DETR and D-FINE.

A query is at most one object, so there is no suppression. With softmax scores a query has its best
class only; with sigmoid scores any number of classes, as in the networks' own post-processing.
"""

from __future__ import annotations

from typing import Dict, List, Mapping

from edgekit_device.detection.arrays import namespace, sigmoid, softmax
from edgekit_device.detection.head import QueryHead
from edgekit_device.detection.results import Array, Candidates


def decode(part: QueryHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns the network's own values.

    Returns:
        "logits" and "scores" [batch, queries, classes], "boxes" [batch, queries, 4] (centre and
        size, 0 to 1) and, if the network keeps its best only, "best" [batch, ``part.most``]: the
        scores that it keeps, in descending order.
    """
    logits, boxes = maps[part.logits], maps[part.boxes]
    scores = softmax(logits, -1) if part.scores == "softmax" else sigmoid(logits)
    found = {
        "logits": logits,
        "scores": scores,
        "boxes": sigmoid(boxes) if part.sigmoid_boxes else boxes,
    }
    if part.most:
        flat = scores.reshape(len(scores), -1)
        found["best"] = -namespace(flat).sort(-flat, axis=1)[:, : part.most]
    return found


def candidates(part: QueryHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns the queries of each frame, with boxes in pixels of the network's input."""
    scores, boxes = tensors["scores"], tensors["boxes"]
    xp = namespace(scores)
    if part.scores == "softmax":
        # the last class is no object
        scores = scores[..., :-1]
        kept = xp.arange(scores.shape[-1]) == scores.argmax(-1)[..., None]
    elif part.most:
        # the smallest score that the network keeps; equal scores are kept
        kept = scores >= tensors["best"][:, -1, None, None]
    else:
        kept = xp.ones(scores.shape, bool)
    scores = xp.where(kept, scores, 0)
    height, width = part.size
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    corners = xp.concatenate([centre - half, centre + half], -1)
    corners = corners * xp.asarray([width, height, width, height], corners.dtype)
    return [
        Candidates(frame, score, suppress=False)
        for frame, score in zip(corners, scores)  # noqa: B905 (Python 3.8)
    ]
