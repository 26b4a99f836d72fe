"""Pictures with circles, squares and triangles that overlap, and their boxes.

    python shapes.py FOLDER COUNT FIRST    writes pictures, YOLO's labels and data.yaml

The pictures depend on numbers alone: the same seed gives the same picture everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CLASSES = ("circle", "square", "triangle")
#: Edge of a picture in pixels.
SIZE = 96
# of a shape, in pixels; larger pictures have more shapes of the same size
_RADIUS = (6.0, 24.0)
_CORNERS = (0, 4, 3)
# a shape hides at most so much of one below it
_HIDDEN = 0.4
_CONTRAST = 60.0
_TRIES = 30


class Scene(NamedTuple):
    """A picture and its objects.

    Attributes:
        picture: [height, width, 3], RGB.
        boxes: [objects, 4]: left, top, right, bottom in pixels.
        classes: [objects], numbers of ``CLASSES``.
    """

    picture: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]


def scene(seed: int, size: int = SIZE) -> Scene:
    """Returns the scene of a seed."""
    random = np.random.default_rng([seed, size])
    y, x = np.mgrid[:size, :size] + 0.5
    angle = random.uniform(0, 2 * np.pi)
    along = (np.cos(angle) * (x / size - 0.5) + np.sin(angle) * (y / size - 0.5) + 0.75) / 1.5
    ends = random.uniform(20, 235, (2, 3))
    picture = ends[0] + (ends[1] - ends[0]) * along[..., None]
    picture += random.normal(0, random.uniform(2, 14), picture.shape)
    # which shape is seen at a pixel (-1: none); pixels of each shape, and those that are seen
    owner = np.full((size, size), -1)
    areas: list[int] = []
    seen: list[int] = []
    boxes, classes = [], []
    count = round(random.integers(2, 7) * (size / SIZE) ** 2)
    for _ in range(_TRIES * count):
        if len(boxes) == count:
            break
        kind = int(random.integers(len(CLASSES)))
        radius = float(np.exp(random.uniform(*np.log(_RADIUS))))
        centre = random.uniform(0.6 * radius, size - 0.6 * radius, 2)
        low, high = centre - radius - 3, centre + radius + 4
        part = tuple(slice(max(0, int(low[i])), int(high[i])) for i in (1, 0))
        distance, box = _shape(kind, radius, centre, random.uniform(0, 2 * np.pi), x[part], y[part])
        inside = distance < 0
        colour = random.uniform(0, 255, 3)
        around = picture[part][np.abs(distance) < 2].mean(axis=0)
        hides = np.bincount(owner[part][inside] + 1, minlength=len(areas) + 1)[1:]
        if np.linalg.norm(colour - around) < _CONTRAST or any(
            seen[one] - hides[one] < (1 - _HIDDEN) * areas[one] for one in np.flatnonzero(hides)
        ):
            continue
        cover = np.clip(0.5 - distance, 0, 1)[..., None]
        noise = random.normal(0, random.uniform(0, 10), (*distance.shape, 3))
        picture[part] = picture[part] * (1 - cover) + (colour + noise) * cover
        owner[part][inside] = len(areas)
        seen = [rest - int(gone) for rest, gone in zip(seen, hides, strict=True)]
        areas.append(int(inside.sum()))
        seen.append(areas[-1])
        boxes.append(np.clip(box, 0, size))
        classes.append(kind)
    return Scene(
        np.clip(np.rint(picture), 0, 255).astype(np.uint8),
        np.asarray(boxes, np.float32).reshape(-1, 4),
        np.asarray(classes, np.int64),
    )


def _shape(
    kind: int,
    radius: float,
    centre: NDArray[np.float64],
    angle: float,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> tuple[NDArray[np.float64], list[float]]:
    """The distance of each pixel to the shape's edge, negative inside, and the shape's box."""
    if kind == 0:
        distance = np.hypot(x - centre[0], y - centre[1]) - radius
        return distance, [*(centre - radius), *(centre + radius)]
    corners = _CORNERS[kind]
    turns = angle + 2 * np.pi * np.arange(corners) / corners
    points = centre + radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    middles = turns + np.pi / corners
    inner = radius * np.cos(np.pi / corners)
    distance = np.max(
        [np.cos(t) * (x - centre[0]) + np.sin(t) * (y - centre[1]) - inner for t in middles], axis=0
    )
    return distance, [*points.min(axis=0), *points.max(axis=0)]


def prepared(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the network's input of a picture: [1, 3, height, width], RGB, 0 to 1."""
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None], np.float32) / np.float32(255)


def write(folder: Path, count: int, first: int = 0, size: int = SIZE) -> None:
    """Writes scenes as Ultralytics lays them out: images/, labels/ and data.yaml."""
    from PIL import Image

    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        found = scene(seed, size)
        Image.fromarray(found.picture).save(folder / f"images/{seed:05}.png")
        low, high = found.boxes[:, :2], found.boxes[:, 2:]
        rows = np.concatenate([(low + high) / 2, high - low], axis=1) / size
        lines = [
            f"{kind} " + " ".join(f"{value:.6f}" for value in row) + "\n"
            for kind, row in zip(found.classes, rows, strict=True)
        ]
        (folder / f"labels/{seed:05}.txt").write_text("".join(lines), encoding="utf-8")
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    text = f"path: .\ntrain: images\nval: images\nnames:\n{names}"
    (folder / "data.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
