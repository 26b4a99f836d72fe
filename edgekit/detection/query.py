"""Recognises detectors with queries: DETR, conditional and deformable DETR, RT-DETR and D-FINE.

Both heads read the output of self-attention over the queries: a linear layer gives the classes'
logits [batch, queries, classes], and a sigmoid the boxes [batch, queries, 4] (D-FINE computes them
from corners). The graph does not contain the softmax or sigmoid of the logits, which is left to the
user. The boxes show it: networks that add their values to reference points are trained with the
focal loss, which uses sigmoids (conditional, deformable, DAB, RT-DETR and D-FINE); networks whose
boxes come from the linear layer alone have DETR's softmax with "no object" as its last class (DETR,
YOLOS, Table Transformer).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from edgekit.detection.recognised import Differs, Recognised, Unlike
from edgekit.detection.walk import class_names, picture, unexplained
from edgekit.network.graph import Node, OnnxGraph
from edgekit.network.model import SAME_VALUES, Model
from edgekit_device.detection.head import Head, QueryHead

_FAMILY = "DETR"
_LINEAR = frozenset({"Conv", "Gemm", "MatMul"})
_ACTIVATIONS = frozenset({"Gelu", "HardSwish", "LeakyRelu", "Mul", "Relu", "Silu"})
_NORMALIZED = ("Sigmoid", "Softmax")


@dataclass(frozen=True)
class _Boxes:
    """The tensors of the boxes.

    Attributes:
        own: The tensor [batch, queries, 4] with centres and sizes.
        raw: The tensor at which the network is cut.
        family: Display name.
        reference: True if reference points are added.
    """

    own: str
    raw: str
    family: str
    reference: bool


def recognise_query(model: Model, metadata: Mapping[str, str]) -> Recognised | Unlike:
    """Returns the head of a detector with queries, or the difference.

    Args:
        model: The whole network, with static shapes.
        metadata: The file's metadata.
    """
    try:
        found = _recognise_outputs(model)
    except Differs as error:
        return Unlike(_FAMILY, error.matched, error.differs)
    part = found.head.query
    assert part is not None
    # the last class of a softmax is "no object"
    classes = model.graph.shape(part.logits)[2] - (part.scores == "softmax")
    return replace(found, head=replace(found.head, classes=class_names(metadata, classes)))


def _recognise_outputs(model: Model) -> Recognised:
    graph = model.graph
    last = [graph.producer(_source(graph, name)) for name in graph.outputs]
    if len(last) == 1 and last[0] is not None and last[0].op == "Concat":
        return _recognise_joined(model, last[0])
    # RT-DETR's own post-processing: TopK over queries and classes, then GatherElements of boxes
    gathered = [node for node in last if node is not None and node.op == "GatherElements"]
    tops = [
        name
        for name, node in zip(graph.outputs, last, strict=True)
        if node is not None and node.op == "TopK"
    ]
    if len(gathered) == len(tops) == 1:
        return _recognise_selected(model, gathered[0], _source(graph, tops[0]))
    return _recognise_pair(model)


def _recognise_pair(model: Model) -> Recognised:
    """Returns the head of a network that writes logits and boxes as separate outputs."""
    graph = model.graph
    shapes = {name: graph.shape(name) for name in graph.outputs}
    pairs = [
        (logits, boxes)
        for boxes, shape in shapes.items()
        for logits, other in shapes.items()
        if logits != boxes and len(shape) == len(other) == 3 and shape[:2] == other[:2]
        if shape[2] == 4
    ]
    if not pairs:
        found = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise Differs(
            0,
            "no two outputs are [batch, queries, classes] and [batch, queries, 4] with equal "
            f"queries; the outputs are {found}",
        )
    # several pairs may fit by their shapes: the error is that of the pair that matched furthest
    differences = []
    for logits, boxes in pairs:
        try:
            return _recognise_head(model, logits, _boxes(graph, boxes))
        except Differs as error:
            differences.append(error)
    raise max(differences, key=lambda difference: difference.matched)


def _recognise_joined(model: Model, concat: Node) -> Recognised:
    """Returns the head of Ultralytics' RT-DETR, whose only output has boxes and scores side by
    side; newer releases keep the best pairs of a query and a class.
    """
    graph = model.graph
    gathered = graph.producer(_source(graph, concat.inputs[0]))
    if gathered is not None and gathered.op == "GatherElements" and len(concat.inputs) == 3:
        return _recognise_selected(model, gathered, _source(graph, concat.inputs[1]))
    if len(concat.inputs) != 2:
        raise Differs(0, f"{concat.name} joins {len(concat.inputs)} tensors, not boxes and scores")
    boxes, scores = concat.inputs
    return _recognise_head(model, scores, _boxes(graph, boxes), activated=True)


def _recognise_selected(model: Model, gathered: Node, best: str) -> Recognised:
    """Returns the head of a network that keeps the best pairs of a query and a class."""
    graph = model.graph
    top = graph.producer(best)
    if top is None or top.op != "TopK" or best != top.outputs[0]:
        raise Differs(1, f"{gathered.name} gathers boxes, but {best} are no values of a TopK")
    same = [name for name in _same_values(graph, top.inputs[0]) if len(graph.shape(name)) == 3]
    flat = graph.shape(top.inputs[0])
    along = top.attrs.get("axis", -1) in (1, -1)
    if not same or len(flat) != 2 or not along or not top.attrs.get("largest", 1):
        raise Differs(1, f"{top.name} does not take the largest of [batch, queries * classes]")
    scores = same[0]
    _check_division(graph, gathered.inputs[1], top.outputs[1], graph.shape(scores)[2])
    kept = graph.shape(best)[-1]
    boxes = _nearest_boxes(graph, gathered.inputs[0])
    found = _recognise_head(model, scores, boxes, most=kept, activated=True)
    return Recognised(found.head, {**found.own, "best": best})


def _nearest_boxes(graph: OnnxGraph, tensor: str) -> _Boxes:
    """Returns the boxes that a network's own post-processing converts to corners and pixels."""
    first: Differs | None = None
    for node in _before(graph, tensor):
        if graph.shape(node.outputs[0])[2:] == (4,):
            try:
                return _boxes(graph, node.outputs[0])
            except Differs as error:
                first = first or error
    raise first or Differs(1, f"{tensor} is not computed from boxes [batch, queries, 4]")


