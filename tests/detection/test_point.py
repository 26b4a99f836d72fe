"""YOLOX (the package pixeltable-yolox): recognised by structure, decoded as it decodes itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.detection.recognise import disagreement, recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.head import PointHead
from edgekit_device.protocol.detection import Options
from tests import exports
from tests.detection.prior_models import found, model, overlapping, own, reference, saved, spread
from tests.detection.prior_networks import FOLDER

NETWORKS = ["yolox", "yolox_decoded"]


def part(recognised: Recognised) -> PointHead:
    assert recognised.head.point is not None
    return recognised.head.point


@pytest.mark.parametrize("name", NETWORKS)
def test_levels_and_strides(name: str, tmp_path: Path) -> None:
    recognised = found(model(name, tmp_path))
    assert recognised.head.family == "YOLOX"
    assert [level.stride for level in part(recognised).levels] == [8, 16, 32]
    assert part(recognised).decoded == (name == "yolox_decoded")
    assert bool(recognised.head.assumed) == (name == "yolox")


@pytest.mark.parametrize("name", NETWORKS)
def test_decoding_is_the_networks_own_element_by_element(name: str, tmp_path: Path) -> None:
    network = model(name, tmp_path)
    head = found(network).head
    (output,) = network.graph.outputs
    values = own(spread(network, head), [*head.outputs, output])
    ours, theirs = decode(head, values)["output"], values[output]
    assert ours.shape == theirs.shape == (2, 126, 9)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    assert theirs[..., 4:].std() > 0.1


def in_pixels(output: np.ndarray) -> np.ndarray:
    """Corners of the rows that YOLOX leaves in places, as its own ``demo_postprocess`` adds the
    grid: input 64x96.
    """
    grids, strides = [], []
    for stride in (8, 16, 32):
        for y in range(64 // stride):
            grids += [(x, y) for x in range(96 // stride)]
            strides += [stride] * (96 // stride)
    step = np.array(strides, np.float32)[:, None]
    centre = (output[..., :2] + np.array(grids, np.float32)) * step
    half = np.exp(output[..., 2:4]) * step / 2
    return np.concatenate((centre - half, centre + half), axis=-1)


def test_objects_are_those_of_a_plain_suppression(tmp_path: Path) -> None:
    network = model("yolox", tmp_path)
    head = found(network).head
    network = spread(network, head)
    (output,) = network.graph.outputs
    values = own(network, [*head.outputs, output])
    frames = detect(head, values, Options(score=0.2, iou=0.45, most=10_000))
    assert len(frames) == 2
    for rows, objects in zip(values[output], frames, strict=True):
        boxes, scores = in_pixels(rows), rows[:, 4:5] * rows[:, 5:]
        kept = reference(boxes, scores, 0.2, 0.45)
        assert len(kept) >= 50
        assert overlapping({at: boxes[row] for at, (row, _) in enumerate(kept)}) >= 50
        np.testing.assert_allclose(
            [one.box for one in objects], [boxes[row] for row, _ in kept], rtol=1e-4, atol=1e-3
        )
        assert [one.number for one in objects] == [number for _, number in kept]
        np.testing.assert_allclose(
            [one.score for one in objects], [scores[at] for at in kept], rtol=1e-5
        )


@pytest.mark.parametrize("wrong", ["stride", "decoded", "order of levels"])
def test_the_proof_finds_a_wrong_head(wrong: str, tmp_path: Path) -> None:
    network = model("yolox_decoded", tmp_path)
    recognised = found(network)
    point = part(recognised)
    first = point.levels[0]
    changed = {
        "stride": {"levels": (replace(first, stride=16), *point.levels[1:])},
        "decoded": {"decoded": False},
        "order of levels": {"levels": point.levels[::-1]},
    }[wrong]
    mutated = replace(recognised, head=replace(recognised.head, point=replace(point, **changed)))
    assert "edgekit's decoding" in disagreement(network, mutated)


def test_a_level_without_a_sigmoid_is_refused(tmp_path: Path) -> None:
    proto = exports.load("yolox", FOLDER)
    last = [
        node
        for node in proto.graph.node
        if node.op_type == "Concat" and node.attribute[0].i == 1 and len(node.input) == 3
    ][-1]
    sigmoid = next(node for node in proto.graph.node if last.input[2] in node.output)
    sigmoid.op_type = "HardSigmoid"
    refused = recognise(saved(proto, tmp_path))
    assert isinstance(refused, Unlike)
    assert refused.family.startswith("YOLOX")
    assert "to [batch, places, 5 + classes]" in refused.differs
