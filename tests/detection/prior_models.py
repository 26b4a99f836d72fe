"""The stored networks of ``prior_networks`` as models, and what tests feed and expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.network.loading.load import load
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit_device.detection.head import Head
from tests import exports
from tests.detection.prior_networks import FOLDER

__all__ = ["found", "model", "overlapping", "own", "reference", "saved", "spread"]


def saved(proto: onnx.ModelProto, folder: Path) -> Model:
    """A network as edgekit loads it."""
    onnx.save(proto, folder / "network.onnx")
    return load(folder / "network.onnx")


def model(name: str, folder: Path, *, zeros: bool = False) -> Model:
    """A stored network, of either folder; recognising it needs no values of weights."""
    stored = FOLDER if (FOLDER / f"{name}.onnx.xz").exists() else exports.FOLDER
    return saved(exports.load(name, stored, zeros=zeros), folder)


def found(network: Model) -> Recognised:
    """The recognised head of a network."""
    result = recognise(network)
    assert isinstance(result, Recognised), result
    return result


def spread(network: Model, head: Head, mean: float = 0.0, gain: float = 1.0) -> Model:
    """The network with last convolutions whose values spread: of untrained ones all scores are
    near each other.

    Args:
        network: The network.
        head: Its head.
        mean: Of the scores' biases.
        gain: Deviation of each map without its bias.
    """
    raw = own(network, head.outputs)
    part = head.prior or head.point
    assert part is not None
    scores = {level.scores for level in part.levels}
    random = np.random.default_rng(0)
    weights = dict(network.weights)
    done: set[str] = set()
    for name in head.outputs:
        node = network.graph.producer(name)
        assert node is not None
        weight = node.inputs[1]
        if weight in done:  # RetinaNet's levels share theirs
            continue
        done.add(weight)
        weights[weight] = weights[weight] * np.float32(gain / raw[name].std())
        if node.input(2):
            size = weights[weight].shape[0]
            biases = random.normal(mean if name in scores else 0.0, 1.5, size)
            weights[node.input(2)] = biases.astype(np.float32)
    return replace(network, weights=weights, stored_digest=None)


def own(network: Model, tensors: Sequence[str], seed: int = 0) -> dict[str, np.ndarray]:
    """What the whole network computes of a random picture, by tensor."""
    name = network.graph.inputs[0]
    picture = np.random.default_rng(seed).random(network.graph.shape(name), np.float32)
    values = session(network, outputs=tensors).run(None, {name: picture})
    return dict(zip(tensors, values, strict=True))


def reference(
    boxes: np.ndarray, scores: np.ndarray, least: float, iou: float
) -> list[tuple[int, int]]:
    """The rows and classes that stay, the best first: one box after another.

    Args:
        boxes: [n, 4] corners.
        scores: [n, classes].
        least: Scores above it are candidates.
        iou: Overlaps above it are one object.
    """
    order = sorted(zip(*np.nonzero(scores > least), strict=True), key=lambda at: -scores[at])
    kept: list[tuple[int, int]] = []
    for row, number in order:
        if all(number != other or _iou(boxes[row], boxes[before]) <= iou for before, other in kept):
            kept.append((int(row), int(number)))
    return kept


def _iou(one: np.ndarray, other: np.ndarray) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(width * height / (sum(areas) - width * height))


def overlapping(boxes: Mapping[int, np.ndarray]) -> int:
    """How many pairs overlap by more than a tenth."""
    values = list(boxes.values())
    return sum(
        _iou(one, other) > 0.1 for at, one in enumerate(values) for other in values[at + 1 :]
    )
