"""Detectors with queries: what is recognised, decoded and refused. The networks are rebuilt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from edgekit.detection.query import recognise_query
from edgekit.detection.recognise import disagreement, recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.head import Head
from edgekit_device.protocol.detection import Options
from tests.detection.query_networks import (
    BATCH,
    CLASSES,
    HEIGHT,
    KEPT,
    NETWORKS,
    QUERIES,
    WIDTH,
    Net,
    model,
)

FAMILIES = {
    "DETR": ("DETR", "softmax"),
    "DETR with its softmax": ("DETR", "softmax"),
    "conditional DETR": ("conditional DETR", "sigmoid"),
    "RT-DETR": ("RT-DETR", "sigmoid"),
    "D-FINE": ("D-FINE", "sigmoid"),
    "Ultralytics' RT-DETR of 8.3": ("RT-DETR", "sigmoid"),
    "Ultralytics' RT-DETR of 8.4": ("RT-DETR", "sigmoid"),
    "RT-DETR with its authors' post-processing": ("RT-DETR", "sigmoid"),
}


def found(network: Model) -> Recognised:
    answer = recognise(network)
    assert isinstance(answer, Recognised), answer
    return answer


def run(network: Model, *names: str) -> list[np.ndarray]:
    random = np.random.default_rng(9)
    feeds: dict[str, np.ndarray] = {
        "images": random.standard_normal((BATCH, 3, HEIGHT, WIDTH)).astype(np.float32)
    }
    if "sizes" in network.graph.inputs:
        feeds["sizes"] = np.asarray([[WIDTH, HEIGHT]] * BATCH)
    values: list[np.ndarray] = session(network, outputs=names).run(None, feeds)
    return values


def by_hand(head: Head, logits: np.ndarray, boxes: np.ndarray, least: float) -> list[tuple]:
    """Objects of a frame, one query after another: (score, class, box)."""
    assert head.query is not None
    objects = []
    for row, values in zip(logits.astype(np.float64), boxes.astype(np.float64), strict=True):
        if head.query.sigmoid_boxes:
            x, y, w, h = (1 / (1 + math.exp(-one)) for one in values)
        else:
            x, y, w, h = values
        box = [(x - w / 2) * WIDTH, (y - h / 2) * HEIGHT, (x + w / 2) * WIDTH, (y + h / 2) * HEIGHT]
        if head.query.scores == "softmax":
            total = sum(math.exp(one) for one in row)
            scores = [math.exp(one) / total for one in row[:-1]]
            pairs = [(max(scores), scores.index(max(scores)))]
        else:
            pairs = [(1 / (1 + math.exp(-one)), number) for number, one in enumerate(row)]
        objects += [(score, number, box) for score, number in pairs]
    objects.sort(key=lambda one: -one[0])
    if head.query.most:
        objects = objects[: head.query.most]
    return [one for one in objects if one[0] > least]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_recognised_and_its_objects_are_found(name: str) -> None:
    network = model(NETWORKS[name])
    head = found(network).head
    part = head.query
    assert part is not None
    assert (head.family, part.scores) == FAMILIES[name]
    assert part.size == (HEIGHT, WIDTH)
    logits, boxes = run(network, *head.outputs)
    assert logits.shape == (BATCH, QUERIES, CLASSES)
    assert boxes.shape == (BATCH, QUERIES, 4)
    frames = detect(
        head, {part.logits: logits, part.boxes: boxes}, Options(score=0.3, iou=0.1, most=300)
    )
    assert len(frames) == BATCH
    for frame, one, other in zip(frames, logits, boxes, strict=True):
        expected = by_hand(head, one, other, 0.3)
        # queries overlap, and all of them stay
        assert len(expected) >= (20 if part.scores == "softmax" else 50)
        assert [each.number for each in frame] == [each[1] for each in expected]
        np.testing.assert_allclose([each.score for each in frame], [e[0] for e in expected], 1e-5)
        np.testing.assert_allclose([e.box for e in frame], [e[2] for e in expected], atol=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_decoding_gives_what_the_network_computes(name: str) -> None:
    network = model(NETWORKS[name])
    answer = found(network)
    maps = dict(zip(answer.head.outputs, run(network, *answer.head.outputs), strict=True))
    ours = decode(answer.head, maps)
    for mine, theirs in answer.own.items():
        (value,) = run(network, theirs)
        np.testing.assert_allclose(ours[mine], value, atol=1e-6)
        assert np.ptp(value) > 0.3


def test_the_best_pairs_are_those_that_the_network_keeps() -> None:
    network = model(NETWORKS["Ultralytics' RT-DETR of 8.4"])
    head = found(network).head
    *maps, output = run(network, *head.outputs, network.graph.outputs[0])
    frames = detect(head, dict(zip(head.outputs, maps, strict=True)), Options(score=0.0))
    for frame, rows in zip(frames, output, strict=True):
        assert len(frame) == KEPT
        assert [one.number for one in frame] == rows[:, 5].astype(int).tolist()
        np.testing.assert_allclose([one.score for one in frame], rows[:, 4], atol=1e-6)
        x, y, w, h = rows[:, :4].T * np.array([[WIDTH], [HEIGHT], [WIDTH], [HEIGHT]])
        corners = np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)
        np.testing.assert_allclose([one.box for one in frame], corners, atol=1e-3)


def test_the_authors_post_processing_gives_the_same_pixels() -> None:
    network = model(NETWORKS["RT-DETR with its authors' post-processing"])
    head = found(network).head
    *maps, classes, boxes, scores = run(network, *head.outputs, *network.graph.outputs)
    frames = detect(head, dict(zip(head.outputs, maps, strict=True)), Options(score=0.0))
    for frame, numbers, corners, values in zip(frames, classes, boxes, scores, strict=True):
        assert [one.number for one in frame] == numbers.tolist()
        np.testing.assert_allclose([one.score for one in frame], values, atol=1e-6)
        np.testing.assert_allclose([one.box for one in frame], corners, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "tensor"),
    [
        ({"sigmoid_boxes": False}, "boxes"),
        ({"scores": "softmax"}, "scores"),
        ({"most": 79}, "best"),
        ({"logits": "boxes", "boxes": "logits"}, "scores"),
    ],
)
def test_a_wrong_head_disagrees(change: dict[str, object], tensor: str) -> None:
    network = model(NETWORKS["Ultralytics' RT-DETR of 8.4"])
    answer = found(network)
    part = answer.head.query
    assert part is not None
    assert disagreement(network, answer) == ""
    swapped = {key: getattr(part, str(change.get(key, key)), None) for key in ("logits", "boxes")}
    wrong = replace(part, **{**change, **swapped})
    differs = disagreement(network, replace(answer, head=replace(answer.head, query=wrong)))
    assert answer.own[tensor] in differs
    assert "edgekit's decoding" in differs


def test_names_of_classes_come_from_the_metadata() -> None:
    names = [f"class {number}" for number in range(CLASSES)]
    for name, count in (("RT-DETR", CLASSES), ("DETR", CLASSES - 1)):
        answer = recognise(model(NETWORKS[name]), {"names": str(dict(enumerate(names[:count])))})
        assert isinstance(answer, Recognised)
        assert answer.head.classes == tuple(names[:count])


def _more_outputs(net: Net) -> list[str]:
    features = net.features()
    other = net("Relu", net.linear(features, 16, 7))
    return [net.logits(features), net("Sigmoid", net.mlp(features)), other]


def _apart(net: Net) -> list[str]:
    features = net.features()
    return [net.logits(net.linear(features, 16, 16)), net("Sigmoid", net.mlp(net.features()))]


def _without_attention(net: Net) -> list[str]:
    features = net.features(attention=False)
    return [net.logits(features), net("Sigmoid", net.mlp(features))]


def _without_sigmoid(net: Net) -> list[str]:
    features = net.features()
    return [net.logits(features), net.mlp(features)]


def _other_function(net: Net) -> list[str]:
    features = net.features()
    return [net.logits(features), net("HardSigmoid", net.mlp(features))]


def _open_vocabulary(net: Net) -> list[str]:
    features = net.features()
    words = net("Transpose", net("Relu", features), perm=[0, 2, 1])
    return [net("MatMul", features, words), net("Sigmoid", net.mlp(features))]


def _other_queries(net: Net) -> list[str]:
    features = net.features()
    half = net("Slice", features, net.ints(0), net.ints(QUERIES // 2), net.ints(1))
    return [net.logits(half), net("Sigmoid", net.mlp(features))]


def _five_values(net: Net) -> list[str]:
    features = net.features()
    return [net.logits(features), net("Sigmoid", net.linear(features, 16, 5))]


def _one_class(net: Net) -> list[str]:
    features = net.features()
    return [net.logits(features, 1), net("Sigmoid", net.mlp(features))]


def _thirds(net: Net) -> list[str]:
    outputs = NETWORKS["D-FINE"](net)
    halving = [node for node in net.nodes if node.op_type == "Div"]
    three = net.constant(3.0)
    for node in halving:
        node.input[1] = three
    return outputs


def _crossed_sides(net: Net) -> list[str]:
    outputs = NETWORKS["D-FINE"](net)
    first, second = [node for node in net.nodes if node.op_type == "Sub"][-2:]
    first.input[0], second.input[0] = second.input[0], first.input[0]
    return outputs


def _more_classes(net: Net) -> list[str]:
    outputs = NETWORKS["Ultralytics' RT-DETR of 8.4"](net)
    division = [node for node in net.nodes if node.op_type == "Div"][-1]
    division.input[1] = net.constant(CLASSES + 1, np.int64)
    return outputs


def _least(net: Net) -> list[str]:
    outputs = NETWORKS["Ultralytics' RT-DETR of 8.4"](net)
    (top,) = (node for node in net.nodes if node.op_type == "TopK")
    top.attribute.append(helper.make_attribute("largest", 0))
    return outputs


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (_more_outputs, "is neither classes nor boxes"),
        (_apart, "queries have one vector"),
        (_without_attention, "no self-attention over 60 queries"),
        (_without_sigmoid, "not by a Sigmoid or from corners"),
        (_other_function, "(HardSigmoid), not by a Sigmoid"),
        (_open_vocabulary, "is not the result of a linear layer with constant weights"),
        (_other_queries, "with equal queries; the outputs are"),
        (_five_values, "no two outputs are [batch, queries, classes]"),
        (_one_class, "one class, which is no object"),
        (_thirds, "does not halve"),
        (_crossed_sides, "are not of the same two sides"),
        (_more_classes, "does not divide by the 5 classes"),
        (_least, "does not take the largest"),
    ],
)
def test_another_network_is_refused_with_what_differs(
    write: Callable[[Net], list[str]], words: str
) -> None:
    answer = recognise_query(model(write), {})
    assert isinstance(answer, Unlike)
    assert answer.family == "DETR"
    assert words in answer.differs
