"""Mean average precision against a plain implementation and COCO's own; labels of both forms."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.detection.precision import Truth, mean_precision
from edgekit.errors import DataError
from edgekit.quantize.data.labels import read_labels
from edgekit_device.detection.results import Found

SIZE = 200.0
CLASSES = 4


def scenes(seed: int, pictures: int = 30, crowds: float = 0.0) -> list[tuple[Truth, list[Found]]]:
    """Returns random pictures whose objects are found about right, twice, or not, and others."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(pictures):
        count = int(random.integers(0, 9))
        low = random.uniform(0, 150, (count, 2))
        boxes = np.concatenate([low, low + random.uniform(8, 50, (count, 2))], axis=1)
        truth = Truth(boxes, random.integers(0, CLASSES - 1, count), random.random(count) < crowds)
        objects = []
        for box, kind in zip(boxes, truth.classes, strict=True):
            for _ in range(int(random.choice([0, 1, 1, 1, 2]))):
                moved = box + random.normal(0, random.uniform(0.5, 5), 4)
                other = int(random.integers(CLASSES)) if random.random() < 0.1 else int(kind)
                objects.append(Found(tuple(moved), round(float(random.beta(4, 2)), 2), other))
        for _ in range(int(random.integers(0, 4))):
            corner = random.uniform(0, 150, 2)
            box = (*corner, *(corner + random.uniform(8, 50, 2)))
            objects.append(Found(box, round(float(random.beta(2, 4)), 2), int(random.integers(4))))
        found.append((truth, sorted(objects, key=lambda one: -one.score)))
    return found


def iou(one: tuple[float, ...], other: tuple[float, ...], crowd: bool) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(wide, 0.0) * max(high, 0.0)
    area, second = ((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other))
    return shared / (area if crowd else area + second - shared)


def plain(pictures: list[tuple[Truth, list[Found]]], least: float) -> float:
    """Average precision by its definition, one object after the other."""
    values = []
    for kind in range(CLASSES):
        marks: list[tuple[float, bool]] = []
        wanted = 0
        for truth, objects in pictures:
            own = [
                tuple(box)
                for box, k, c in zip(truth.boxes, truth.classes, truth.crowd, strict=True)
                if k == kind and not c
            ]
            crowds = [
                tuple(box)
                for box, k, c in zip(truth.boxes, truth.classes, truth.crowd, strict=True)
                if k == kind and c
            ]
            wanted += len(own)
            for one in [o for o in objects if o.number == kind][:100]:
                fits = [(iou(one.box, box, False), n) for n, box in enumerate(own)]
                best = max(fits, default=(0.0, -1))
                if best[0] >= least:
                    own[best[1]] = (0.0, 0.0, 0.0, 0.0)
                    marks.append((one.score, True))
                elif not any(iou(one.box, box, True) >= least for box in crowds):
                    marks.append((one.score, False))
        if not wanted:
            continue
        marks.sort(key=lambda mark: -mark[0])
        points = []
        for number in range(1, len(marks) + 1):
            hits = sum(right for _, right in marks[:number])
            points.append((hits / wanted, hits / number))
        values.append(
            sum(
                max((p for recall, p in points if recall >= step), default=0.0)
                for step in np.linspace(0, 1, 101)  # rounded as COCO rounds them
            )
            / 101
        )
    return sum(values) / len(values)


@pytest.mark.parametrize("crowds", [0.0, 0.2])
def test_it_is_the_definition(crowds: float) -> None:
    pictures = scenes(3, crowds=crowds)
    found = mean_precision(*zip(*pictures, strict=True))
    assert 0.2 < found.map50_95 < found.map50 < 0.95
    assert found.map50 == pytest.approx(plain(pictures, 0.5), abs=1e-9)
    thresholds = [0.5 + 0.05 * step for step in range(10)]
    mean = sum(plain(pictures, one) for one in thresholds) / 10
    assert found.map50_95 == pytest.approx(mean, abs=1e-9)
    assert found.objects == sum(int((~truth.crowd).sum()) for truth, _ in pictures)


