"""INT8 that keeps detections: the trained detector of examples/detection against FP32 and against
labels, on pictures that it was calibrated on and on others.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.errors import ConfigError, DataError, EdgekitError, GateError, UsageError
from edgekit.network.loading.load import load
from edgekit.network.session import session
from edgekit_device import Found
from edgekit_device.detection.matching import Boxes, count_common
from edgekit_device.detection.nms import suppress
from edgekit_device.protocol.detection import Options
from tests.detection.shapes import TRAINED, configuration, scenes

HELD_OUT = 40


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scenes to calibrate on, and others."""
    folder = tmp_path_factory.mktemp("shapes")
    scenes().write(folder / "cal", 16)
    scenes().write(folder / "val", HELD_OUT, first=5000)
    return folder


@pytest.fixture
def desk(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder; its tests share a cache, so that one finds what another has built."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(written / "cache"))
    return written


def share(note: str) -> float:
    found = re.search(r"boxes (\d\.\d+)", note)
    assert found is not None, note
    return float(found[1])


def box(left: float, score: float = 0.9, number: int = 0, text: str = "") -> Found:
    return Found((left, 0.0, left + 10.0, 10.0), score, number, text=text)


@pytest.mark.parametrize(
    ("expected", "found", "matched"),
    [
        ([box(0)], [box(3)], 1),  # 7 of 13
        ([box(0)], [box(4)], 0),  # 6 of 14
        ([box(0)], [box(0, number=1)], 0),
        ([box(0, text="a")], [box(0, text="b")], 0),
        # each object is matched once, by the best score
        ([box(0)], [box(0), box(0, score=0.5)], 1),
        ([box(0), box(2)], [box(0), box(0.5, score=0.8)], 2),
        # the best takes what it overlaps most, also where another one has no other
        ([box(0), box(2)], [box(1.5), box(2.5, score=0.8)], 2),
        ([], [box(0)], 0),
    ],
)
def test_objects_in_common(expected: list[Found], found: list[Found], matched: int) -> None:
    assert count_common(expected, found) == matched


def test_the_share_counts_lost_and_new_objects_alike() -> None:
    boxes = Boxes(Options(score=0.5))
    assert boxes.result().share == 1.0
    # one is below the least score
    boxes.add([[box(0), box(50), box(90, score=0.4)]], [[box(1), box(70), box(71, score=0.3)]])
    counted = boxes.result()
    assert (counted.expected, counted.found, counted.matched) == (2, 2, 1)
    assert counted.share == 0.5
    assert str(counted) == "1 of 2 objects of FP32, and 1 others"


@pytest.mark.slow
def test_int8_keeps_the_boxes_of_pictures_that_it_was_not_calibrated_on(desk: Path) -> None:
    config = configuration(
        desk, accuracy={"metric": "boxes", "min": 0.95, "labelled": "val/data.yaml"}
    )
    built = edgekit.build(config)
    assert built.accuracy.boxes is not None
    assert built.accuracy.boxes >= 0.95
    assert f"boxes {built.accuracy.boxes:.3f}" in built.figures
    (note,) = (one for one in built.notes if "mAP50" in one)
    assert share(note) >= 0.95
    assert not any("FP16" in one for one in built.notes if one.startswith("kept"))
    figures = re.search(
        r"mAP50 (\S+) and mAP50-95 (\S+) as built, (\S+) and (\S+) in FP32.* on (\d+) objects of "
        r"(\d+) pictures of data.yaml",
        note,
    )
    assert figures is not None
    int8, int8_all, fp32, fp32_all = (float(one) for one in figures.groups()[:4])
    assert 0.85 < fp32 < 1
    assert 0.6 < fp32_all < fp32
    assert int8 == pytest.approx(fp32, abs=0.03)
    assert int8_all == pytest.approx(fp32_all, abs=0.03)
    labelled = [scenes().scene(5000 + number) for number in range(HELD_OUT)]
    assert int(figures[5]) == sum(len(one.classes) for one in labelled)
    assert int(figures[6]) == HELD_OUT


def test_fp32_is_what_the_whole_network_finds(desk: Path) -> None:
    """The objects that are compared are those of the network's own decoding."""
    from edgekit.detection.recognise import recognise
    from edgekit.detection.recognised import Recognised
    from edgekit_device.detection.detect import detect

    model = load(TRAINED)
    found = recognise(model, {})
    assert isinstance(found, Recognised)
    names = [*found.head.outputs, "output0"]
    runs = session(model, outputs=names)
    count = 0
    for seed in range(5000, 5010):
        values = dict(
            zip(
                names,
                runs.run(None, {"images": scenes().prepared(scenes().scene(seed).picture)}),
                strict=True,
            )
        )
        (ours,) = detect(found.head, values)
        (own,) = values["output0"]
        classes, places = np.nonzero(own[4:] > 0.25)
        centre, half = own[:2, places].T, own[2:4, places].T / 2
        boxes = np.concatenate([centre - half, centre + half], axis=1)
        kept = suppress(boxes, own[4:][classes, places], classes, 0.45, 300)
        assert [one.number for one in ours] == classes[kept].tolist()
        np.testing.assert_allclose([one.box for one in ours], boxes[kept], atol=1e-3)
        count += len(ours)
    assert count > 20


@pytest.mark.whole
def test_without_a_gate_a_detector_keeps_its_objects_all_the_same(desk: Path) -> None:
    lost = configuration(desk, accuracy={"scores": 1.0, "fallback": "none"})
    with pytest.raises(GateError) as caught:
        edgekit.build(lost)
    assert caught.value.code == "accuracy.below-gate"
    assert re.search(
        r"0\.9\d\d of the objects match \(\d+ of \d+ objects of FP32, and \d others\)",
        caught.value.message,
    )
    assert edgekit.build(configuration(desk, accuracy={"scores": 0.0})).accuracy.failures == ()


def test_a_build_below_the_gate_fails_in_words(desk: Path) -> None:
    gate = {"metric": "boxes", "min": 0.9999, "fallback": "none"}
    with pytest.raises(GateError) as caught:
        edgekit.build(configuration(desk, accuracy=gate))
    assert caught.value.exit_code == 1
    assert re.search(r"boxes against FP32 is 0\.9\d+, below 0\.9999", caught.value.message)
    assert caught.value.extra["accuracy"]["objects"]["expected"] > 20


@pytest.mark.whole
@pytest.mark.slow
def test_layers_in_fp16_bring_the_boxes_back_and_their_cost_is_told(desk: Path) -> None:
    config = configuration(
        desk,
        calibration={"data": "cal/images", "count": 8, "method": "minmax"},
        accuracy={"metric": "boxes", "min": 0.999, "labelled": "val/data.yaml"},
    )
    built = edgekit.build(config)
    assert built.accuracy.boxes == 1.0
    (kept,) = (one for one in built.notes if one.startswith("kept in FP16"))
    assert "(boxes of at least 0.999)" in kept
    (cost,) = (one for one in built.notes if one.startswith("Cost of the layers in FP16"))
    assert re.search(r"\(predicted\): .*(latency|energy) \S+ \S+ instead of \S+", cost)


def test_where_nothing_is_found_no_boxes_can_be_compared(desk: Path) -> None:
    config = configuration(
        desk, accuracy={"metric": "boxes", "min": 0.5}, detection={"score": 0.9999}
    )
    with pytest.raises(DataError) as caught:
        edgekit.build(config)
    assert caught.value.code == "accuracy.no-objects"
    assert "0.9999" in caught.value.message
    assert "detection.score" in caught.value.hint


@pytest.mark.parametrize(
    "accuracy", [{"metric": "boxes", "min": 1.1}, {"metric": "boxes", "min": 0.9}]
)
def test_a_gate_that_cannot_be_judged_is_refused(tmp_path: Path, accuracy: object) -> None:
    config = configuration(tmp_path, accuracy=accuracy)
    if accuracy == {"metric": "boxes", "min": 0.9}:
        document = json.loads(config.read_text())
        del document["model"]["head"]
        config.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as caught:
        edgekit.build(config)
    assert "cannot be reached" in str(caught.value) or "needs model.head" in str(caught.value)


def test_sensitivity_by_boxes_needs_a_head(desk: Path) -> None:
    config = configuration(desk, model={"onnx": str(TRAINED)})
    with pytest.raises(UsageError) as caught:
        edgekit.sensitivity(config, metric="boxes", minimum=0.9)
    assert caught.value.code == "sensitivity.metric"


def test_labels_that_do_not_fit_are_refused_before_anything_is_built(desk: Path) -> None:
    (desk / "bad.json").write_text("{}")
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(configuration(desk, accuracy={"labelled": "bad.json"}))
    assert caught.value.code == "data.labels"
    assert not caught.value.extra["steps"]


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.usefixtures("warm_boards")
def test_a_board_judges_by_boxes(desk: Path) -> None:
    def deployed(least: float) -> Path:
        health = {"samples": 6, "accuracy_min": least}
        return configuration(
            desk, accuracy={"metric": "boxes", "min": 0.9}, deploy={"health": health}
        )

    edgekit.deploy(deployed(0.9))
    (record,) = (desk / "cache" / "board").rglob("health.json")
    found = json.loads(record.read_text())["accuracy"]
    assert (found["metric"], found["samples"], found["min"]) == ("boxes", 6, 0.9)
    assert 0.9 <= found["value"] == found["boxes"] <= 1
    with pytest.raises(EdgekitError) as caught:
        edgekit.deploy(deployed(1.0))
    assert "boxes on 6 samples" in str(caught.value)
