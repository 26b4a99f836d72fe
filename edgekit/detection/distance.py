"""Recognises the head of YOLOv8, v9, v10, 11, 12 and 26: distances to the four sides.

The network's own decoding joins a tensor [batch, 4 + classes + extra, places]: boxes, the scores
that a Sigmoid writes, and mask coefficients or keypoints. Later steps (a top-k, a suppression, a
transposition) are done by edgekit too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.walk import (
    ARITHMETIC,
    MOVES,
    Region,
    by_level,
    class_names,
    joined,
    later,
    level_values,
    picture_stride,
    region,
    unexplained,
)
from edgekit.network.graph import Node, OnnxGraph
from edgekit.network.model import Model
from edgekit_device.detection.head import DistanceHead, Head, Level

_FAMILY = "YOLOv8 to 12 and 26 (distances to the sides)"
_MEAN = frozenset({"Exp", "MatMul", "ReduceMax", "ReduceSum", "Softmax"})  # a distribution's mean
_SIDES = 4

#: Maps by height and width.
_Maps = Mapping[tuple[int, int], Sequence[str]]


def recognise_distance(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head whose boxes are distances to the sides, or the difference.

    Args:
        model: The whole network.
        metadata: The file's metadata: Ultralytics' ``names`` and ``description``.
    """
    graph = model.graph
    tensors = _joined(graph)
    if tensors is None:
        return _unlike(
            0,
            "no Concat joins boxes [batch, 4, places] with the scores of a Sigmoid "
            "[batch, classes, places]",
        )
    sigmoid = graph.producer(tensors.scores)
    assert sigmoid is not None
    scores = by_level(graph, region(graph, sigmoid.inputs[0], MOVES).sources)
    if not scores:
        return _unlike(
            1, f"node {sigmoid.name!r} reads no maps [batch, classes, height, width] by level"
        )
    way = region(graph, tensors.boxes, lambda node: _decodes(graph, node))
    boxes = by_level(graph, way.sources)
    if boxes.keys() != scores.keys():
        return _unlike(2, _other_boxes(graph, way, tensors.boxes))
    part = _part(model, tensors, way, boxes, scores)
    if isinstance(part, Unlike):
        return part
    if tensors.extra:
        with_extra = _with_extra(model, part, tensors.extra, boxes)
        if isinstance(with_extra, Unlike):
            return with_extra
        part = with_extra
    prototypes = [part.prototypes] if part.prototypes else []
    if lost := unexplained(graph, [tensors.whole, *prototypes]):
        return _unlike(5, f"the network's output {lost!r} is neither boxes nor masks")
    maps = [
        name for level in part.levels for name in (level.boxes, level.scores, level.extra) if name
    ]
    classes = graph.shape(tensors.scores)[1]
    head = Head(
        _family(metadata, part),
        (*maps, *prototypes),
        class_names(metadata, classes),
        distance=part,
    )
    own = {"boxes": tensors.boxes, "scores": tensors.scores}
    return Recognised(head, own | ({"extra": tensors.extra} if tensors.extra else {}))


@dataclass(frozen=True)
class _Tensors:
    """Tensors of the network's decoding, [batch, channels, places]: boxes, scores, and the extra
    values ("" if none); ``whole`` joins these.
    """

    whole: str
    boxes: str
    scores: str
    extra: str


def _unlike(matched: int, differs: str) -> Unlike:
    return Unlike(_FAMILY, matched, differs)


def _joined(graph: OnnxGraph) -> _Tensors | None:
    """Returns the last tensor that joins boxes and scores, with its parts."""
    found = None
    for node in graph.nodes():
        if node.op != "Concat" or len(graph.shape(node.outputs[0])) != 3:
            continue
        names = joined(graph, node.outputs[0], 1)
        if len(names) in (2, 3) and graph.shape(names[0])[1] == _SIDES:
            scores = graph.producer(names[1])
            if scores is not None and scores.op == "Sigmoid":
                found = _Tensors(node.outputs[0], names[0], names[1], (*names, "")[2])
    return found


def _decodes(graph: OnnxGraph, node: Node) -> bool:
    """Returns True if a node is a part of the boxes' decoding, such as the convolution whose
    weights are the numbers of the bins.
    """
    if node.op == "Conv":
        return graph.shape(node.inputs[1])[0] == 1 and _SIDES in graph.shape(node.outputs[0])
    return node.op in MOVES or node.op in ARITHMETIC or node.op in _MEAN


def _other_boxes(graph: OnnxGraph, way: Region, boxes: str) -> str:
    """Returns why the boxes are not computed from maps like those of the scores, as text."""
    for name in way.sources:
        node = graph.producer(name)
        if node is not None and len(graph.shape(name)) != 4:
            rotated = "rotated " if node.op in ("Cos", "Sin") else ""
            return f"the {rotated}boxes {boxes!r} are computed from node {node.name!r} ({node.op})"
    sizes = [f"{name!r} {list(graph.shape(name))}" for name in way.sources]
    return f"the boxes {boxes!r} have other maps than the scores: {', '.join(sizes) or 'none'}"


