"""Pictures are prepared as the networks of each kind of head were trained."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import yaml
from PIL import Image

from edgekit.config.schema import CalibrationSection
from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.network.loading.load import canonical
from edgekit.quantize.data.images import ImageOptions, Preprocess
from edgekit.quantize.data.preparation import HeadPictures, head_pictures
from tests import exports

RED, GREEN, BLUE = COLOUR = (200, 100, 50)


def imagenet(*values: int) -> list[float]:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return [(value / 255 - m) / s for value, m, s in zip(values, mean, std, strict=True)]


UNIT = [value / 255 for value in COLOUR]

# the value of a pixel, and that of the bars beside a picture that is too narrow (None: stretched)
NETWORKS = {
    "yolo11n": (UNIT, [114 / 255] * 3),
    "yolov5-anchors": (UNIT, [114 / 255] * 3),
    "ssd300_vgg16": ([RED - 123, GREEN - 117, BLUE - 104], None),
    "ssdlite320_mobilenet_v3_large": ([value / 127.5 - 1 for value in COLOUR], None),
    "retinanet_resnet50_fpn": (imagenet(*COLOUR), [0.0] * 3),
    "retinaface_resnet50": ([BLUE - 104, GREEN - 117, RED - 123], [0.0] * 3),
    "hf_detr_resnet50": (imagenet(*COLOUR), None),
    "hf_conditional_detr": (imagenet(*COLOUR), None),
    "hf_rtdetr_r50": (UNIT, None),
    "hf_dfine": (UNIT, None),
    "ppocr_v4_detection": (imagenet(BLUE, GREEN, RED), None),
}


@cache
def pictures(name: str) -> HeadPictures:
    found = recognise(canonical(exports.load(name), None))
    assert isinstance(found, Recognised)
    return head_pictures(found.head)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_pixels_are_prepared_as_in_training(name: str) -> None:
    usual = pictures(name)
    prepare = Preprocess.of(usual.options, (64, 64, 3), True, np.dtype(np.float32))
    pixels, _ = prepare(Image.new("RGB", (32, 64), COLOUR))
    inside, bars = NETWORKS[name]
    assert pixels[:, 32, 32] == pytest.approx(inside, abs=1e-5)
    # a mean colour is a whole number
    assert pixels[:, 32, 0] == pytest.approx(inside if bars is None else bars, abs=0.01)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["retinaface_resnet50", "hf_detr_resnet50", "yolo11n"])
def test_the_printed_line_gives_the_same_preparation(name: str) -> None:
    usual = pictures(name)
    section = CalibrationSection(**yaml.safe_load(usual.yaml)["calibration"])
    assert ImageOptions(**section.model_dump(include=set(usual.keys))) == usual.options
