"""Recognises a recogniser of text lines that was trained by CTC: the picture's height becomes 1,
its columns become steps, and each step gets a class by a dense layer and a softmax.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.walk import before, shown
from edgekit.network.graph import Node, OnnxGraph
from edgekit.network.model import Model
from edgekit_device.detection.head import Head, TextLineHead
from edgekit_device.detection.text_line import PROBABILITIES

_FAMILY = "CTC (a recogniser of text lines)"
_DENSE = frozenset({"Gemm", "MatMul"})
_CHARACTERS = "character"  # PaddleOCR's key in a file's metadata: a character per line


def recognise_text_line(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head of a recogniser; its raw rows are the softmax's input.

    Args:
        model: The network.
        metadata: ``character`` has the characters, a character per line, without the blank; a space
            as the last class may be left out, as in PaddleOCR's files.
    """
    graph = model.graph
    size, output = graph.shape(graph.inputs[0]), graph.outputs[0]
    if len(graph.outputs) != 1:
        return Unlike(_FAMILY, 0, f"the network has {len(graph.outputs)} outputs, CTC has one")
    if len(size) != 4:
        name = graph.inputs[0]
        return Unlike(_FAMILY, 0, f"input {name!r} is {list(size)}, a line of text is a picture")
    shape = graph.shape(output)
    if len(shape) != 3:
        why = f"output {output!r} is {list(shape)}, CTC's is [batch, steps, classes]"
        return Unlike(_FAMILY, 0, why)
    last = graph.producer(output)
    if last is None or last.op != "Softmax" or last.attrs.get("axis", -1) not in (-1, 2):
        why = f"output {output!r} is of {shown(last)}, not a Softmax of classes"
        return Unlike(_FAMILY, 0, why)
    dense = _dense(graph, last.input(0))
    if dense is None:
        why = f"{shown(last)} reads no dense layer with a class for each column of weights"
        return Unlike(_FAMILY, 1, why)
    steps, classes = shape[1:]
    if not _columns(graph, dense, steps):
        why = f"the {steps} steps before {shown(dense)} are not a map of height 1 and that width"
        return Unlike(_FAMILY, 2, why)
    characters = _characters(metadata, classes)
    if isinstance(characters, str):
        return Unlike(_FAMILY, 3, characters)
    raw = last.input(0)
    part = TextLineHead(rows=raw, softmax=True, characters=characters, size=size[2:])
    return Recognised(Head(family="CTC", outputs=(raw,), text_line=part), {PROBABILITIES: output})


def _dense(graph: OnnxGraph, tensor: str) -> Node | None:
    """Returns the layer that multiplies with weights [features, classes], before its bias."""
    classes = graph.shape(tensor)[-1]
    node = graph.producer(tensor)
    while node is not None and node.op in ("Add", "Reshape"):
        node = before(graph, node)
    if node is None or node.op not in _DENSE or not graph.constant(node.input(1)):
        return None
    return node if classes in graph.shape(node.input(1)) else None


def _columns(graph: OnnxGraph, dense: Node, steps: int) -> bool:
    """Returns True if a dense layer's input was a map of height 1 with a column for each step."""
    tensors, seen = [dense.input(0)], set()
    while tensors:
        tensor = tensors.pop()
        shape = graph.shape(tensor)
        if len(shape) == 4 and shape[2:] == (1, steps):
            return True
        node = graph.producer(tensor)
        # a convolution's input is another map: the columns are not found there
        if tensor not in seen and node is not None and node.op != "Conv":
            seen.add(tensor)
            tensors += [name for name in node.inputs if name and not graph.constant(name)]
    return False


def _characters(metadata: Mapping[str, str], classes: int) -> tuple[str, ...] | str:
    """Returns the characters, or why they are unknown."""
    if _CHARACTERS not in metadata:
        return (
            f"the characters of its {classes} classes are unknown: the file's metadata has no "
            f"{_CHARACTERS!r} (one character a line)"
        )
    found = metadata[_CHARACTERS].removesuffix("\n").split("\n")
    found = [character.removesuffix("\r") for character in found]
    if len(found) + 2 == classes:
        found.append(" ")
    if len(found) + 1 != classes:
        return (
            f"the metadata's {_CHARACTERS!r} has {len(found)} characters, which with the blank are "
            f"not its {classes} classes"
        )
    return tuple(found)
