"""Average precision of a detector by COCO's evaluation.

Source: pycocotools, PythonAPI/pycocotools/cocoeval.py (github.com/cocodataset/cocoapi): ten
thresholds of intersection over union, 101 points of recall, the best 100 objects of each picture
and class, regions of crowds ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit_device.detection.nms import area, shared_area
from edgekit_device.detection.results import Found

#: Thresholds of intersection over union.
THRESHOLDS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_MOST = 100


@dataclass(frozen=True, eq=False)
class Truth:
    """The labelled objects of a picture.

    Attributes:
        boxes: [n, 4]: left, top, right, bottom, in the same pixels as the found objects.
        classes: [n].
        crowd: [n] of bool: a box of many objects, which counts neither as found nor as missed.
    """

    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray


@dataclass(frozen=True)
class Precision:
    """Mean average precision over the classes with labelled objects.

    Attributes:
        map50: At an intersection over union of 0.5, 0 to 1.
        map50_95: The mean over 0.5, 0.55, ... 0.95.
        objects: Number of labelled objects, without crowds.
    """

    map50: float
    map50_95: float
    objects: int


def mean_precision(truths: Sequence[Truth], found: Sequence[Sequence[Found]]) -> Precision:
    """Returns the mean average precision of the objects found on pictures.

    Args:
        truths: Labelled objects by picture.
        found: Found objects by picture, including those with low scores.
    """
    classes = sorted({int(number) for truth in truths for number in truth.classes[~truth.crowd]})
    by_class = [
        _precision(
            [_of_class(truth, kind) for truth in truths],
            [_best_of_class(objects, kind) for objects in found],
        )
        for kind in classes
    ]
    values = np.array(by_class) if by_class else np.zeros((1, len(THRESHOLDS)))
    objects = sum(int((~truth.crowd).sum()) for truth in truths)
    return Precision(float(values[:, 0].mean()), float(values.mean()), objects)


def _of_class(truth: Truth, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns boxes and crowds of a class."""
    mine = truth.classes == kind
    return truth.boxes[mine], truth.crowd[mine]


def _best_of_class(found: Sequence[Found], kind: int) -> list[Found]:
    """Returns the objects of a class with the highest scores, at most ``_MOST``."""
    return sorted((each for each in found if each.number == kind), key=lambda each: -each.score)[
        :_MOST
    ]


def _precision(
    truths: Sequence[tuple[np.ndarray, np.ndarray]], found: Sequence[Sequence[Found]]
) -> np.ndarray:
    """Returns the average precision of a class at each threshold."""
    matches = [
        _match(boxes, crowd, np.array([each.box for each in its]).reshape(-1, 4))
        for (boxes, crowd), its in zip(truths, found, strict=True)
    ]
    right = np.concatenate([hits for hits, _ in matches], axis=1)
    ignored = np.concatenate([skipped for _, skipped in matches], axis=1)
    scores = np.array([each.score for its in found for each in its])
    # cocoeval's mergesort is stable, too: objects of equal scores keep their order
    order = np.argsort(-scores, kind="stable")
    wanted = sum(int((~crowd).sum()) for _, crowd in truths)
    result = []
    for hit, left_out in zip(right[:, order], ignored[:, order], strict=True):
        hits = np.cumsum(hit & ~left_out)
        misses = np.cumsum(~hit & ~left_out)
        recall = hits / wanted
        precision = hits / np.maximum(hits + misses, 1)
        # the best precision at this or a higher recall
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        places = np.searchsorted(recall, _RECALLS, side="left")
        reached = places < len(precision)
        result.append(float(precision[places[reached]].sum()) / len(_RECALLS))
    return np.array(result)


def _match(
    truths: np.ndarray, crowd: np.ndarray, boxes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns two masks by threshold over the boxes, the best first: matched and ignored."""
    right = np.zeros((len(THRESHOLDS), len(boxes)), bool)
    ignored = np.zeros_like(right)
    if not len(truths):
        return right, ignored
    overlaps = _overlaps(boxes, truths, crowd)
    taken = np.zeros((len(THRESHOLDS), len(truths)), bool)
    for number, row in enumerate(overlaps):
        near = row >= THRESHOLDS[:, None] - 1e-10
        own = np.where(near & ~taken & ~crowd, row, -1.0)
        best = own.argmax(axis=1)
        matched = own[np.arange(len(THRESHOLDS)), best] >= 0
        taken[np.flatnonzero(matched), best[matched]] = True
        right[:, number] = matched
        ignored[:, number] = ~matched & (near & crowd).any(axis=1)
    return right, ignored


def _overlaps(boxes: np.ndarray, truths: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """Returns intersection over union [boxes, truths]; for a crowd over the area of the box."""
    mine = boxes[:, None]
    shared = shared_area(mine, truths)
    whole = np.where(crowd, area(mine), area(mine) + area(truths) - shared)
    overlaps: np.ndarray = shared / np.maximum(whole, 1e-12)
    return overlaps