def _check_division(graph: OnnxGraph, index: str, best: str, classes: int) -> None:
    """Checks that a pair's query is its TopK index divided by the number of classes."""
    for node in _before(graph, index):
        if node.op == "Div" and node.inputs[0] == best:
            value = graph.value(node.inputs[1])
            if value is not None and value.size == 1 and int(value.reshape(())) == classes:
                return
            raise Differs(1, f"{node.name} does not divide by the {classes} classes")
    raise Differs(1, f"{index} is not computed from the places that TopK found")


def _recognise_head(
    model: Model, own: str, boxes: _Boxes, *, most: int = 0, activated: bool = False
) -> Recognised:
    graph = model.graph
    scores = _raw(graph, own)
    node = graph.producer(scores)
    logits, function = scores, ""
    if node is not None and node.op in _NORMALIZED:
        logits, function = _raw(graph, node.inputs[0]), node.op.lower()
    elif activated:
        raise Differs(2, f"{scores} is written by {_node_text(node)}, not by a Sigmoid")
    linear = _linear(graph, logits)
    # D-FINE adds a quality [batch, queries, 1] to the logits, and its layer may be the nearest
    if linear is None or graph.shape(linear.outputs[0])[-1] not in (graph.shape(logits)[-1], 1):
        raise Differs(
            2, f"{logits} is not the result of a linear layer with constant weights, as logits are"
        )
    features, other = _features(graph, logits), _features(graph, boxes.raw)
    # D-FINE computes boxes from a distribution over corners, not from the features directly
    if boxes.family != "D-FINE" and features != other:
        raise Differs(
            3, f"classes are computed from {features}, boxes from {other}: queries have one vector"
        )
    _, queries, classes = graph.shape(logits)
    if not _attention(graph, features, queries):
        raise Differs(3, f"no self-attention over {queries} queries is before {features}")
    kind = function or ("sigmoid" if boxes.reference else "softmax")
    if kind == "softmax" and classes < 2:
        raise Differs(3, f"{logits} has one class, which is no object")
    if (size := picture(model)) is None:
        raise Differs(4, "no input, or more than one, is a picture with 4 dimensions")
    if lost := unexplained(graph, [logits, boxes.raw]):
        raise Differs(5, f"the network's output {lost!r} is neither classes nor boxes")
    part = QueryHead(logits, boxes.raw, kind, boxes.family != "D-FINE", size, most)
    named = {"scores" if function else "logits": scores}
    return Recognised(
        Head(boxes.family, (logits, boxes.raw), query=part), {**named, "boxes": boxes.own}
    )


def _boxes(graph: OnnxGraph, own: str) -> _Boxes:
    raw = _raw(graph, own)
    node = graph.producer(raw)
    if graph.shape(raw)[2:] != (4,):
        raise Differs(0, f"{raw} is {list(graph.shape(raw))}, not [batch, queries, 4]")
    if node is not None and node.op == "Concat":
        _check_corners(graph, node)
        return _Boxes(raw, raw, "D-FINE", True)
    if node is None or node.op != "Sigmoid":
        raise Differs(
            1,
            f"the boxes {raw} are written by {_node_text(node)}, not by a Sigmoid or from corners",
        )
    before = _raw(graph, node.inputs[0])
    added = graph.producer(before)
    while added is not None and added.op in SAME_VALUES | {"Add"}:
        computed = [name for name in added.inputs if not _constant(graph, name)]
        if len(computed) != 1:
            break
        added = graph.producer(computed[0])
    if added is not None and added.op in _LINEAR:
        return _Boxes(raw, before, "DETR", False)
    # a reference point that the sigmoid's inverse maps has all four values
    whole = added is not None and any(
        (node := graph.producer(_raw(graph, name))) is not None and node.op == "Log"
        for name in added.inputs
    )
    return _Boxes(raw, before, "RT-DETR" if whole else "conditional DETR", True)


