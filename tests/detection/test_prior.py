"""SSD, RetinaNet and RetinaFace: recognised by structure, decoded as they decode themselves.

Networks are torchvision's, or rebuilt: ``prior_networks`` tells which.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit.detection.recognise import disagreement, recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.network.session import with_outputs
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.head import PriorHead
from edgekit_device.protocol import codec
from edgekit_device.protocol.detection import Options
from tests import exports
from tests.detection.prior_models import found, model, overlapping, own, reference, saved, spread
from tests.detection.prior_networks import FOLDER

#: Family, priors of the first level's place, and its step, by network.
NETWORKS = {
    "ssd_nms": ("SSD", 4, (4.0, 4.0)),
    "ssd_decoded": ("SSD", 4, (4.0, 4.0)),
    "retinanet_nms": ("RetinaNet", 6, (4.0, 4.0)),
    "retinaface_decoded": ("RetinaFace", 2, (8 / 104, 8 / 72)),
    "retinaface_decoded_dynamo": ("RetinaFace", 2, (8 / 72, 8 / 104)),
    "ssdlite320_nms": ("SSD", 6, (16.0, 16.0)),
}
#: Of files without priors those of the published network, and the size of the last one's first.
PUBLISHED = {
    "ssd300_vgg16": ("torchvision's ssd300_vgg16", 261.0),
    "ssdlite320_mobilenet_v3_large": ("torchvision's ssdlite320_mobilenet_v3_large", 304.0),
    "retinanet_resnet50_fpn": ("torchvision's retinanet_resnet50_fpn", 724.0),
    "retinaface": ("RetinaFace", 256.0),
    "retinaface_resnet50": ("RetinaFace", 256.0),
}


def part(recognised: Recognised) -> PriorHead:
    assert recognised.head.prior is not None
    return recognised.head.prior


def changed(recognised: Recognised, **fields: object) -> Recognised:
    head = replace(recognised.head, prior=replace(part(recognised), **fields))
    return replace(recognised, head=head)


@pytest.mark.parametrize("name", NETWORKS)
def test_priors_are_those_of_the_networks_own_decoding(name: str, tmp_path: Path) -> None:
    family, priors, step = NETWORKS[name]
    recognised = found(model(name, tmp_path))
    first = part(recognised).levels[0]
    assert recognised.head.family == family
    assert len(first.priors) == priors
    assert first.step == pytest.approx(step, rel=1e-6)
    assert not recognised.head.assumed
    assert {"boxes", "scores"} <= recognised.own.keys()


@pytest.mark.parametrize("name", [*NETWORKS, "retinaface"])
def test_decoding_is_the_networks_own_element_by_element(name: str, tmp_path: Path) -> None:
    """The whole network runs, on a random picture and with last convolutions that spread."""
    network = model(name, tmp_path)
    recognised = found(network)
    # what a suppression picks has another shape than all rows: the proof compares those
    tensors = {
        ours: names[0]
        for ours, names in recognised.own.items()
        if len(names) == 1 and not (recognised.picked and ours == "boxes")
    }
    values = own(spread(network, recognised.head), [*recognised.head.outputs, *tensors.values()])
    decoded = decode(recognised.head, values)
    assert len(tensors) >= 2
    for ours, tensor in tensors.items():
        theirs = values[tensor].reshape(decoded[ours].shape)
        largest = np.abs(theirs).max()
        np.testing.assert_allclose(decoded[ours], theirs, rtol=0, atol=2e-5 * largest)
        assert theirs.std() > 0.02 * largest


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_without_priors_gets_the_published_ones(name: str, tmp_path: Path) -> None:
    network, size = PUBLISHED[name]
    recognised = found(model(name, tmp_path, zeros=True))
    assert recognised.head.assumed == f"the file has no priors: those of {network} are used"
    assert part(recognised).levels[-1].priors[0][2] == pytest.approx(size, rel=1e-6)
    assert {"offsets", "logits"} <= recognised.own.keys()


def test_published_priors_are_those_that_the_networks_decode_with(tmp_path: Path) -> None:
    """Of SSDlite there is a file with priors and one without, of RetinaFace as well."""
    measured, published = (
        part(found(model(name, tmp_path, zeros=True)))
        for name in ("ssdlite320_nms", "ssdlite320_mobilenet_v3_large")
    )
    assert published.variances == measured.variances
    assert published.clip == measured.clip
    assert published.growth == pytest.approx(measured.growth)
    for one, other in zip(measured.levels, published.levels, strict=True):
        np.testing.assert_allclose(one.priors, other.priors, rtol=1e-6)
        # a map of one place has no step
        assert one.step in (pytest.approx(other.step), (0, 0))
    measured, published = (
        part(found(model(name, tmp_path, zeros=True)))
        for name in ("retinaface_decoded", "retinaface")
    )
    pixels = np.array([104, 72, 104, 72])
    for one, other in zip(measured.levels, published.levels, strict=True):
        np.testing.assert_allclose(one.priors * pixels, other.priors, rtol=1e-6)
        np.testing.assert_allclose(one.step * pixels[:2], other.step, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "first", "bias"), [("ssd_nms", 1, 0.0), ("retinanet_nms", 0, -3.5)]
)
def test_objects_are_those_of_the_networks_own_suppression(
    name: str, first: int, bias: float, tmp_path: Path
) -> None:
    """RetinaNet's picture is resized inside: its boxes are in pixels of the input again."""
    network = model(name, tmp_path)
    head = found(network).head
    network = spread(network, head, bias)
    boxes, scores, labels = network.graph.outputs
    values = own(network, [*head.outputs, boxes, scores, labels])
    objects = detect(head, values, Options(score=0.2, iou=0.45, most=10_000))[0]
    assert len(objects) >= 50
    assert overlapping({at: np.array(one.box) for at, one in enumerate(objects)}) >= 50
    np.testing.assert_allclose([one.box for one in objects], values[boxes], atol=2e-3)
    np.testing.assert_allclose([one.score for one in objects], values[scores], rtol=1e-5)
    assert [one.number + first for one in objects] == values[labels].tolist()