def _part(
    model: Model, tensors: _Tensors, way: Region, boxes: _Maps, scores: _Maps
) -> DistanceHead | Unlike:
    """Returns the head without masks and keypoints."""
    graph = model.graph
    classes = graph.shape(tensors.scores)[1]
    strides = level_values(graph, way, list(boxes))
    levels, bins = [], set()
    for number, (size, of_boxes) in enumerate(boxes.items()):
        # an older Ultralytics joins the two maps of a level, and splits the result again
        names = tuple(dict.fromkeys((*of_boxes, *scores[size])))
        height, width = size
        step = int(strides[number]) if strides else picture_stride(model, size)
        if len(names) > 2 or step < 1:
            what = "no stride" if len(names) <= 2 else f"{len(names)} maps"
            return _unlike(3, f"the level of {height}x{width} places has {what}: {names[0]!r}")
        levels.append(Level(step, names[0], (*names, "")[1]))
        # a joined map has the classes after the boxes
        channels = graph.shape(names[0])[1] - (classes if len(names) == 1 else 0)
        bins.add(channels / _SIDES)
    count = min(bins)
    if len(bins) > 1 or count < 1 or count % 1:
        name = levels[0].boxes
        return _unlike(
            3, f"the map {name!r} has {graph.shape(name)[1]} channels, not 4 x bins as all have"
        )
    # before the product with the strides
    last = region(graph, tensors.boxes, (*MOVES - {"Concat"}, "Mul")).sources[0]
    return DistanceHead(
        tuple(levels),
        int(count),
        most=_most(graph, tensors.scores),
        corners=_has_corners(graph, joined(graph, last, 1)),
    )


def _has_corners(graph: OnnxGraph, sides: Sequence[str]) -> bool:
    """Returns True if boxes are joined from corners: each is computed from the places' centres, a
    constant, in one step. A centre is a mean of two corners, a size their difference.
    """
    nodes = [graph.producer(name) for name in sides]
    return all(
        node is not None
        and node.op in ("Add", "Sub")
        and any(graph.constant(name) for name in node.inputs)
        for node in nodes
    )


def _most(graph: OnnxGraph, scores: str) -> int:
    """Returns the number of boxes that a network's TopK keeps; 0 if all, or after a suppression."""
    after = later(graph, [scores])
    if any(node.op == "NonMaxSuppression" for node in after):
        return 0
    counts = [graph.value(node.input(1)) for node in after if node.op == "TopK"]
    return next((int(value.reshape(-1)[0]) for value in counts if value is not None), 0)


def _with_extra(
    model: Model, part: DistanceHead, extra: str, boxes: _Maps
) -> DistanceHead | Unlike:
    """Returns the head with mask coefficients, which are not decoded, or keypoints."""
    graph = model.graph
    count = graph.shape(extra)[1]
    maps = by_level(graph, region(graph, extra, MOVES).sources)
    if masks := maps.keys() == boxes.keys():
        prototypes = [
            name
            for name in graph.outputs
            if len(graph.shape(name)) == 4 and graph.shape(name)[1] == count
        ]
        if not prototypes:
            return _unlike(
                4, f"no output [batch, {count}, height, width] has the masks' prototypes"
            )
        size = graph.shape(prototypes[0])
        part = replace(
            part,
            prototypes=prototypes[0],
            prototype_stride=picture_stride(model, (size[2], size[3])),
        )
    else:
        way = region(graph, extra, MOVES | ARITHMETIC | {"Sigmoid"})
        maps = by_level(graph, way.sources)
        shapes = [graph.shape(node.outputs[0]) for node in way.nodes if node.op == "Reshape"]
        points = [shape for shape in shapes if len(shape) == 4 and shape[1] * shape[2] == count]
        if maps.keys() != boxes.keys() or not points:
            node = graph.producer(extra)
            name = node.name if node is not None else extra
            return _unlike(
                4, f"the values after the scores are neither masks nor keypoints: node {name!r}"
            )
        scalars = way.scalars(graph)
        part = replace(
            part,
            keypoints=points[-1][1],
            keypoint_size=points[-1][2],
            # Ultralytics doubles keypoints by a constant of 2; YOLO26 has no such constant
            reach=next((scalar for scalar in scalars if scalar > 1), 1.0),
        )
    if (masks and not part.prototype_stride) or any(len(names) != 1 for names in maps.values()):
        return _unlike(4, f"the maps of {extra!r} are not one a level")
    levels = zip(part.levels, maps.values(), strict=True)
    return replace(part, levels=tuple(replace(level, extra=name) for level, (name,) in levels))


def _family(metadata: Mapping[str, str], part: DistanceHead) -> str:
    """Returns the name in Ultralytics' metadata, or the names that have this structure."""
    named = re.search(r"Ultralytics (YOLO\S+) model", metadata.get("description", ""))
    if named:
        return named[1]
    name = "YOLO26" if part.bins == 1 else "YOLOv10" if part.most else "YOLOv8, v9, 11 or 12"
    return name + (" segmentation" if part.prototypes else " pose" if part.keypoints else "")
