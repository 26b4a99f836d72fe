"""The heads of YOLO: recognised in real exports, decoded as the networks themselves decode them.

The networks come from Ultralytics 8.4.190 and its YAML files (tests/data/exports), those with
anchors from tests/detection/yolov5.py; weights are random, so raw maps are given.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.detection.recognise import disagreement
from edgekit.detection.recognised import Recognised
from edgekit.detection.walk import class_names
from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.head import DistanceHead, Head
from edgekit_device.protocol.detection import Options
from tests.detection.yolo import (
    as_model,
    head_of,
    intersection_over_union,
    own_outputs,
    raw_maps,
    refusal,
    suppressed,
)
from tests.detection.yolov5 import ANCHORS
from tests.exports import load

#: Strides, bins, boxes that the network's own top-k keeps, keypoints, and mask prototypes' stride.
DISTANCE: dict[str, tuple[tuple[int, ...], int, int, int, int]] = {
    "yolov8n-dynamo": ((8, 16, 32), 16, 0, 0, 0),
    "yolov10n-end2end": ((8, 16, 32), 16, 126, 0, 0),
    "yolo26n-seg-end2end": ((8, 16, 32), 1, 126, 0, 4),
    "yolo26n-pose-end2end": ((8, 16, 32), 1, 126, 17, 0),
    "yolov8n-seg": ((8, 16, 32), 16, 0, 0, 4),
    "yolov8n-pose": ((8, 16, 32), 16, 0, 17, 0),
    "yolov3-tinyu": ((16, 32), 16, 0, 0, 0),
    "yolov5n6u": ((8, 16, 32, 64), 16, 0, 0, 0),
    "yolov8n-nms": ((8, 16, 32), 16, 0, 0, 0),
    "yolov8n": ((8, 16, 32), 16, 0, 0, 0),
    "yolov8s-opset12": ((8, 16, 32), 16, 0, 0, 0),
    "yolov5nu": ((8, 16, 32), 16, 0, 0, 0),
    "yolov6n": ((8, 16, 32), 16, 0, 0, 0),
    "yolov9t": ((8, 16, 32), 16, 0, 0, 0),
    "yolov10n": ((8, 16, 32), 16, 0, 0, 0),
    "yolo11n": ((8, 16, 32), 16, 0, 0, 0),
    "yolo11n-seg": ((8, 16, 32), 16, 0, 0, 4),
    "yolo11n-pose": ((8, 16, 32), 16, 0, 17, 0),
    "yolo12n": ((8, 16, 32), 16, 0, 0, 0),
    "yolo26n": ((8, 16, 32), 1, 0, 0, 0),
    "yolo26n-seg": ((8, 16, 32), 1, 0, 0, 4),
}
ANCHOR = {"yolov5-anchors": 0, "yolov5-anchors-seg": 4, "yolov7-anchors": 0}
#: Their outputs are the joined boxes, scores, and keypoints or coefficients.
WHOLE = ["yolov8n-dynamo", "yolov8n-pose", "yolov8n-seg", "yolo26n"]
END_TO_END = ["yolov10n-end2end", "yolo26n-seg-end2end", "yolo26n-pose-end2end"]


@pytest.mark.few(8)
@pytest.mark.parametrize("name", DISTANCE)
def test_a_head_of_distances_is_recognised_and_cut_at_its_last_convolutions(name: str) -> None:
    model = as_model(name)
    head = head_of(model)
    part = head.distance
    assert part is not None
    strides = tuple(level.stride for level in part.levels)
    assert (strides, part.bins, part.most, part.keypoints, part.prototype_stride) == DISTANCE[name]
    of_levels = [one for level in part.levels for one in (level.boxes, level.scores, level.extra)]
    assert {one for one in of_levels if one} == set(head.outputs) - {part.prototypes}
    producers = [model.graph.producer(one) for one in of_levels if one]
    assert all(node is not None and node.op == "Conv" for node in producers)


@pytest.mark.parametrize("name", ANCHOR)
def test_a_head_of_anchors_is_recognised_with_its_anchors(name: str) -> None:
    head = head_of(as_model(name))
    part = head.anchor
    assert part is not None
    assert [level.stride for level in part.levels] == [8, 16, 32]
    assert (part.anchors, part.masks) == (ANCHORS, ANCHOR[name])
    assert len(head.outputs) == (4 if part.masks else 3)


@pytest.mark.parametrize("name", WHOLE)
def test_decoding_equals_the_networks_own_output(name: str) -> None:
    model = as_model(name)
    head = head_of(model)
    maps = raw_maps(model, head)
    ours = decode(head, maps)
    parts = [ours[key] for key in ("boxes", "scores", "extra") if key in ours]
    np.testing.assert_allclose(
        np.concatenate(parts, axis=1), own_outputs(model, maps)[0], rtol=1e-4, atol=1e-4
    )
    assert 0.05 < ours["scores"].mean() < 0.95


@pytest.mark.parametrize("name", ANCHOR)
def test_decoding_of_anchors_equals_the_networks_own_output(name: str) -> None:
    model = as_model(name)
    head = head_of(model)
    maps = raw_maps(model, head)
    own = own_outputs(model, maps)[0]
    np.testing.assert_allclose(decode(head, maps)["output"], own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", END_TO_END)
def test_objects_equal_those_of_a_networks_own_top_k(name: str) -> None:
    model = as_model(name)
    head = head_of(model)
    part = head.distance
    assert part is not None
    maps = raw_maps(model, head, bias=-4.0)
    rows = own_outputs(model, maps)[0]  # left, top, right, bottom, score, class, extra
    options = Options(score=0.3)
    for frame, found in enumerate(detect(head, maps, options)):
        own = rows[frame][rows[frame, :, 4] > options.score]
        assert len(found) == len(own) > 20
        np.testing.assert_allclose([one.box for one in found], own[:, :4], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose([one.score for one in found], own[:, 4], rtol=1e-5)
        assert [one.number for one in found] == own[:, 5].astype(int).tolist()
        if part.keypoints:
            points = own[:, 6:].reshape(len(own), part.keypoints, 3)
            np.testing.assert_allclose([one.points for one in found], points, rtol=1e-4, atol=1e-3)


def wrong_heads(head: Head) -> dict[str, Head]:
    """Heads that differ in one number from the right one."""
    part = head.distance
    if part is not None:
        level = part.levels[1]
        levels = (part.levels[0], replace(level, stride=level.stride + 1), *part.levels[2:])
        return {
            "stride": replace(head, distance=replace(part, levels=levels)),
            "corners": replace(head, distance=replace(part, corners=not part.corners)),
        } | ({"reach": replace(head, distance=replace(part, reach=1.5))} if part.keypoints else {})
    other = head.anchor
    assert other is not None
    turned = tuple(tuple(pair[::-1] for pair in level) for level in other.anchors)
    finest = other.levels[0]
    levels = (replace(finest, stride=4), *other.levels[1:])
    return {
        "stride": replace(head, anchor=replace(other, levels=levels)),
        "anchor": replace(head, anchor=replace(other, anchors=turned)),
        "order": replace(
            head, anchor=replace(other, anchors=tuple(one[::-1] for one in other.anchors))
        ),
    }


@pytest.mark.parametrize("name", ["yolov8n-dynamo", "yolo26n-pose-end2end", "yolov5-anchors"])
def test_a_wrong_head_is_disproved(name: str) -> None:
    model = as_model(name)
    head = head_of(model)
    own = own_names(model)
    assert disagreement(model, Recognised(head, own)) == ""
    for what, wrong in wrong_heads(head).items():
        assert "edgekit's decoding" in disagreement(model, Recognised(wrong, own)), what


def own_names(model: Model) -> dict[str, str]:
    """The tensors that the recogniser compares."""
    from edgekit.detection.anchor import recognise_anchor
    from edgekit.detection.distance import recognise_distance

    for recogniser in (recognise_distance, recognise_anchor):
        found = recogniser(model, {})
        if isinstance(found, Recognised):
            return {name: tensor for name, tensor in found.own.items() if isinstance(tensor, str)}
    raise AssertionError(model.source)


# --- maps that an exporter joined


def with_joined_maps(name: str, convolution: bool) -> Model:
    """A network in which each level's boxes and scores are one tensor, split after all levels are
    joined, as older Ultralytics wrote them; or in which one convolution writes both.
    """
    head = head_of(as_model(name))
    part = head.distance
    assert part is not None
    proto = load(name)
    graph = proto.graph
    channels = 4 * part.bins + 80
    graph.initializer.append(numpy_helper.from_array(np.array([2, channels, -1]), "flat"))
    graph.initializer.append(numpy_helper.from_array(np.array([channels - 80, 80]), "widths"))
    same = np.eye(channels, dtype=np.float32)[:, :, None, None]
    graph.initializer.append(numpy_helper.from_array(same, "same"))
    nodes = []
    for number, level in enumerate(part.levels):
        both = f"both{number}"
        nodes.append(helper.make_node("Concat", [level.boxes, level.scores], [both], axis=1))
        if convolution:
            nodes.append(helper.make_node("Conv", [both, "same"], [f"written{number}"]))
            both = f"written{number}"
        nodes.append(helper.make_node("Reshape", [both, "flat"], [f"flat{number}"]))
    flat = [f"flat{number}" for number in range(len(part.levels))]
    nodes.append(helper.make_node("Concat", flat, ["levels"], axis=2))
    nodes.append(helper.make_node("Split", ["levels", "widths"], ["of_boxes", "of_scores"], axis=1))
    joins = [node for node in graph.node if node.op_type == "Concat" and joins_levels(proto, node)]
    of_boxes, of_scores = joins
    at = max(list(graph.node).index(node) for node in joins) + 1
    rest = list(graph.node)[at:]
    del graph.node[at:]
    graph.node.extend([*nodes, *rest])
    for node in graph.node:
        for index, tensor in enumerate(node.input):
            if tensor == of_boxes.output[0]:
                node.input[index] = "of_boxes"
            elif tensor == of_scores.output[0]:
                node.input[index] = "of_scores"
    return canonical(proto, None, source="joined")


def joins_levels(proto: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Whether a Concat joins what a Reshape writes, three times."""
    written = {one.output[0]: one.op_type for one in proto.graph.node}
    return [written.get(name) for name in node.input] == ["Reshape"] * 3


