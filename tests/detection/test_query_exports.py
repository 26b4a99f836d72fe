"""Detectors with queries as their packages' exporters write them; weights are random.

In tests/data/exports: transformers' DETR, YOLOS, RT-DETR and D-FINE by the TorchScript exporter,
its conditional DETR, deformable DETR and RT-DETRv2 by the dynamo exporter; Ultralytics' RT-DETR.
"""

from __future__ import annotations

import pytest

from edgekit.detection.query import recognise_query
from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.network.loading.load import canonical
from edgekit_device.detection.head import QueryHead
from tests.exports import load

#: Family, function of the scores, whether boxes are before a sigmoid, size, and what is kept.
EXPORTS = {
    "rtdetr-l": ("RT-DETR", "sigmoid", True, 640, 300),
    "hf_yolos_tiny": ("DETR", "softmax", True, 512, 0),
    "hf_rtdetrv2_r50": ("RT-DETR", "sigmoid", True, 640, 0),
    "hf_dfine": ("D-FINE", "sigmoid", False, 640, 0),
    "hf_detr_resnet50": ("DETR", "softmax", True, 800, 0),
    "hf_conditional_detr": ("conditional DETR", "sigmoid", True, 640, 0),
    "hf_deformable_detr": ("conditional DETR", "sigmoid", True, 640, 0),
    "hf_rtdetr_r50": ("RT-DETR", "sigmoid", True, 640, 0),
}


def answer(name: str) -> Recognised | Unlike:
    return recognise_query(canonical(load(name), None), {})


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_recognised_and_decoded(name: str) -> None:
    found = recognise(canonical(load(name), None))
    assert isinstance(found, Recognised), found
    family, scores, sigmoid, size, most = EXPORTS[name]
    part = found.head.query
    assert found.head.family == family
    assert part == QueryHead(*found.head.outputs, scores, sigmoid, (size, size), most)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("yolo11n", "not [batch, queries, 4]"),
        ("yolov10n", "not [batch, queries, 4]"),
        ("retinaface_resnet50", "not centres and sizes"),
        ("ssd300_vgg16", "not centres and sizes"),
        ("lstm", "no two outputs are [batch, queries, classes]"),
    ],
)
def test_another_export_is_refused(name: str, words: str) -> None:
    found = answer(name)
    assert isinstance(found, Unlike)
    assert words in found.differs
