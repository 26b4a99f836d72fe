"""Recognises the head of YOLOX: for each level a Concat joins the map of boxes with the sigmoids of
the objectness and of the classes; another joins the levels to [batch, places, 5 + classes].

YOLOX's export leaves the grid to the user; with ``--decode_in_inference`` boxes are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgekit.detection.decoding import decoding
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.walk import MOVES, class_names, picture_stride, unexplained
from edgekit.network.graph import OnnxGraph
from edgekit.network.model import Model
from edgekit_device.detection.head import Head, Level, PointHead

_FAMILY = "YOLOX (a centre and a size for each place)"


def recognise_point(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head with a centre and a size for each place, or the difference.

    Args:
        model: The whole network.
        metadata: The file's metadata; ``names`` are the classes.
    """
    graph = model.graph
    found = _levels(model)
    if not found:
        return Unlike(
            _FAMILY,
            0,
            "no Concat joins a map of 4 channels with the Sigmoid of one and that of the classes",
        )
    channels = {graph.shape(name)[1] for name in found}
    for level in found.values():
        if not level.stride:
            sizes, inputs = graph.shape(level.boxes), [graph.shape(name) for name in graph.inputs]
            return Unlike(
                _FAMILY, 1, f"the map {level.boxes} of {sizes} is no grid over an input of {inputs}"
            )
    places = sum(math.prod(graph.shape(name)[2:]) for name in found)
    joined = _joined(graph, set(found), places)
    if not joined or len(channels) != 1:
        names = ", ".join(found)
        return Unlike(_FAMILY, 1, f"no tensor joins {names} to [batch, places, 5 + classes]")
    maps = [
        name for level in found.values() for name in (level.boxes, level.objectness, level.scores)
    ]
    if lost := unexplained(graph, maps):
        return Unlike(_FAMILY, 2, f"the output {lost} is not computed from the levels' maps")
    own = decoding(graph, joined, "Exp")
    part = PointHead(tuple(found.values()), decoded=own is not None)
    names_ = class_names(metadata, channels.pop() - 5)
    assumed = "" if own else "the file has no grid: boxes are decoded as YOLOX does"
    head = Head("YOLOX", tuple(maps), names_, assumed, point=part)
    return Recognised(head, {"output": own.result if own else joined})


def _levels(model: Model) -> dict[str, Level]:
    """Returns the levels by the tensor that joins their maps, in graph order."""
    graph = model.graph
    found = {}
    for node in graph.nodes():
        shape = graph.shape(node.outputs[0])
        if node.op != "Concat" or len(node.inputs) != 3 or len(shape) != 4:
            continue
        before = [graph.producer(name) for name in node.inputs[1:]]
        raw = [node.inputs[0] for node in before if node is not None and node.op == "Sigmoid"]
        widths = [graph.shape(name)[1] for name in node.inputs]
        if len(raw) == 2 and widths[:2] == [4, 1] and node.attrs["axis"] in (1, -3):
            step = picture_stride(model, (shape[2], shape[3]))
            # a document's stride is 1 or more; 0 is refused by the caller
            found[node.outputs[0]] = Level(step, node.inputs[0], raw[1], raw[0])
    return found


def _joined(graph: OnnxGraph, levels: set[str], places: int) -> str:
    """Returns the tensor with a row for each place; "" if there is none."""
    moved = set(levels)
    for node in graph.nodes():
        reads = [name for name in node.reads() if not graph.constant(name)]
        if node.op in MOVES and reads and moved.issuperset(reads):
            moved.update(node.outputs)
            shape = graph.shape(node.outputs[0])
            if len(shape) == 3 and shape[1] == places and reads != [*levels]:
                return node.outputs[0]
    return ""