@pytest.mark.parametrize("convolution", [False, True])
def test_maps_that_an_exporter_joined_are_cut_where_they_are(convolution: bool) -> None:
    model = with_joined_maps("yolov8n-dynamo", convolution)
    head = head_of(model)
    assert len(head.outputs) == (3 if convolution else 6)
    maps = raw_maps(model, head)
    ours = decode(head, maps)
    together = np.concatenate([ours["boxes"], ours["scores"]], axis=1)
    np.testing.assert_allclose(together, own_outputs(model, maps)[0], rtol=1e-4, atol=1e-4)


# --- changed networks


def changed(name: str) -> onnx.ModelProto:
    """An export to change, without constants folded."""
    return load(name)


def node_of(proto: onnx.ModelProto, operator: str, index: int = 0) -> onnx.NodeProto:
    return [node for node in proto.graph.node if node.op_type == operator][index]


def test_places_that_begin_elsewhere_are_disproved() -> None:
    model = as_model("yolov8n-dynamo")
    moved = {
        name: value - np.float32(0.5)
        for name, value in model.weights.items()
        if value.shape == (1, 2, 126)
    }
    assert moved
    weights = {**model.weights, **moved}
    found = refusal(canonical(model.proto, None, source="moved", weights=weights))
    assert found.family.startswith("YOLOv8")
    assert "edgekit's decoding" in found.differs


