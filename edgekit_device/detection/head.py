"""The document of a head: decoding of a network's raw maps to boxes, keypoints, masks or text."""

from __future__ import annotations

from typing import Optional, Tuple

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    fail,
    flag,
    integer,
    long_text,
    member,
    number,
    record,
    records,
    text,
)

SCHEMA = "edgekit.head/1"
#: The members of ``Head`` that exclude each other: a head has exactly one of these.
KINDS = ("distance", "anchor", "point", "prior", "query", "text_map", "text_line")

_STEP = integer(1, 1 << 16)
_VALUE = number(-1e30, 1e30)
_PAIR = array(_VALUE, 2, 2)


@document(frozen=True)
class Level:
    """The raw maps of one scale, each [batch, channels, height, width].

    Attributes:
        stride: Pixels of the input for a place of the maps.
        boxes: The tensor with the boxes' values; the only map if a level has a single map.
        scores: The tensor with the classes' values; "" if ``boxes`` has them too.
        objectness: The tensor with the probability of any object; "" without.
        extra: The tensor with mask coefficients or keypoints; "" without.
    """

    stride: int = member(_STEP)
    boxes: str = member(text())
    scores: str = member(text(), absent="")
    objectness: str = member(text(), absent="")
    extra: str = member(text(), absent="")


@document(frozen=True)
class DistanceHead:
    """Distances from each place to the four sides: YOLOv8, v9, v10, 11, 12 and 26.

    Attributes:
        levels: From fine to coarse.
        bins: Bins of a distance's distribution; 1: the map has the distance itself.
        most: Boxes that the network's own output keeps, its classes' best first; 0: it keeps all
            places and leaves the suppression to its user.
        keypoints: Number of keypoints; 0 without.
        keypoint_size: Values of a keypoint: x, y and, if 3, the visibility.
        reach: Distance in places of a keypoint with value 1: 2, or 1 for YOLO26.
        prototypes: The tensor [batch, masks, height, width] that mask coefficients multiply; ""
            without.
        prototype_stride: Pixels of the input for a place of the prototypes; 0 without.
        corners: True if the network's own boxes are left, top, right, bottom; False if they are
            a centre and a size.
    """

    levels: Tuple[Level, ...] = member(records(Level, 1))
    bins: int = member(integer(1, 64))
    most: int = member(fields.count, absent=0)
    keypoints: int = member(fields.count, absent=0)
    keypoint_size: int = member(integer(0, 3), absent=0)
    reach: float = member(fields.figure, absent=2.0)
    prototypes: str = member(text(), absent="")
    prototype_stride: int = member(fields.count, absent=0)
    corners: bool = member(flag, absent=False)


@document(frozen=True)
class AnchorHead:
    """Boxes relative to anchors on a grid: YOLOv5 and v7.

    Attributes:
        levels: From fine to coarse; each map has anchors * (5 + classes + masks) channels.
        anchors: Width and height in pixels of the input, by level.
        masks: Number of mask coefficients; 0 without.
        prototypes: As of ``DistanceHead``.
        prototype_stride: As of ``DistanceHead``.
    """

    levels: Tuple[Level, ...] = member(records(Level, 1))
    anchors: Tuple[Tuple[Tuple[float, ...], ...], ...] = member(array(array(_PAIR, 1), 1))
    masks: int = member(fields.count, absent=0)
    prototypes: str = member(text(), absent="")
    prototype_stride: int = member(fields.count, absent=0)


@document(frozen=True)
class PointHead:
    """A centre and a size for each place of a grid: YOLOX.

    Attributes:
        levels: From fine to coarse; each has the maps of boxes (4 channels), of the objectness
            (1) and of the scores.
        decoded: True if the network's own output is in pixels; False if its user adds the grid.
    """

    levels: Tuple[Level, ...] = member(records(Level, 1))
    decoded: bool = member(flag)


@document(frozen=True)
class PriorLevel:
    """The raw maps of one scale, each [batch, priors * values, height, width], and its priors.

    Priors are in the network's own unit: pixels of the picture, or parts of its width and height.

    Attributes:
        boxes: The tensor with four offsets per prior.
        scores: The tensor with the classes' values.
        landmarks: The tensor with the offsets of x and y of each landmark; "" without.
        priors: Centre x, centre y, width and height of each prior of the first place.
        step: From a place to the next, along x and along y. They differ if a map's sizes
            are rounded, or the unit is a part of the picture.
    """

    boxes: str = member(text())
    scores: str = member(text())
    priors: Tuple[Tuple[float, ...], ...] = member(array(array(_VALUE, 4, 4), 1))
    step: Tuple[float, ...] = member(_PAIR)
    landmarks: str = member(text(), absent="")


