"""The priors of published networks, for files that end with the raw maps and have no priors.

Sources: torchvision's ``models/detection`` (ssd.py, ssdlite.py, retinanet.py, anchor_utils.py,
_utils.py; BSD-3-Clause) and ``prior_box.py`` with ``config.py`` of Pytorch_Retinaface (MIT).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Priors of a place, height and width of a map.
Sizes = Sequence[tuple[int, int, int]]
_Place = tuple[tuple[tuple[float, ...], ...], tuple[float, float]]
# torchvision's BoxCoder never grows a prior to more than 1000 from 16 pixels
_GROWTH = round(math.log(1000 / 16), 7)


@dataclass(frozen=True)
class Published:
    """The priors of a network and their use; units are pixels of its picture.

    Attributes:
        name: The network.
        places: By level: the priors (centre and size) of the first place, and the step.
        variances: As of ``PriorHead``.
        scores: As of ``PriorHead``.
        growth: As of ``PriorHead``.
        clip: True if boxes are clipped to the picture.
    """

    name: str
    places: tuple[_Place, ...]
    variances: tuple[float, float, float, float]
    scores: str
    growth: float
    clip: bool


def published(
    sizes: Sizes, landmarks: int, split: bool, width: int, height: int
) -> Published | None:
    """Returns the network that has such maps; None if there is none.

    Args:
        sizes: Sizes by level.
        landmarks: Number of landmark values of a prior.
        split: True if maps are reshaped to [batch, priors, values, height, width], as in
            torchvision.
        width: Width of the picture.
        height: Height of the picture.
    """
    priors = [each for each, *_ in sizes]
    if split and not landmarks:
        if priors == [4, 6, 6, 6, 4, 4] and (width, height) == (300, 300):
            return _ssd300(sizes, width, height)
        if priors == [6] * 6 and _halved(sizes, width, height, 16):
            return _ssdlite(sizes, width, height)
        if priors == [9] * 5 and _halved(sizes, width, height, 8):
            return _retinanet(sizes, width, height)
    if priors == [2] * 3 and landmarks == 10 and _halved(sizes, width, height, 8):
        return _retinaface(sizes)
    return None


def _halved(sizes: Sizes, width: int, height: int, stride: int) -> bool:
    """Returns True if the first map fits ``stride``, and each map is half of the previous map."""
    high, wide = -(-height // stride), -(-width // stride)
    for _, *sides in sizes:
        if sides != [high, wide]:
            return False
        high, wide = -(-high // 2), -(-wide // 2)
    return True


def _ssd300(sizes: Sizes, width: int, height: int) -> Published:
    scales = (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05)
    ratios = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
    steps = tuple((float(step), float(step)) for step in (8, 16, 32, 64, 100, 300))
    return _ssd("torchvision's ssd300_vgg16", scales, ratios, steps, width, height)


def _ssdlite(sizes: Sizes, width: int, height: int) -> Published:
    scales = [*(0.2 + 0.75 * number / 5 for number in range(6)), 1.0]
    steps = [(width / wide, height / high) for _, high, wide in sizes]
    name = "torchvision's ssdlite320_mobilenet_v3_large"
    return _ssd(name, scales, [(2, 3)] * 6, steps, width, height)


def _ssd(
    name: str,
    scales: Sequence[float],
    ratios: Sequence[Sequence[int]],
    steps: Sequence[tuple[float, float]],
    width: int,
    height: int,
) -> Published:
    """Returns default boxes, page 6 of https://arxiv.org/abs/1512.02325, in torchvision's order."""
    places = []
    for number, step in enumerate(steps):
        scale = scales[number]
        between = math.sqrt(scale * scales[number + 1])
        shapes = [(scale, scale), (between, between)]
        for ratio in ratios[number]:
            long, short = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            shapes += [(long, short), (short, long)]
        priors = tuple(
            (step[0] / 2, step[1] / 2, min(wide, 1.0) * width, min(high, 1.0) * height)
            for wide, high in shapes
        )
        places.append((priors, step))
    return Published(name, tuple(places), (0.1, 0.1, 0.2, 0.2), "softmax", _GROWTH, True)


def _retinanet(sizes: Sizes, width: int, height: int) -> Published:
    places = []
    for number, (_, high, wide) in enumerate(sizes):
        least = 32 << number
        shapes = []
        for ratio in (0.5, 1.0, 2.0):
            for size in (least, int(least * 2 ** (1 / 3)), int(least * 2 ** (2 / 3))):
                # half sides are rounded, halves to even
                half = round(size / math.sqrt(ratio) / 2), round(size * math.sqrt(ratio) / 2)
                shapes.append((2.0 * half[0], 2.0 * half[1]))
        priors = tuple((0.0, 0.0, *shape) for shape in shapes)
        places.append((priors, (float(width // wide), float(height // high))))
    name = "torchvision's retinanet_resnet50_fpn"
    return Published(name, tuple(places), (1.0, 1.0, 1.0, 1.0), "sigmoid", _GROWTH, True)


def _retinaface(sizes: Sizes) -> Published:
    places = []
    for number in range(len(sizes)):
        step = 8.0 * 2**number
        shapes = (16.0 * 4**number, 32.0 * 4**number)
        places.append((tuple((step / 2, step / 2, side, side) for side in shapes), (step, step)))
    return Published("RetinaFace", tuple(places), (0.1, 0.1, 0.2, 0.2), "softmax", 0.0, False)