def test_classes_in_another_order_are_disproved() -> None:
    proto = changed("yolov8n-dynamo")
    sigmoid = node_of(proto, "Sigmoid", -1)
    order = numpy_helper.from_array(np.roll(np.arange(80), 1), "order")
    proto.graph.initializer.append(order)
    gather = helper.make_node(
        "Gather", [sigmoid.input[0], "order"], ["rolled"], name="rolled", axis=1
    )
    proto.graph.node.insert(list(proto.graph.node).index(sigmoid), gather)
    sigmoid.input[0] = "rolled"
    assert "edgekit's decoding" in refusal(canonical(proto, None, source="rolled")).differs


def test_scores_of_a_softmax_are_refused_with_what_was_looked_for() -> None:
    proto = changed("yolov8n-dynamo")
    sigmoid = node_of(proto, "Sigmoid", -1)
    sigmoid.op_type = "Softmax"
    sigmoid.attribute.append(helper.make_attribute("axis", 1))
    found = refusal(canonical(proto, None, source="softmax"))
    assert found.matched == 0
    assert "Sigmoid" in found.differs


def test_rotated_boxes_are_refused_with_the_node() -> None:
    found = refusal(as_model("yolov8n-obb"))
    assert found.family.startswith("YOLOv8")
    assert "rotated boxes" in found.differs
    assert "/model.22/Cos" in found.differs


