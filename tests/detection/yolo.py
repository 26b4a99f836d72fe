"""What tests of YOLO's heads share: networks from exports, their own decoding of given raw maps,
and a plain suppression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.walk import region
from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit_device.detection.head import Head
from tests.exports import load

__all__ = [
    "as_model",
    "head_of",
    "intersection_over_union",
    "own_outputs",
    "raw_maps",
    "refusal",
    "suppressed",
]


def as_model(name: str) -> Model:
    """The network of tests/data/exports."""
    return canonical(load(name), None, source=name)


def head_of(model: Model, metadata: Mapping[str, str] | None = None) -> Head:
    """The recognised head; fails with what differs."""
    found = recognise(model, metadata)
    assert isinstance(found, Recognised), f"{model.source}: {found}"
    return found.head


def refusal(model: Model) -> Unlike:
    """What differs in a network whose head is not recognised."""
    found = recognise(model)
    assert isinstance(found, Unlike), found
    return found


def raw_maps(
    model: Model, head: Head, *, seed: int = 0, bias: float = 0.0
) -> dict[str, np.ndarray]:
    """Random raw maps; scores spread around the sigmoid of ``bias``."""
    random = np.random.default_rng(seed)
    part = head.distance
    scores = {level.scores for level in part.levels} if part is not None else set()
    return {
        name: random.normal(bias if name in scores else 0.5, 1.5, model.graph.shape(name)).astype(
            np.float32
        )
        for name in head.outputs
    }


def own_outputs(
    model: Model, maps: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
) -> list[np.ndarray]:
    """What the network itself, from its raw maps to its end, computes from the maps."""
    wanted = list(outputs or model.graph.outputs)
    nodes: dict[str, None] = {}
    for name in wanted:
        way = region(model.graph, name, lambda node: maps.keys().isdisjoint(node.outputs))
        nodes |= dict.fromkeys(node.name for node in way.nodes)
    reads = {name for node in nodes for name in model.graph.node(node).reads()}
    fed = {name: value for name, value in maps.items() if name in reads}
    computed = [name for name in wanted if name not in maps]
    runs = session(model.cut(nodes, list(fed), computed))
    values = dict(maps) | dict(zip(computed, runs.run(None, fed), strict=True))
    return [values[name] for name in wanted]


def intersection_over_union(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two boxes: left, top, right, bottom."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared)


def suppressed(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float) -> list[int]:
    """The rows that stay, by comparing each box with each better one: slow and plain."""
    kept: list[int] = []
    for row in sorted(range(len(scores)), key=lambda row: -scores[row]):
        rivals = [other for other in kept if classes[other] == classes[row]]
        if all(intersection_over_union(boxes[row], boxes[other]) <= iou for other in rivals):
            kept.append(row)
    return kept
