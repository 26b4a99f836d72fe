"""PaddleOCR's trained networks in INT8, from rapidocr-onnxruntime, on rendered text that they were
not calibrated on: with the accuracy gate on boxes, INT8 finds what FP32 finds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import edgekit
import edgekit_device
from edgekit.network.loading.load import load
from edgekit.network.session import session
from edgekit_device.detection.detect import detect
from edgekit_device.detection.nms import overlaps
from tests.detection.test_text_packages import package
from tests.detection.text_pictures import line, page, sentences

pytestmark = pytest.mark.whole

HELD_OUT = 10_000  # seeds of texts that were not calibrated on
LINES, PAGES = 110, 8


def model_of(folder: Path, name: str, shape: list[int], data: np.ndarray) -> tuple[Any, Any]:
    """Returns the loaded INT8 bundle, and a function of an input to FP32's objects."""
    file = package() / f"models/ch_PP-OCRv4_{name}_infer.onnx"
    np.save(folder / "data.npy", data)
    (folder / "c.yaml").write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "name": name,
                "target": "jetson-agx-orin-64gb",
                "precision": "int8",
                "model": {"onnx": str(file), "shapes": {"x": shape}, "head": "auto"},
                "calibration": {"data": "data.npy", "count": len(data)},
                "accuracy": {"metric": "boxes", "min": 0.95},
            }
        )
    )
    edgekit.bundle(folder / "c.yaml", out=folder / "out", full=folder / "full.ekb")
    model = edgekit_device.load(folder / "full.ekb", trust_unsigned=True)
    head = model.head
    assert head is not None
    runs = session(load(file, shapes={"x": shape}, outputs=list(head.outputs)))

    def fp32(x: np.ndarray) -> Any:
        raw = runs.run(None, {"x": x})
        return detect(head, dict(zip(head.outputs, raw, strict=True)))[0]

    return model, fp32


def pages(count: int, first: int) -> np.ndarray:
    prepare = pytest.importorskip("rapidocr_onnxruntime.ch_ppocr_det.utils").DetPreProcess(640)
    return np.concatenate([prepare(page((640, 640), first + i)[0]) for i in range(count)])


def lines(count: int, seed: int) -> np.ndarray:
    module = pytest.importorskip("rapidocr_onnxruntime.ch_ppocr_rec.text_recognize")
    normalised = module.TextRecognizer.resize_norm_img

    class Shape:
        rec_image_shape = (3, 48, 320)

    pictures = (line(text, seed + i) for i, text in enumerate(sentences(count, seed)))
    return np.stack([normalised(Shape, one, 320 / 48) for one in pictures])


def test_the_detector_finds_the_same_regions(tmp_path: Path) -> None:
    package()
    model, fp32 = model_of(tmp_path, "det", [1, 3, 640, 640], pages(8, 0))
    found = 0
    for x in pages(PAGES, HELD_OUT):
        (objects,) = model.detect({"x": x[None]})
        expected = fp32(x[None])
        assert len(objects) == len(expected)
        boxes = np.array([one.box for one in objects])
        best = [overlaps(np.array(one.box), boxes).max() for one in expected]
        assert min(best) > 0.75
        found += len(best)
    assert found > 50


def test_the_recogniser_reads_the_same_strings(tmp_path: Path) -> None:
    """The gate keeps some 160 of 413 layers in FP16, and takes some ten minutes for it."""
    package()
    model, fp32 = model_of(tmp_path, "rec", [1, 3, 48, 320], lines(40, 0))
    same = sum(
        [one.text for one in model.detect({"x": x[None]})[0]] == [one.text for one in fp32(x[None])]
        for x in lines(LINES, HELD_OUT)
    )
    assert same >= 100