def test_an_output_that_the_head_does_not_explain_is_refused() -> None:
    proto = changed("yolov8n-dynamo")
    first = node_of(proto, "Conv")
    pooled = helper.make_node("GlobalAveragePool", [first.output[0]], ["mood"], name="mood")
    proto.graph.node.append(pooled)
    proto.graph.output.append(helper.make_tensor_value_info("mood", 1, None))
    assert "'mood'" in refusal(canonical(proto, None, source="two heads")).differs


def test_sizes_that_are_exponentials_are_refused_with_the_node() -> None:
    proto = changed("yolov5-anchors")
    power = node_of(proto, "Pow")
    power.op_type, power.name = "Exp", "sizes"
    del power.input[1]
    found = refusal(canonical(proto, None, source="yolov3"))
    assert "exponentials" in found.differs
    assert "'sizes'" in found.differs


@pytest.mark.parametrize("name", ["resnet18", "yolov8n-cls"])
def test_a_classifier_is_no_yolo(name: str) -> None:
    assert refusal(as_model(name)).differs


# --- objects


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("name", ["yolov8n-dynamo", "yolov5-anchors"])
def test_suppression_keeps_what_a_plain_one_keeps(name: str, agnostic: bool) -> None:
    model = as_model(name)
    head = head_of(model)
    maps = raw_maps(model, head, seed=3, bias=-2.5)
    # each frame overlaps: distances of some four places to each side
    iou = 0.8 if agnostic else 0.6
    options = Options(score=0.3, iou=iou, most=1000, agnostic=agnostic)
    tensors = decode(head, maps)
    for frame, found in enumerate(detect(head, maps, options)):
        boxes, scores = plain_candidates(head, tensors, frame)
        rows, numbers = np.nonzero(scores > options.score)
        groups = np.zeros_like(numbers) if agnostic else numbers
        kept = suppressed(boxes[rows], scores[rows, numbers], groups, options.iou)
        assert [one.number for one in found] == numbers[kept].tolist()
        np.testing.assert_allclose([one.box for one in found], boxes[rows[kept]], rtol=1e-5)
        assert len(rows) > len(found) >= 50
        pairs = [(a, b) for i, a in enumerate(found) for b in found[:i]]
        assert any(0.2 < intersection_over_union(a.box, b.box) <= iou for a, b in pairs)


def plain_candidates(
    head: Head, tensors: dict[str, np.ndarray], frame: int
) -> tuple[np.ndarray, np.ndarray]:
    """Corners [places, 4] and scores [places, classes], from a centre and a size."""
    if head.distance is not None:
        boxes, scores = tensors["boxes"][frame].T, tensors["scores"][frame].T
    else:
        output = tensors["output"][frame]
        boxes, scores = output[:, :4], output[:, 4:5] * output[:, 5:]
    x, y, width, height = boxes.T
    corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    return np.stack(corners, axis=1), scores


