"""Pictures with labelled boxes: COCO's JSON, or Ultralytics' folders with a text file per picture.

Sources: cocodataset.org/#format-data (object detection), docs.ultralytics.com/datasets/detect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ValidationError

from edgekit.detection.files import read_class_names
from edgekit.detection.precision import Truth
from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit.quantize.data.lists import images_at, is_list

_MOST_BYTES = 1 << 30
_BOX = 5  # a class and four numbers; a polygon has more
_HINT = (
    "COCO's JSON, Ultralytics' data.yaml with val, or a folder with images/ and labels/ (a text "
    "file a picture, with a class and centre, width and height from 0 to 1 on each line)"
)


@dataclass(frozen=True, eq=False)
class LabelledPicture:
    """A picture and its boxes.

    Attributes:
        file: The picture.
        boxes: [n, 4]: left, top, right, bottom.
        classes: [n].
        crowd: [n] of bool.
        relative: True if boxes are in shares of the picture's sides; in pixels otherwise.
    """

    file: Path
    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray
    relative: bool

    def truth(self, height: int, width: int) -> Truth:
        """Returns the labels of a picture of this size, in pixels."""
        scale = [width, height, width, height] if self.relative else [1.0] * 4
        return Truth(self.boxes * scale, self.classes, self.crowd)


class _Picture(BaseModel):
    id: int | str
    file_name: str


class _Annotation(BaseModel):
    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0


class _Category(BaseModel):
    id: int
    name: str = ""


class _Coco(BaseModel):
    images: list[_Picture]
    annotations: list[_Annotation]
    categories: list[_Category]


def read_labels(
    path: Path, classes: Sequence[str], *, keypoints: bool = False
) -> list[LabelledPicture]:
    """Returns labelled pictures.

    Args:
        path: COCO's JSON, a data.yaml, or a folder.
        classes: The network's class names; COCO's categories, and a data.yaml's names, are matched
            by name. Empty: numbers are used unchanged, COCO's in their order.
        keypoints: True if keypoints follow a box on a line; otherwise a polygon does.

    Raises:
        DataError: "data.labels"; "data.list" or "head.classes" of a data.yaml.
    """
    if path.is_dir():
        found = _read_label_files(path, images_at(path), None, keypoints)
    elif is_list(path):
        numbers = _class_numbers(path, read_class_names(path), classes)
        found = _read_label_files(path, images_at(path, ("val",)), numbers, keypoints)
    else:
        found = _read_coco(path, classes)
    if not any(len(item.classes) for item in found):
        raise _labels_error(path, "no picture has a labelled object")
    most = len(classes) or 1 << 30
    for item in found:
        if len(item.classes) and not 0 <= item.classes.min() <= item.classes.max() < most:
            raise _labels_error(
                item.file, f"there is no class {item.classes.max()} (the network has {most})"
            )
    return found


def _read_coco(path: Path, classes: Sequence[str]) -> list[LabelledPicture]:
    try:
        coco = _Coco.model_validate_json(read_file(path, _MOST_BYTES))
    except OSError as error:
        raise _labels_error(path, f"cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise _labels_error(path, f"is not COCO's JSON: {at} {first['msg']}") from error
    # COCO's ids have gaps: 80 categories have ids from 1 to 90
    order = sorted(coco.categories, key=lambda category: category.id)
    named = [category.name for category in order]
    numbers = _class_numbers(path, named, classes)
    kinds = {category.id: number for category, number in zip(order, numbers, strict=True)}
    rows: dict[int | str, list[_Annotation]] = {image.id: [] for image in coco.images}
    for annotation in coco.annotations:
        if annotation.image_id not in rows or annotation.category_id not in kinds:
            raise _labels_error(
                path,
                f"an annotation names image {annotation.image_id}, category "
                f"{annotation.category_id}, and the file lacks the image or the category",
            )
        rows[annotation.image_id].append(annotation)
    # annotations/instances_val2017.json is beside val2017/
    split = path.stem.rpartition("_")[2]
    folders = [
        path.parent,
        path.parent / "images",
        path.parent.parent / split,
        path.parent.parent / "images" / split,
        path.parent.parent / "images",
    ]
    found = []
    for picture in coco.images:
        file = next(
            (place for folder in folders if (place := folder / picture.file_name).is_file()), None
        )
        if file is None:
            raise _labels_error(path, f"its picture {picture.file_name!r} is not there")
        boxes = np.array([row.bbox for row in rows[picture.id]]).reshape(-1, 4)
        # COCO's bbox is left, top, width and height
        boxes[:, 2:] += boxes[:, :2]
        found.append(
            LabelledPicture(
                file,
                boxes,
                np.array([kinds[row.category_id] for row in rows[picture.id]], np.int64),
                np.array([bool(row.iscrowd) for row in rows[picture.id]], bool),
                relative=False,
            )
        )
    return found


def _class_numbers(path: Path, named: Sequence[str], classes: Sequence[str]) -> list[int]:
    """Returns the network's number of each class of the labels."""
    if not classes or list(named) == list(classes):
        return list(range(len(named)))
    missing = [name for name in named if name not in classes]
    if missing:
        raise _labels_error(path, f"the network has no class {missing[0]!r}")
    return [list(classes).index(name) for name in named]