def test_faces_and_landmarks_of_a_batch(tmp_path: Path) -> None:
    """Against the network's own boxes, which are parts of the picture, and a plain suppression."""
    network = model("retinaface_decoded", tmp_path)
    head = found(network).head
    network = spread(network, head)
    values = own(network, [*head.outputs, *network.graph.outputs])
    boxes, scores, points = (values[name] for name in network.graph.outputs)
    frames = detect(head, values, Options(score=0.05, iou=0.6, most=10_000))
    assert len(frames) == 2
    size = np.array([104, 72, 104, 72], np.float32)
    for frame, objects in enumerate(frames):
        rows = [row for row, _ in reference(boxes[frame] * size, scores[frame][:, 1:], 0.05, 0.6)]
        assert len(rows) >= 50
        assert overlapping({row: boxes[frame][row] for row in rows}) >= 50
        np.testing.assert_allclose(
            [one.box for one in objects], boxes[frame][rows] * size, atol=2e-3
        )
        marks = points[frame][rows].reshape(-1, 5, 2) * size[:2]
        np.testing.assert_allclose([one.points for one in objects], marks, atol=2e-3)


def scaled(values: tuple[float, ...], at: int, ratio: float) -> tuple[float, ...]:
    return tuple(one * ratio if number == at else one for number, one in enumerate(values))


WRONG: dict[str, Callable[[PriorHead], dict[str, object]]] = {
    "variance": lambda one: {"variances": scaled(one.variances, 3, 1.05)},
    "step": lambda one: {
        "levels": (
            replace(one.levels[0], step=scaled(one.levels[0].step, 1, 1.01)),
            *one.levels[1:],
        )
    },
    "size of a prior": lambda one: {
        "levels": (
            *one.levels[:-1],
            replace(
                one.levels[-1],
                priors=(scaled(one.levels[-1].priors[0], 2, 1.01), *one.levels[-1].priors[1:]),
            ),
        )
    },
    "order of priors": lambda one: {
        "levels": (replace(one.levels[0], priors=one.levels[0].priors[::-1]), *one.levels[1:])
    },
    "order of levels": lambda one: {"levels": one.levels[::-1]},
    "activation": lambda one: {"scores": "sigmoid" if one.scores == "softmax" else "softmax"},
    "clip": lambda one: {"clip": (0.0, 0.0) if one.clip[0] else (0.9, 0.9)},
}