def test_the_best_stay_where_most_is_small_and_the_score_high() -> None:
    model = as_model("yolov8n-dynamo")
    head = replace(head_of(model), classes=tuple(f"c{number}" for number in range(80)))
    maps = raw_maps(model, head, bias=-2.5)
    every = detect(head, maps, Options(score=0.3, most=1000))
    few = detect(head, maps, Options(score=0.3, most=5))
    assert few == [frame[:5] for frame in every]
    assert all(one.score > 0.8 for frame in detect(head, maps, Options(score=0.8)) for one in frame)
    assert all(one.name == f"c{one.number}" for frame in few for one in frame)
    scores = [one.score for one in every[0]]
    assert scores == sorted(scores, reverse=True)
    assert detect(head, maps, Options(score=1.0)) == [[], []]


@pytest.mark.parametrize("name", ["yolo26n-seg-end2end", "yolov5-anchors-seg"])
def test_masks_are_cropped_to_their_boxes_and_as_large_as_the_input(name: str) -> None:
    model = as_model(name)
    head = head_of(model)
    maps = raw_maps(model, head, bias=-4.0)
    part = head.distance or head.anchor
    assert part is not None
    height, width = model.graph.shape(model.graph.inputs[0])[2:]
    own = own_outputs(model, maps)[0]
    frames = detect(head, maps, Options(score=0.3, most=20))
    assert all(len(found) > 5 for found in frames)
    for frame, found in enumerate(frames):
        for one in found:
            assert one.mask is not None
            assert one.mask.shape == (height, width)
            row = coefficients(own[frame], one.box, isinstance(part, DistanceHead))
            expected = plain_mask(row, maps[part.prototypes][frame], one.box, height, width)
            # values on the edge of 0 may fall to either side
            assert (one.mask != expected).mean() < 1e-3
        assert any(0 < one.mask.mean() < 1 for one in found if one.mask is not None)


def coefficients(rows: np.ndarray, box: tuple[float, ...], corners: bool) -> np.ndarray:
    """The coefficients of the row whose box this is: behind the score and the class (end to end),
    or behind the classes.
    """
    boxes = rows[:, :4]
    if not corners:
        centre, half = boxes[:, :2], boxes[:, 2:] / 2
        boxes = np.concatenate([centre - half, centre + half], axis=1)
    row = np.abs(boxes - box).sum(axis=1).argmin()
    return rows[row, 6 if corners else 8 :]


def plain_mask(
    coefficients: np.ndarray,
    prototypes: np.ndarray,
    box: tuple[float, ...],
    height: int,
    width: int,
) -> np.ndarray:
    """Pixel by pixel: the sigmoid of the sum, linear between places, inside the box."""
    values = np.einsum("k,kyx->yx", coefficients, prototypes)
    rows, columns = values.shape
    found = np.zeros((height, width), bool)
    for y in range(height):
        for x in range(width):
            if not (box[0] <= x < box[2] and box[1] <= y < box[3]):
                continue
            v = min(max((y + 0.5) * rows / height - 0.5, 0), rows - 1)
            u = min(max((x + 0.5) * columns / width - 0.5, 0), columns - 1)
            top, left = int(v), int(u)
            bottom, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
            upper = values[top, left] * (1 - u % 1) + values[top, right] * (u % 1)
            lower = values[bottom, left] * (1 - u % 1) + values[bottom, right] * (u % 1)
            found[y, x] = 1 / (1 + np.exp(-(upper * (1 - v % 1) + lower * (v % 1)))) > 0.5
    return found


@pytest.mark.parametrize(
    ("names", "classes", "expected"),
    [
        ("{0: 'cat', 1: 'dog'}", 2, ("cat", "dog")),
        ("['cat', 'dog']", 2, ("cat", "dog")),
        ("{0: 'cat', 2: 'dog'}", 2, ()),
        ("{0: 'cat'}", 2, ()),
        ("cat, dog(", 2, ()),
        ("", 2, ()),
    ],
)
def test_names_of_classes_are_those_of_the_metadata(
    names: str, classes: int, expected: tuple[str, ...]
) -> None:
    assert class_names({"names": names}, classes) == expected


def test_the_metadata_name_the_family_and_the_classes() -> None:
    names = str({number: f"thing {number}" for number in range(80)})
    text = "Ultralytics YOLO11n model trained on coco.yaml"
    head = head_of(as_model("yolov8n-dynamo"), {"names": names, "description": text})
    assert head.family == "YOLO11n"
    assert head.classes[79] == "thing 79"