@pytest.mark.parametrize("crowds", [0.0, 0.2])
def test_it_is_cocos_own(crowds: float) -> None:
    coco_module = pytest.importorskip("pycocotools.coco", reason="needs pycocotools")
    from pycocotools.cocoeval import COCOeval

    pictures = scenes(5, crowds=crowds)
    document, answers = coco_document(pictures)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco_module.COCO()
        truth.dataset = document
        truth.createIndex()
        judged = COCOeval(truth, truth.loadRes(answers), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    found = mean_precision(*zip(*pictures, strict=True))
    assert found.map50_95 == pytest.approx(judged.stats[0], abs=1e-6)
    assert found.map50 == pytest.approx(judged.stats[1], abs=1e-6)


def coco_document(
    pictures: list[tuple[Truth, list[Found]]],
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """COCO's labels and results; category ids are not the classes' numbers."""

    def shape(box: tuple[float, ...]) -> list[float]:
        return [float(v) for v in (box[0], box[1], box[2] - box[0], box[3] - box[1])]

    labels = [
        {
            "id": number * 100 + n + 1,
            "image_id": number,
            "category_id": 10 + 3 * int(kind),
            "bbox": shape(tuple(box)),
            "iscrowd": int(crowd),
            "area": float((box[2] - box[0]) * (box[3] - box[1])),
        }
        for number, (truth, _) in enumerate(pictures)
        for n, (box, kind, crowd) in enumerate(
            zip(truth.boxes, truth.classes, truth.crowd, strict=True)
        )
    ]
    answers: list[dict[str, object]] = [
        {
            "image_id": number,
            "category_id": 10 + 3 * one.number,
            "bbox": shape(one.box),
            "score": one.score,
        }
        for number, (_, objects) in enumerate(pictures)
        for one in objects
    ]
    document = {
        "info": {},
        "images": [
            {"id": number, "file_name": f"{number}.png", "width": SIZE, "height": SIZE}
            for number in range(len(pictures))
        ],
        "annotations": labels,
        "categories": [{"id": 10 + 3 * kind, "name": f"kind{kind}"} for kind in range(CLASSES)],
    }
    return document, answers


def test_right_boxes_have_a_precision_of_one_and_none_of_zero() -> None:
    box = np.array([[10.0, 10.0, 50.0, 40.0]])
    truth = Truth(box, np.array([2]), np.array([False]))
    exact = mean_precision([truth], [[Found((10.0, 10.0, 50.0, 40.0), 0.4, 2)]])
    assert (exact.map50, exact.map50_95) == pytest.approx((1.0, 1.0))
    assert mean_precision([truth], [[]]).map50 == 0.0
    # another class, and the same object twice
    assert mean_precision([truth], [[Found((10.0, 10.0, 50.0, 40.0), 0.4, 1)]]).map50 == 0.0
    twice = [Found((10.0, 10.0, 50.0, 40.0), score, 2) for score in (0.9, 0.8)]
    assert mean_precision([truth], [twice]).map50 == pytest.approx(1.0)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder as Ultralytics has it: two pictures of 40x20, one without labels."""
    for folder in ("images/val", "labels/val"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a", "b"):
        Image.new("RGB", (40, 20)).save(tmp_path / f"images/val/{name}.png")
    text = "1 0.5 0.5 0.5 0.5\n\n0 0.1 0.2 0.3 0.2 0.2 0.4\n"
    (tmp_path / "labels/val/a.txt").write_text(text)
    (tmp_path / "data.yaml").write_text("path: .\nval: images/val\nnames: {0: cat, 1: dog}\n")
    return tmp_path


def test_a_text_file_a_picture_has_boxes_and_polygons(pictures: Path) -> None:
    for source in (pictures / "data.yaml", pictures):
        first, second = read_labels(source, ["cat", "dog"])
        assert (first.file.name, second.file.name, len(second.classes)) == ("a.png", "b.png", 0)
        truth = first.truth(20, 40)
        assert truth.classes.tolist() == [1, 0]
        np.testing.assert_allclose(truth.boxes, [[10, 5, 30, 15], [4, 4, 12, 8]])
    # keypoints follow a box: its first four numbers count
    (pictures / "labels/val/a.txt").write_text("0 0.5 0.5 0.2 0.2 0.1 0.1 0.9 0.9\n")
    (truth, _) = (one.truth(20, 40) for one in read_labels(pictures, ["cat"], keypoints=True))
    np.testing.assert_allclose(truth.boxes, [[16, 8, 24, 12]])


def test_names_say_which_class_is_meant(pictures: Path) -> None:
    first, _ = read_labels(pictures / "data.yaml", ["dog", "bird", "cat"])
    assert first.classes.tolist() == [0, 2]
    with pytest.raises(DataError) as caught:
        read_labels(pictures / "data.yaml", ["dog"])
    assert (caught.value.code, caught.value.where) == ("data.labels", str(pictures / "data.yaml"))
    assert "no class 'cat'" in caught.value.message


def test_cocos_labels_are_pixels_and_its_categories_have_any_numbers(pictures: Path) -> None:
    folder = pictures / "annotations"
    folder.mkdir()
    (pictures / "val2017").symlink_to(pictures / "images/val")
    document = {
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
        "annotations": [
            {"image_id": 9, "category_id": 18, "bbox": [4, 2, 10, 6], "iscrowd": 1},
            {"image_id": 9, "category_id": 17, "bbox": [0, 0, 5, 5]},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}],
    }
    file = folder / "instances_val2017.json"
    file.write_text(json.dumps(document))
    first, second = read_labels(file, ["cat", "dog"])
    assert (len(first.classes), second.file.name) == (0, "b.png")
    truth = second.truth(20, 40)
    assert (truth.classes.tolist(), truth.crowd.tolist()) == ([1, 0], [True, False])
    np.testing.assert_allclose(truth.boxes, [[4, 2, 14, 8], [0, 0, 5, 5]])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("labels/val/a.txt", "0 0.5 0.5 0.2\n", "is no class with a box or a polygon"),
        ("labels/val/a.txt", "cat 0.5 0.5 0.2 0.2\n", "is no class with numbers"),
        ("labels/val/a.txt", "0 0.5 0.5 0.2 nan\n", "is no class with a box or a polygon"),
        ("labels/val/a.txt", "nan 0.5 0.5 0.2 0.2\n", "is no class with a box or a polygon"),
        ("labels/val/a.txt", "0 0.1 0.1 0.2 0.2 0.3\n", "is no class with a box or a polygon"),
        ("labels/val/a.txt", "5 0.5 0.5 0.2 0.2\n", "there is no class 5"),
        ("labels/val/a.txt", "\n", "no picture has a labelled object"),
        ("labels.json", "{", "is not COCO's JSON"),
        ("labels.json", '{"images": [], "annotations": []}', "is not COCO's JSON: categories"),
        (
            "labels.json",
            '{"images": [{"id": 1, "file_name": "z.png"}], "annotations": [], "categories": []}',
            "picture 'z.png' is not there",
        ),
    ],
)
def test_labels_that_do_not_fit(pictures: Path, name: str, text: str, words: str) -> None:
    (pictures / name).write_text(text)
    source = pictures / (name if name.endswith(".json") else "data.yaml")
    with pytest.raises(DataError) as caught:
        read_labels(source, ["cat", "dog"])
    assert caught.value.code == "data.labels"
    assert words in caught.value.message
    assert "COCO" in caught.value.hint


def test_what_is_not_there(tmp_path: Path) -> None:
    for name in ("no.json", "no.yaml", "no"):
        with pytest.raises(DataError):
            read_labels(tmp_path / name, [])
    with pytest.raises(DataError, match="has no pictures"):
        read_labels(tmp_path, [])
