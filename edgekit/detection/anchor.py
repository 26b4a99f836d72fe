"""Recognises the head of YOLOv5 and v7: boxes relative to anchors.

The network's own decoding concatenates a tensor [batch, places, 5 + classes + masks]; each level's
part [batch, anchors, height, width, n] is a concatenation of centres, sizes, probabilities and mask
coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.walk import (
    ARITHMETIC,
    MOVES,
    Region,
    class_names,
    joined,
    picture_stride,
    region,
    unexplained,
)
from edgekit.network.graph import OnnxGraph
from edgekit.network.model import Model
from edgekit_device.detection.head import AnchorHead, Head, Level

_FAMILY = "YOLOv5 or v7 (anchors)"
_FIRST_PARTS = (2, 2)  # centre, size
_BOX = 5

_Anchors = tuple[tuple[float, ...], ...]


def recognise_anchor(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head whose boxes are relative to anchors, or the difference.

    Args:
        model: The whole network.
        metadata: The file's metadata: ``names``.
    """
    graph = model.graph
    whole, tensors = _whole(graph)
    if not tensors:
        return _unlike(
            0,
            "no Concat joins levels [batch, anchors, height, width, 5 + classes] of centres, "
            "sizes and probabilities",
        )
    levels, anchors = [], []
    for tensor in tensors:
        level = _level(model, tensor)
        if isinstance(level, Unlike):
            return level
        levels.append(Level(level.stride, level.map))
        anchors.append(level.anchors)
    width = graph.shape(tensors[0])[-1]
    # mask coefficients come after centres, sizes and probabilities
    masks = sum(graph.shape(name)[-1] for name in joined(graph, tensors[0], 4)[3:])
    prototypes = [
        name
        for name in graph.outputs
        if masks and len(graph.shape(name)) == 4 and graph.shape(name)[1] == masks
    ]
    if masks and not prototypes:
        return _unlike(4, f"no output [batch, {masks}, height, width] has the masks' prototypes")
    if lost := unexplained(graph, [whole, *prototypes]):
        return _unlike(5, f"the network's output {lost!r} is neither boxes nor masks")
    size = graph.shape(prototypes[0]) if masks else (0, 0, 0, 0)
    head = Head(
        "YOLOv5 segmentation" if masks else "YOLOv5 or v7",
        (*(level.boxes for level in levels), *prototypes),
        class_names(metadata, width - _BOX - masks),
        anchor=AnchorHead(
            tuple(levels),
            tuple(anchors),
            masks,
            prototypes[0] if masks else "",
            picture_stride(model, (size[2], size[3])),
        ),
    )
    return Recognised(head, {"output": whole})


def _unlike(matched: int, differs: str) -> Unlike:
    return Unlike(_FAMILY, matched, differs)


def _whole(graph: OnnxGraph) -> tuple[str, list[str]]:
    """Returns the last tensor that joins levels, and the levels [batch, anchors, height, width, n];
    without levels if there is no such tensor.
    """
    found: tuple[str, list[str]] = "", []
    for node in graph.nodes():
        # a head of a single level joins nothing, but reshapes
        if node.op not in ("Concat", "Reshape") or len(graph.shape(node.outputs[0])) != 3:
            continue
        ways = [
            region(graph, name, MOVES - {"Concat"}).sources
            for name in joined(graph, node.outputs[0], 1)
        ]
        levels = [way[0] for way in ways if len(way) == 1 and _is_level(graph, way[0])]
        if len(levels) == len(ways):
            found = node.outputs[0], levels
    return found


def _is_level(graph: OnnxGraph, tensor: str) -> bool:
    if len(graph.shape(tensor)) != 5:
        return False
    widths = [graph.shape(name)[4] for name in joined(graph, tensor, 4)]
    return len(widths) in (3, 4) and tuple(widths[:2]) == _FIRST_PARTS


@dataclass(frozen=True)
class _Level:
    map: str
    stride: int
    anchors: _Anchors


def _level(model: Model, tensor: str) -> _Level | Unlike:
    graph = model.graph
    way = region(graph, tensor, MOVES | ARITHMETIC | {"Sigmoid"})
    _, count, height, width, values = graph.shape(tensor)
    if exponential := way.node("Exp"):
        return _unlike(
            2,
            f"sizes are exponentials, as of YOLOv3 and v4: node {exponential.name!r}; those of "
            "YOLOv5 are (2 x sigmoid) squared",
        )
    shapes = [graph.shape(name) for name in way.sources]
    if [shape[1:] for shape in shapes] != [(count * values, height, width)]:
        read = ", ".join(f"{name!r} {list(graph.shape(name))}" for name in way.sources)
        return _unlike(
            2,
            f"the level {tensor!r} is computed from {read}, not from one map "
            f"[batch, {count * values}, {height}, {width}]",
        )
    anchors = _anchors(graph, way, count)
    if not anchors:
        return _unlike(3, f"the level {tensor!r} multiplies by no constant of {count} anchors")
    stride = picture_stride(model, (height, width))
    if not stride:
        return _unlike(3, f"the level {tensor!r} of {height}x{width} places has no integer stride")
    return _Level(way.sources[0], stride, anchors)


def _anchors(graph: OnnxGraph, way: Region, count: int) -> _Anchors:
    """Returns width and height of the anchors: the constant [..., 2] that is the same for all
    places; empty if there is none.

    Sizes are (2 x sigmoid) squared times the anchors (YOLOv5), or sigmoid squared times a constant
    that is four times the anchors (YOLOv7).
    """
    factor = _factor(graph, way)
    for value in way.constants(graph):
        if value.ndim < 2 or value.shape[-1] != 2 or value.size % (2 * count):
            continue
        places = value.reshape(count, -1, 2).astype(np.float64) * factor
        # an export may repeat the anchors for every place
        if (places > 0).all() and (places == places[:, :1]).all():
            return tuple((float(width), float(height)) for width, height in places[:, 0])
    return ()


def _factor(graph: OnnxGraph, way: Region) -> float:
    """Returns the anchor's size for a constant of 1: 1 if the sigmoid is doubled before it is
    squared, else 1/4.
    """
    squares = [
        node
        for node in way.nodes
        if node.op == "Pow" or (node.op == "Mul" and node.inputs[0] == node.inputs[1])
    ]
    before = [region(graph, square.inputs[0], MOVES | {"Mul"}) for square in squares[:1]]
    return float(np.prod([value for part in before for value in part.scalars(graph)])) ** 2 / 4
