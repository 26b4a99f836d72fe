"""PaddleOCR's DB detector: quadrilaterals from a map, and its head recognised by structure.

The networks are rebuilt; ``test_text_packages.py`` has PaddleOCR's own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.detection.recognise import disagreement, recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.text_map import recognise_text_map
from edgekit.network.loading.load import load
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.head import Head, TextMapHead
from edgekit_device.detection.results import Found
from edgekit_device.detection.text_map import regions
from edgekit_device.protocol.detection import Options
from tests.detection.text_nets import loaded, text_detector
from tests.exports import load as load_export

HEAD = Head("DB", ("map",), text_map=TextMapHead("map", sigmoid=False))


def rectangle(
    shape: tuple[int, int], centre: tuple[float, float], size: tuple[float, float], angle: float
) -> np.ndarray:
    """Returns which pixels lie in a rectangle; width, height and angle in degrees."""
    y, x = np.indices(shape).astype(float)
    turn = np.deg2rad(angle)
    along = (x - centre[0]) * np.cos(turn) + (y - centre[1]) * np.sin(turn)
    across = (y - centre[1]) * np.cos(turn) - (x - centre[0]) * np.sin(turn)
    return (np.abs(along) <= size[0] / 2) & (np.abs(across) <= size[1] / 2)


def corners(
    centre: tuple[float, float], size: tuple[float, float], angle: float, ratio: float
) -> np.ndarray:
    """Returns the corners of a rectangle that grows by area * ratio / perimeter."""
    width, height = size
    by = width * height * ratio / (2 * (width + height))
    turn = np.deg2rad(angle)
    along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return (
        np.array(centre)
        + signs[:, :1] * (width / 2 + by) * along
        + signs[:, 1:] * (height / 2 + by) * across
    )


def found_in(value: np.ndarray, head: Head = HEAD, **options: float) -> list[list[Found]]:
    return detect(head, {"map": value.astype(np.float32)}, Options(**options))


@pytest.mark.parametrize("angle", [0.0, 7.0, -20.0, 38.0])
@pytest.mark.parametrize("ratio", [1.5, 2.0])
def test_a_rectangle_is_found_and_grown_by_its_area_over_its_perimeter(
    angle: float, ratio: float
) -> None:
    centre, size = (150.0, 120.0), (100.0, 24.0)
    value = np.where(rectangle((240, 320), centre, size, angle), 0.8, 0.1)[None, None]
    head = replace(HEAD, text_map=TextMapHead("map", sigmoid=False, grow=ratio))
    ((one,),) = found_in(value, head)
    wanted = corners(centre, size, angle, ratio)
    # a pixel is inside or not: the sides lie within one
    assert np.abs(np.array(one.points) - wanted).max() < 1.6
    assert one.score == pytest.approx(0.8)
    assert one.box == pytest.approx(
        (*np.min(one.points, axis=0).tolist(), *np.max(one.points, axis=0).tolist())
    )


def test_frames_of_a_batch_have_their_own_texts_the_surest_first() -> None:
    value = np.full((3, 1, 96, 160), 0.05)
    value[0, 0, 10:22, 20:90] = 0.6
    value[0, 0, 50:64, 30:140] = 0.9
    value[2, 0, 40:60, 5:50] = 0.7
    first, none, last = found_in(value)
    assert [one.score for one in first] == pytest.approx([0.9, 0.6])
    assert none == []
    assert [one.score for one in last] == pytest.approx([0.7])
    # points are pixels' centres: 30 to 139 and 50 to 63
    assert np.array(first[0].points) == pytest.approx(
        corners((84.5, 56.5), (109, 13), 0, 1.5), abs=1e-3
    )
    assert [one.score for one in found_in(value, score=0.65)[0]] == pytest.approx([0.9])


def test_what_touches_at_a_corner_is_one_text_and_what_is_thin_is_none() -> None:
    value = np.zeros((1, 1, 64, 64))
    value[0, 0, 10:20, 10:20] = value[0, 0, 20:30, 20:30] = 1
    value[0, 0, 50:53, 5:60] = 1  # two pixels between the centres of its sides
    ((one,),) = found_in(value)
    assert one.points[0] < (20, 20)
    assert one.points[2] > (20, 20)
    value[0, 0, 53, 5:60] = 1
    assert len(found_in(value)[0]) == 2


def test_corners_stay_in_the_picture_and_begin_at_its_top_left() -> None:
    value = np.zeros((1, 1, 40, 80))
    value[0, 0, :20, :70] = 1
    ((one,),) = found_in(value)
    assert one.points[0] == (0, 0)
    assert one.points[1][0] == 80
    (x, y) = zip(*one.points, strict=True)
    assert sum(a * d - b * c for a, b, c, d in zip(x, x[1:], y, y[1:], strict=False)) > 0


@pytest.mark.parametrize("share", [0.2, 0.4, 0.5, 0.6, 0.9])
def test_regions_are_those_of_a_flood_fill(share: float) -> None:
    mask = np.random.default_rng(3).random((37, 53)) < share
    wanted = np.zeros(mask.shape, int)
    count = 0
    for start in zip(*np.nonzero(mask), strict=True):
        if wanted[start]:
            continue
        count += 1
        left = [start]
        while left:
            y, x = left.pop()
            if 0 <= y < 37 and 0 <= x < 53 and mask[y, x] and not wanted[y, x]:
                wanted[y, x] = count
                left += [(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    rows, first, last, region = regions(mask)
    painted = np.zeros(mask.shape, int)
    for row, begin, end, number in zip(rows, first, last, region, strict=True):
        painted[row, begin : end + 1] = number + 1
    assert (painted > 0).tolist() == mask.tolist()
    assert len({*zip(painted.ravel(), wanted.ravel(), strict=True)} - {(0, 0)}) == count
    assert painted.max(initial=0) == count


@pytest.mark.parametrize(("batch", "size"), [(1, (64, 96)), (2, (32, 64))])
def test_a_detector_is_recognised_and_its_raw_map_decoded(
    batch: int, size: tuple[int, int]
) -> None:
    model = loaded(text_detector(batch=batch, size=size))
    found = recognise(model)
    assert isinstance(found, Recognised)
    assert found.head.text_map is not None
    assert found.head.outputs == (model.graph.producer(model.graph.outputs[0]).inputs[0],)
    assert list(found.own.values()) == list(model.graph.outputs)
    raw = np.random.default_rng(0).normal(0, 3, (batch, 1, *size)).astype(np.float32)
    (ours,) = decode(found.head, {found.head.outputs[0]: raw}).values()
    assert ours == pytest.approx(1 / (1 + np.exp(-raw)), rel=1e-6)
    # without the sigmoid it is another network's head
    wrong = replace(found.head, text_map=replace(found.head.text_map, sigmoid=False))
    assert disagreement(model, replace(found, head=wrong))


def test_paddleocrs_own_graph_is_recognised(tmp_path: Path) -> None:
    onnx.save(load_export("ppocr_v4_detection"), tmp_path / "m.onnx")
    found = recognise(load(tmp_path / "m.onnx"))
    assert isinstance(found, Recognised)
    assert found.head.outputs == ("p2o.Add.281",)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("logits", "is not of a Sigmoid, but Add 'Add."),
        ("mask", "DB's last transposed convolution of stride 2 is missing: there is Resize '"),
        ("one", "DB's first transposed convolution of stride 2 is missing: there is Resize '"),
        ("plain", "DB joins the maps of a pyramid, here is Conv 'Conv.0'"),
        ("classes", "is [1, 3, 64, 96], DB's map is [1, 1, 64, 96]"),
    ],
)
def test_another_map_is_not_taken_for_a_detectors(end: str, words: str) -> None:
    found = recognise_text_map(loaded(text_detector(end=end)), {})
    assert isinstance(found, Unlike)
    assert found.family == "DB (PaddleOCR's text detector)"
    assert words in found.differs
