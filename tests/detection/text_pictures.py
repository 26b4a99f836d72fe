"""Pictures with text that the tests render: lines, and pages with lines at known places."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

__all__ = ["line", "page", "sentences"]

_WORDS = [
    "board", "engine", "layer", "tensor", "loadable", "memory", "power", "Orin", "Xavier", "stride",
    "anchor", "batch", "Deep", "camera", "Frame", "latency", "queue", "matrix", "kernel", "picture",
    "Width", "height", "region", "cut", "Plan", "segment",
]  # fmt: skip
#: Width over height of a line at most: that of the recogniser's input, 320 by 48.
_WIDEST = 6.5


def sentences(count: int, seed: int) -> list[str]:
    """Returns texts of a few words and numbers."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        parts = [
            str(random.integers(10, 9999) if random.random() < 0.3 else random.choice(_WORDS))
            for _ in range(random.integers(1, 4))
        ]
        found.append(" ".join(parts))
    return found


def line(text: str, seed: int) -> np.ndarray:
    """Returns a picture [height, width, 3] of one line, dark on light or the other way round."""
    random = np.random.default_rng(seed)
    font = ImageFont.load_default(int(random.integers(22, 44)))
    left, top, right, bottom = font.getbbox(text)
    border = int(random.integers(3, 8))
    height = int(bottom - top) + 2 * border
    # a narrow picture keeps its shape: it is not squeezed into the recogniser's width
    width = max(int(right - left) + 2 * border, height)
    if width > _WIDEST * height:
        height = int(np.ceil(width / _WIDEST))
    picture = Image.new("RGB", (width, height), _colour(random, 200, 256))
    place = (border - left, (height - (bottom - top)) / 2 - top)
    ImageDraw.Draw(picture).text(place, text, _colour(random, 0, 90), font)
    values = np.asarray(picture)
    return 255 - values if random.random() < 0.3 else values


def page(size: tuple[int, int], seed: int) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Returns a picture [height, width, 3] with lines of text, and their boxes.

    Args:
        size: Height and width.
        seed: Of texts, sizes and places.
    """
    random = np.random.default_rng(seed)
    height, width = size
    picture = Image.new("RGB", (width, height), _colour(random, 200, 256))
    draw = ImageDraw.Draw(picture)
    boxes = []
    y = int(random.integers(10, 40))
    while True:
        font = ImageFont.load_default(int(random.integers(18, 40)))
        text = sentences(1, int(random.integers(1 << 30)))[0]
        x = int(random.integers(10, width // 3))
        box = draw.textbbox((x, y), text, font)
        if box[3] > height - 10:
            return np.asarray(picture), boxes
        if box[2] < width - 10:
            draw.text((x, y), text, _colour(random, 0, 90), font)
            boxes.append(tuple(map(float, box)))
        y = int(box[3]) + int(random.integers(14, 40))


def _colour(random: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(map(int, random.integers(low, high, 3)))