def _read_label_files(
    path: Path, files: Sequence[Path], numbers: Sequence[int] | None, keypoints: bool
) -> list[LabelledPicture]:
    if not files:
        raise _labels_error(path, "has no pictures")
    labels = [_label_file(file) for file in files]
    if not any(label.is_file() for label in labels):
        raise _labels_error(path, f"has no labels, such as {labels[0]}")
    found = []
    for file, own in zip(files, labels, strict=True):
        # as in Ultralytics, a picture without the file has no objects
        lines = read_file(own, _MOST_BYTES).decode("utf-8", "replace") if own.is_file() else ""
        rows = [_row(own, line, keypoints) for line in lines.splitlines() if line.strip()]
        kinds = np.array([kind for kind, _ in rows], np.int64)
        if numbers is not None and len(kinds):
            if kinds.max() >= len(numbers):
                raise _labels_error(own, f"there is no class {kinds.max()} in {path.name}")
            kinds = np.array(numbers)[kinds]
        found.append(
            LabelledPicture(
                file,
                np.array([box for _, box in rows]).reshape(-1, 4),
                kinds,
                np.zeros(len(rows), bool),
                relative=True,
            )
        )
    return found


def _label_file(file: Path) -> Path:
    """Returns a picture's label file: "labels" replaces the last folder "images" of its path."""
    parts = list(file.parts)
    for number in range(len(parts) - 2, -1, -1):
        if parts[number] == "images":
            parts[number] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def _row(path: Path, line: str, keypoints: bool) -> tuple[int, list[float]]:
    try:
        kind, *values = map(float, line.split())
    except ValueError as error:
        raise _labels_error(path, f"{line[:60]!r} is no class with numbers") from error
    finite = bool(np.isfinite([kind, *values]).all())
    sound = finite and len(values) >= _BOX - 1 and kind == int(kind) >= 0
    polygon = len(values) >= _BOX and not keypoints
    if not sound or (polygon and len(values) % 2):
        raise _labels_error(path, f"{line[:60]!r} is no class with a box or a polygon")
    if polygon:
        across, down = values[::2], values[1::2]
        return int(kind), [min(across), min(down), max(across), max(down)]
    x, y, wide, high = values[:4]
    return int(kind), [x - wide / 2, y - high / 2, x + wide / 2, y + high / 2]


def _labels_error(path: Path, text: str) -> DataError:
    return DataError(
        f"the labelled pictures do not fit: {text}",
        code="data.labels",
        where=str(path),
        hint=_HINT,
    )
