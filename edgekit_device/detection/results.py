"""Results of a detector: candidates of a frame, and the objects kept after suppression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

#: NumPy's array, or CuPy's if the maps are on the GPU.
Array = Any


@dataclass(frozen=True)
class Candidates:
    """The boxes of one frame before suppression; equal rows of all arrays belong together.

    Attributes:
        boxes: [n, 4]: left, top, right, bottom, in pixels of the network's input.
        scores: [n, classes], 0 to 1.
        extra: Keypoints or corners [n, points, 2 or 3] (x, y and, if 3, the visibility; in
            pixels of the input), or mask coefficients [n, masks]; None without.
        prototypes: [masks, height, width]; None without masks.
        prototype_stride: Pixels of the input for a place of the prototypes; 0 without masks.
        texts: The text of each row; empty without.
        suppress: True if overlapping boxes are one object; False for DETR and YOLOv10.
        most: Objects that the network itself keeps, the best of all classes; 0: all.
    """

    boxes: Array
    scores: Array
    extra: Optional[Array] = None
    prototypes: Optional[Array] = None
    prototype_stride: int = 0
    texts: Tuple[str, ...] = ()
    suppress: bool = True
    most: int = 0


@dataclass(frozen=True)
class Found:
    """An object.

    Attributes:
        box: Left, top, right, bottom, in pixels: of the network's input, or of the picture after
            ``letterbox.Placing.back``.
        score: 0 to 1.
        number: The class.
        name: Its name; "" if unknown.
        points: Keypoints as (x, y) or (x, y, visibility), or the corners of a text's
            quadrilateral.
        mask: [height, width] of bool over the network's input (or the picture); None without.
        text: The text, for a text recogniser.
    """

    box: Tuple[float, float, float, float]
    score: float
    number: int = 0
    name: str = ""
    points: Tuple[Tuple[float, ...], ...] = ()
    mask: Optional[Array] = None
    text: str = ""
