"""Calibration images by a data.yaml of Ultralytics: folders, lists of files, what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.errors import DataError
from edgekit.pipeline.steps.calibrate import inputs_identity
from edgekit.quantize.data.lists import images_at
from tests.detection.networks import BOARD, colour_detector


def pictures(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        codes = np.random.default_rng(number).integers(0, 256, (16, 24, 3), np.uint8)
        Image.fromarray(codes).save(folder / name)
    return folder


def names(path: Path) -> list[str]:
    return [one.relative_to(path.parent).as_posix() for one in images_at(path)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path: set\ntrain: images/train\nval: images/val\n", ["set/images/train/a.png"]),
        ("path: set\nval: images/val\n", ["set/images/val/b.png", "set/images/val/c.png"]),
        (
            "path: set\ntrain: [images/train, images/val]\n",
            ["set/images/train/a.png", "set/images/val/b.png", "set/images/val/c.png"],
        ),
        ("path: set\ntrain: train.txt\n", ["set/images/train/a.png", "set/images/val/c.png"]),
        # Ultralytics looks for the path in a folder of its own, and Roboflow's exports are one
        # folder off
        ("path: coco8\ntrain: set/images/train\n", ["set/images/train/a.png"]),
        ("train: ../set/images/train\n", ["set/images/train/a.png"]),
    ],
)
def test_images_are_those_that_the_file_names(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    pictures(tmp_path / "set/images/train", "a.png")
    pictures(tmp_path / "set/images/val", "b.png", "c.png")
    (tmp_path / "set/train.txt").write_text("./images/train/a.png\n\nimages/val/c.png\n")
    (tmp_path / "data.yaml").write_text(text)
    assert names(tmp_path / "data.yaml") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("names: [a]\n", "names no images"),
        ("- a\n", "no mapping"),
        ("train: {", "no YAML"),
        ("train: nowhere\n", "no images are at train: nowhere"),
        ("train: list.txt\n", "no images are at train: list.txt"),
    ],
)
def test_a_wrong_list_is_one_error(tmp_path: Path, text: str | None, words: str) -> None:
    model, _ = colour_detector(tmp_path)
    (tmp_path / "list.txt").write_text("\n")
    if text is not None:
        (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=words) as refused:
        edgekit.calibrate(model, target=BOARD, calibration={"data": str(tmp_path / "data.yaml")})
    assert refused.value.code == "data.list"
    assert refused.value.where == str(tmp_path / "data.yaml")


def test_a_detector_is_calibrated_on_its_training_images_by_ultralytics_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    model, head = colour_detector(tmp_path)
    pictures(tmp_path / "set/images/train", "a.png", "b.png")
    (tmp_path / "data.yaml").write_text("path: set\ntrain: images/train\nnames: [red, blue]\n")
    options = {
        "target": BOARD,
        "model": {"head": str(head)},
        "calibration": {"data": str(tmp_path / "data.yaml")},
    }
    found = edgekit.calibrate(model, **options)
    assert "2 inputs of" in found.data
    assert any("letterbox" in one for one in found.notes)
    # another image is noticed
    with edgekit.api.open_pipeline(model, options) as pipeline:
        before = inputs_identity(pipeline.context)
    pictures(tmp_path / "set/images/train", "c.png")
    with edgekit.api.open_pipeline(model, options) as pipeline:
        assert inputs_identity(pipeline.context) != before