@pytest.mark.few(8)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["ssd_nms", "retinanet_nms", "retinaface_decoded"])
def test_the_proof_finds_a_wrong_head(name: str, wrong: str, tmp_path: Path) -> None:
    network = model(name, tmp_path)
    recognised = found(network)
    assert disagreement(network, recognised) == ""
    mutated = changed(recognised, **WRONG[wrong](part(recognised)))
    assert "edgekit's decoding" in disagreement(network, mutated)


def test_boxes_grow_up_to_a_bound(tmp_path: Path) -> None:
    """Offsets of a deviation of 30 give sizes far beyond the largest that torchvision allows."""
    network = model("ssd_decoded", tmp_path)
    recognised = found(network)
    assert part(recognised).growth == pytest.approx(np.log(1000 / 16), rel=1e-6)
    head, (boxes,) = recognised.head, recognised.own["boxes"]
    values = own(spread(network, head, gain=30.0), [*head.outputs, boxes])
    ours, theirs = decode(head, values)["boxes"][0], values[boxes].reshape(-1, 4)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5 * np.abs(theirs).max())
    endless = decode(changed(recognised, growth=0.0).head, values)["boxes"]
    assert endless.max() > 2 * theirs.max()


def test_landmarks_of_other_variances_are_refused(tmp_path: Path) -> None:
    """A network that multiplies landmarks by another value than centres."""
    proto = exports.load("retinaface_decoded", FOLDER)
    onnx.save(proto, tmp_path / "before.onnx")
    marks = proto.graph.output[2].name
    nodes = {name: node for node in proto.graph.node for name in node.output}
    constants = {one.name: one for one in proto.graph.initializer}
    changes, left = 0, [marks]
    while left:
        node = nodes.get(left.pop())
        if node is None or node.op_type in ("Conv", "Slice"):
            continue
        left.extend(node.input)
        for name in node.input if node.op_type == "Mul" else ():
            value = constants.get(name)
            if value is None and name in nodes and nodes[name].op_type == "Constant":
                value = nodes[name].attribute[0].t
            if value is not None and not value.dims:
                value.CopyFrom(numpy_helper.from_array(np.float32(0.2), value.name))
                changes += 1
    assert changes == 5
    refused = recognise(saved(proto, tmp_path))
    assert isinstance(refused, Unlike)
    assert refused.family == "RetinaFace"
    assert "edgekit's decoding" in refused.differs


def test_priors_that_are_no_regular_grid_are_refused(tmp_path: Path) -> None:
    proto = exports.load("ssd_decoded", FOLDER)
    priors = next(one for one in proto.graph.initializer if list(one.dims) == [2912, 4])
    values = numpy_helper.to_array(priors).copy()
    values[4 * (28 * 4 + 7)] += 0.5
    priors.CopyFrom(numpy_helper.from_array(values, priors.name))
    refused = recognise(saved(proto, tmp_path))
    assert isinstance(refused, Unlike)
    assert "no regular grid: at row 4, column 7 of the 18x28 map" in refused.differs


def test_priors_that_nothing_tells_are_refused(tmp_path: Path) -> None:
    proto = exports.load("ssd_decoded", FOLDER)
    recognised = found(saved(proto, tmp_path))
    raw = (recognised.own["offsets"][0], recognised.own["logits"][0])
    refused = recognise(saved(with_outputs(proto, raw), tmp_path))
    assert isinstance(refused, Unlike)
    assert "no published network has such maps (4 a place of 18x28" in refused.differs
    assert refused.differs.endswith("export the network with its decoding")


def test_proposals_of_a_second_stage_are_no_objects(tmp_path: Path) -> None:
    refused = recognise(model("fasterrcnn_mobilenet_320", tmp_path, zeros=True))
    assert isinstance(refused, Unlike)
    assert "RoiAlign '/inner/roi_heads/box_roi_pool/RoiAlign' follows" in refused.differs


def test_a_network_of_another_kind_has_no_priors(tmp_path: Path) -> None:
    refused = recognise(model("mobilenet_v2", tmp_path, zeros=True))
    assert isinstance(refused, Unlike)
    assert refused.matched == 0


def test_a_head_is_a_document(tmp_path: Path) -> None:
    head = found(model("retinanet_nms", tmp_path)).head
    assert codec.read(type(head), json.loads(codec.dump(head))) == head