@document(frozen=True)
class PriorHead:
    """Offsets from prior boxes: SSD, RetinaNet, RetinaFace.

    Attributes:
        levels: In the order of the network's own rows: from fine to coarse.
        variances: Factors of the offsets of x, y, width and height.
        scores: "softmax" (the first class is the background, and is dropped) or "sigmoid".
        scale: Factors from a box's x and y to pixels of the network's input: 1, the input's size
            if boxes are parts of that size, or another ratio if the network resizes its input.
        growth: The largest logarithm of a box's size over its prior's; 0: no limit.
        clip: Width and height to which boxes are clipped, in the priors' unit; 0: no clipping.
    """

    levels: Tuple[PriorLevel, ...] = member(records(PriorLevel, 1))
    variances: Tuple[float, ...] = member(array(_VALUE, 4, 4))
    scores: str = member(choice("softmax", "sigmoid"))
    scale: Tuple[float, ...] = member(_PAIR)
    growth: float = member(fields.figure, absent=0.0)
    clip: Tuple[float, ...] = member(_PAIR, absent=(0.0, 0.0))


@document(frozen=True)
class QueryHead:
    """A class and a box for each query: DETR and RT-DETR, without suppression.

    Attributes:
        logits: The tensor [batch, queries, classes].
        boxes: The tensor [batch, queries, 4]: centre and size, 0 to 1.
        scores: "softmax" (the last class is no object) or "sigmoid".
        sigmoid_boxes: True if ``boxes`` are before the sigmoid.
        size: Height and width of the network's input in pixels; boxes are relative to these.
        most: Pairs of a query and a class that the network's own output keeps; 0: all.
    """

    logits: str = member(text())
    boxes: str = member(text())
    scores: str = member(choice("softmax", "sigmoid"))
    sigmoid_boxes: bool = member(flag)
    size: Tuple[int, ...] = member(array(integer(1, 1 << 16), 2, 2))
    most: int = member(fields.count, absent=0)


@document(frozen=True)
class TextMapHead:
    """A probability of text for each pixel: PaddleOCR's DB detector.

    Attributes:
        map: The tensor [batch, 1, height, width], as large as the network's input.
        sigmoid: True if it is before the sigmoid.
        grow: DB's unclip ratio: a region grows by area * ratio / perimeter.
        threshold: Probability of a pixel of text.
    """

    map: str = member(text())
    sigmoid: bool = member(flag)
    grow: float = member(fields.figure, absent=1.5)
    threshold: float = member(number(0.0, 1.0), absent=0.3)


@document(frozen=True)
class TextLineHead:
    """Characters along a line, with the blank of CTC first.

    Attributes:
        rows: The tensor [batch, steps, characters + 1].
        softmax: True if ``rows`` are before the softmax.
        characters: The characters, without the blank.
        size: Height and width of the network's input, which is one line.
    """

    rows: str = member(text())
    softmax: bool = member(flag)
    characters: Tuple[str, ...] = member(array(long_text))
    size: Tuple[int, ...] = member(array(_STEP, 2, 2))


@document(frozen=True)
class Head:
    """The head of a network, which is one of the members below ``classes``.

    Attributes:
        family: Display name: "YOLOv8", "SSD".
        outputs: The raw maps that are decoded: the outputs of the cut network.
        classes: Names by class; empty if unknown.
        assumed: A sentence about values that the network's file lacks and edgekit takes from the
            published network; "" if the file has all.
    """

    family: str = member(text())
    outputs: Tuple[str, ...] = member(array(text(), 1))
    classes: Tuple[str, ...] = member(array(long_text), absent=())
    assumed: str = member(long_text, absent="")
    distance: Optional[DistanceHead] = member(record(DistanceHead), absent=None)
    anchor: Optional[AnchorHead] = member(record(AnchorHead), absent=None)
    point: Optional[PointHead] = member(record(PointHead), absent=None)
    prior: Optional[PriorHead] = member(record(PriorHead), absent=None)
    query: Optional[QueryHead] = member(record(QueryHead), absent=None)
    text_map: Optional[TextMapHead] = member(record(TextMapHead), absent=None)
    text_line: Optional[TextLineHead] = member(record(TextLineHead), absent=None)
    schema: str = member(choice(SCHEMA), default=SCHEMA)

    def check(self) -> None:
        """Refuses a head without a kind, or with several."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            fail("outputs", "give one of {}".format(", ".join(KINDS)))
