"""PaddleOCR's trained detector and recogniser, from rapidocr-onnxruntime, on rendered text: boxes
and strings are those of that package's own decoding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.network.loading.load import load
from edgekit.network.session import session
from edgekit_device.detection.detect import detect
from edgekit_device.detection.head import Head
from edgekit_device.protocol.detection import Options
from tests.detection.text_pictures import line, page, sentences

pytestmark = pytest.mark.whole

LINES = 120
#: Height, width, and by how many degrees the page is turned.
PAGES = [(640, 640, 0), (480, 640, 0), (640, 640, 8), (640, 480, -15), (320, 320, 30)]


def package() -> Path:
    """Returns the folder of the package with the models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip("rapidocr_onnxruntime", reason="needs rapidocr-onnxruntime")
    return Path(found.__file__).parent


@dataclass(frozen=True)
class Network:
    """A network that is cut at its raw maps, and the whole.

    Attributes:
        head: As recognised.
        runs: The session of the raw maps.
        own: The session of the network's own output.
    """

    head: Head
    runs: Any
    own: Any

    def raw(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(self.head.outputs, self.runs.run(None, {"x": x}), strict=True))


def network(kind: str, shape: tuple[int, ...]) -> Network:
    path = package() / f"models/ch_PP-OCRv4_{kind}_infer.onnx"
    metadata = {one.key: one.value for one in onnx.load(path).metadata_props}
    model = load(path, shapes={"x": shape})
    found = recognise(model, metadata)
    assert isinstance(found, Recognised), found
    return Network(found.head, session(model, outputs=found.head.outputs), session(model))


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Returns intersection over union of two quadrilaterals."""
    from shapely.geometry import Polygon

    first, second = Polygon(one), Polygon(other)
    shared = first.intersection(second).area
    return float(shared / (first.area + second.area - shared))


def turned_pages() -> Iterator[tuple[np.ndarray, list[tuple[float, ...]], int]]:
    for seed, (height, width, angle) in enumerate(PAGES):
        picture, boxes = page((height, width), seed)
        turned = Image.fromarray(picture).rotate(angle, Image.Resampling.BICUBIC, fillcolor="white")
        yield np.asarray(turned), boxes, angle


def smallest_rectangles(probability: np.ndarray, ratio: float) -> list[np.ndarray]:
    """Returns OpenCV's smallest rectangles around the regions, grown without rounding."""
    import cv2

    mask = (probability > 0.3).astype(np.uint8)
    found = []
    for contour in cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]:
        centre, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) >= 3:
            by = width * height * ratio / (width + height)
            box = cv2.boxPoints((centre, (width + by, height + by), angle))
            found.append(np.clip(box, 0, mask.shape[::-1]))
    return found


def test_boxes_are_opencvs_and_those_of_the_packages_own_decoding() -> None:
    package()
    from rapidocr_onnxruntime.ch_ppocr_det.utils import DBPostProcess, DetPreProcess

    # PaddleOCR's own settings, then what this package changes. It cuts points to whole pixels
    # before it grows a box: a pixel of a line 25 high.
    settings = ((1.5, False, 0.9), (1.6, True, 0.75))
    texts = 0
    for picture, rendered, angle in turned_pages():
        x = DetPreProcess(32)(picture)
        found = network("det", x.shape)
        raw = found.raw(x)
        (ours,) = detect(found.head, raw, Options(score=0.6))
        probability = found.own.run(None, {"x": x})[0]
        references = [(smallest_rectangles(probability[0, 0], 1.5), 0.999)]
        for ratio, dilation, least in settings:
            decoding = DBPostProcess(box_thresh=0.5, unclip_ratio=ratio, use_dilation=dilation)
            boxes, _ = decoding(probability, x.shape[2:])
            assert len(boxes) == len(ours)
            references.append((boxes, least))
        for theirs, least in references:
            for one in ours:
                best = max(overlap(np.array(one.points), box) for box in theirs)
                assert best > least, (angle, one, best)
        if angle == 0:
            for left, top, right, bottom in rendered:
                box = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
                assert max(overlap(np.array(one.points), box) for one in ours) > 0.5
        texts += len(ours)
    assert texts > 30


def test_strings_are_those_of_the_packages_own_recogniser() -> None:
    folder = package()
    from rapidocr_onnxruntime.ch_ppocr_rec import TextRecognizer

    texts = sentences(LINES, 1)
    pictures = [line(text, number) for number, text in enumerate(texts)]
    theirs = TextRecognizer(
        {
            "model_path": str(folder / "models/ch_PP-OCRv4_rec_infer.onnx"),
            "rec_batch_num": 6,
            "rec_img_shape": [3, 48, 320],
            "intra_op_num_threads": 1,
            "inter_op_num_threads": 1,
            "use_cuda": False,
            "use_dml": False,
        }
    )
    wanted, _ = theirs(pictures)
    found = network("rec", (6, 3, 48, 320))
    x = np.stack([theirs.resize_norm_img(one, 320 / 48) for one in pictures])
    ours = [
        one
        for begin in range(0, LINES, 6)
        for one in detect(found.head, found.raw(x[begin : begin + 6]), Options(score=0))
    ]
    assert [one[0].text for one in ours] == [text for text, _ in wanted]
    assert [one[0].score for one in ours] == pytest.approx([score for _, score in wanted], abs=1e-4)
    # it reads what was rendered, but for a space here and there
    read = [one[0].text.replace(" ", "") for one in ours]
    same = [a == b.replace(" ", "") for a, b in zip(read, texts, strict=True)]
    assert sum(same) > 0.95 * LINES