def _check_corners(graph: OnnxGraph, joined: Node) -> None:
    """Checks that boxes are ((left + right) / 2, ..., right - left, ...) of four values."""
    parts = [graph.producer(_source(graph, name)) for name in joined.inputs]
    operators = [node.op if node is not None else "an input" for node in parts]
    halves = {"Div": 2.0, "Mul": 0.5}
    if operators[2:] != ["Sub", "Sub"] or not halves.keys() >= set(operators[:2]):
        raise Differs(1, f"{joined.name} joins {', '.join(operators)}, not centres and sizes")
    for half, size in zip(parts[:2], parts[2:], strict=True):
        assert half is not None
        assert size is not None
        total = graph.producer(half.inputs[0])
        value = graph.value(half.input(1))
        if value is None or value.size != 1 or float(value.reshape(())) != halves[half.op]:
            raise Differs(1, f"{half.name} does not halve")
        if total is None or total.op != "Add" or set(total.inputs) != set(size.inputs):
            raise Differs(1, f"{half.name} and {size.name} are not of the same two sides")


def _attention(graph: OnnxGraph, tensor: str, queries: int) -> bool:
    """Returns True if there is attention over at least ``queries`` tokens before a tensor."""
    for node in _before(graph, tensor):
        if node.op == "Attention":
            return True
        if node.op == "Softmax":
            shape = graph.shape(node.outputs[0])
            # the weights of self-attention are square; YOLOS has the picture's patches as tokens,
            # too
            if len(shape) > 2 and shape[-1] == shape[-2] >= queries:
                return True
    return False


def _features(graph: OnnxGraph, tensor: str) -> str:
    """Returns the input of the last linear layers, a chain with activations between them."""
    while (linear := _linear(graph, tensor)) is not None:
        computed = next(name for name in linear.inputs if not _constant(graph, name))
        tensor = _source(graph, computed)
        node = graph.producer(tensor)
        if node is None or node.op not in _ACTIVATIONS:
            return tensor
    return tensor


def _linear(graph: OnnxGraph, tensor: str) -> Node | None:
    """Returns the nearest linear layer with constant weights before a tensor."""
    for node in _before(graph, tensor):
        if node.op in _LINEAR:
            # a product of two activations is attention: the walk has left the head
            return node if any(_constant(graph, name) for name in node.inputs) else None
    return None


def _constant(graph: OnnxGraph, tensor: str) -> bool:
    return not tensor or graph.constant(tensor) or tensor in graph.derived


def _before(graph: OnnxGraph, tensor: str) -> Iterator[Node]:
    """Yields the nodes before a tensor, the nearest first."""
    seen = set()
    left = deque([tensor])
    while left:
        node = graph.producer(left.popleft())
        if node is not None and node.name not in seen:
            seen.add(node.name)
            yield node
            left += [name for name in node.inputs if not _constant(graph, name)]


def _raw(graph: OnnxGraph, tensor: str) -> str:
    """Returns the first tensor with the values and the shape of ``tensor``.

    Reshapes, and the selection of one of several stacked layers, are skipped.
    """
    found, shape = tensor, graph.shape(tensor)
    for name in _same_values(graph, tensor):
        if graph.shape(name) == shape:
            found = name
    return found


def _source(graph: OnnxGraph, tensor: str) -> str:
    """Returns the first tensor with the values of ``tensor``, of any shape."""
    return list(_same_values(graph, tensor))[-1]


def _same_values(graph: OnnxGraph, tensor: str) -> Iterator[str]:
    yield tensor
    while (node := graph.producer(tensor)) is not None:
        if node.op in SAME_VALUES - {"Transpose"}:
            tensor = node.inputs[0]
        elif node.op == "Gather" and (layer := _stacked(graph, node)):
            tensor = layer
        else:
            return
        yield tensor


def _stacked(graph: OnnxGraph, gather: Node) -> str:
    """Returns the tensor that a Gather selects from a Concat's stack; "" if there is no stack."""
    stack, index = graph.producer(gather.inputs[0]), graph.value(gather.inputs[1])
    if stack is None or stack.op != "Concat" or index is None or index.size != 1:
        return ""
    rank = len(graph.shape(stack.outputs[0]))
    axis = stack.attrs["axis"] % rank
    sizes = {graph.shape(name)[axis] for name in stack.inputs}
    if gather.attrs.get("axis", 0) % rank != axis or sizes != {1}:
        return ""
    return stack.inputs[int(index.reshape(())) % len(stack.inputs)]


def _node_text(node: Node | None) -> str:
    return "nothing" if node is None else f"{node.name} ({node.op})"
