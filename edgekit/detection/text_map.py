"""Recognises PaddleOCR's DB detector of text: joined maps of a pyramid at a quarter of the
picture's size, a convolution, two transposed convolutions that double each, and a sigmoid.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.walk import before, shown
from edgekit.network.graph import Node, OnnxGraph
from edgekit.network.model import Model
from edgekit_device.detection.head import Head, TextMapHead
from edgekit_device.detection.text_map import PROBABILITY

_FAMILY = "DB (PaddleOCR's text detector)"
# operators between two convolutions that do not count as layers of the head
_BETWEEN = frozenset({"Add", "BatchNormalization", "Relu"})


def recognise_text_map(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head of a DB detector; the raw map is its sigmoid's input."""
    del metadata  # the file of a DB detector has no data about its head
    graph = model.graph
    size, output = graph.shape(graph.inputs[0]), graph.outputs[0]
    if len(graph.outputs) != 1:
        return Unlike(_FAMILY, 0, f"the network has {len(graph.outputs)} outputs, DB has one map")
    if len(size) != 4:
        name = graph.inputs[0]
        return Unlike(_FAMILY, 0, f"input {name!r} is {list(size)}, DB reads pictures")
    shape = graph.shape(output)
    if shape != (size[0], 1, *size[2:]):
        wanted = [size[0], 1, *size[2:]]
        return Unlike(_FAMILY, 0, f"output {output!r} is {list(shape)}, DB's map is {wanted}")
    last = graph.producer(output)
    if last is None or last.op != "Sigmoid":
        return Unlike(_FAMILY, 1, f"output {output!r} is not of a Sigmoid, but {shown(last)}")
    node: Node | None = last
    for place in ("last", "first"):
        node = _before(graph, node)
        if node is None or node.op != "ConvTranspose" or node.attrs.get("strides") != [2, 2]:
            why = f"DB's {place} transposed convolution of stride 2 is missing"
            return Unlike(_FAMILY, 2, f"{why}: there is {shown(node)}")
    node = _before(graph, node)
    joined = _before(graph, node) if node is not None and node.op == "Conv" else node
    if joined is None or joined.op != "Concat":
        return Unlike(_FAMILY, 3, f"DB joins the maps of a pyramid, here is {shown(joined)}")
    raw = last.input(0)
    head = Head(
        family="DB", outputs=(raw,), classes=("text",), text_map=TextMapHead(map=raw, sigmoid=True)
    )
    return Recognised(head, {PROBABILITY: output})


def _before(graph: OnnxGraph, node: Node | None) -> Node | None:
    """Returns the nearest layer before a node, without biases, normalisations and activations."""
    while node is not None:
        node = before(graph, node)
        if node is None or node.op not in _BETWEEN:
            return node
        if sum(not graph.constant(name) for name in node.inputs if name) > 1:
            return node  # a sum of two maps
    return None
