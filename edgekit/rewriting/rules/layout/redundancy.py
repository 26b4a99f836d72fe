"""Operations that change nothing or that stand twice go away."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.layout.views import (
    RESHAPES,
    again,
    is_reshape,
    moves_ones,
    normal,
    permutation,
    reduced_axes,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


# whichever neighbour is written again is proved again: rather the one with few weights
_HEAVY = 1 << 20


def forward(graph: RewriteGraph, node: Node, source: str) -> Match | None:
    """Matches the removal of a node whose only used result equals ``source``, which it reads.

    What writes ``source`` writes the result instead when nothing else reads ``source``; else one
    of the readers reads ``source``, the others in further applications. None when both is
    impossible: a result that is returned, of a source that others need.
    """
    output = node.outputs[0]
    if any(name and (graph.readers(name) or graph.returned(name)) for name in node.outputs[1:]):
        return None
    producer = graph.producer(source)
    reader = a_reader(graph, node)
    if (
        producer is not None
        and normal(producer)
        and graph.inner(source, (node,))
        and (reader is None or _weight(graph, producer) <= max(_HEAVY, _weight(graph, reader)))
    ):
        return Match((node, producer), (source, output))
    if reader is None or graph.returned(output):
        return None
    return Match((node, reader), (output, source))


def a_reader(graph: RewriteGraph, node: Node) -> Node | None:
    """Returns the first node that reads a node's first result and can be written again."""
    return next((item for item in graph.readers(node.outputs[0]) if normal(item)), None)


def without(graph: RewriteGraph, match: Match, new: Writer) -> None:
    """Writes what a match of :func:`forward` needs."""
    node, other = match.nodes
    was, now = match.facts
    if was in other.outputs:
        outputs = [now if name == was else name for name in other.outputs]
        new.many(other.op, other.inputs, outputs, name=other.name, **other.attrs)
        return
    again(graph, new, (node,), (other,))
    read_instead(new, other, was, now)


def read_instead(new: Writer, reader: Node, was: str, now: str) -> None:
    """Writes a node again, reading ``now`` where it read ``was``."""
    inputs = [now if name == was else name for name in reader.inputs]
    new.many(reader.op, inputs, reader.outputs, name=reader.name, **reader.attrs)


def _weight(graph: RewriteGraph, node: Node) -> int:
    return sum(math.prod(graph.shape(n)) for n in node.inputs if n and graph.constant(n))


# the constant on the right, or on either side, with which nothing changes
_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0, "Pow": 1.0}
_EITHER_SIDE = {"Mul", "Add"}
_OF_ONE = {"Concat", "Sum", "Max", "Min", "Mean"}
_POOLS = {"AveragePool", "MaxPool"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
# a maximum over one NaN is no NaN in ONNX Runtime, so that it is not the operation's input
_MAXIMA = {"MaxPool", "GlobalMaxPool"}
_MAKE_NAN = {"Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Mod", "Pow", "Reciprocal", "Sqrt"}
_REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}
# with one input that is an activation, those of the same shape and type change nothing
_BY_SHAPE = {"Identity", "Expand", "Tile", "Cast", "Split", "DepthToSpace", "SpaceToDepth"}


class IdentityRemoval:
    """What gives back its input -> nothing.

    Reshapes to the same shape, transpositions that move nothing, whole Slices, a Concat, Sum, Max,
    Min or Mean of one tensor, multiplication by the scalar 1, addition of the scalar 0, Clip
    without bounds, pools of one element, reductions over dimensions of size 1, Resize by 1,
    Expand and Cast to what it is. A result that the graph returns, of a tensor that others need
    too, stays.
    """

    name = "identity-removal"
    reason = "an operation that changes nothing may still be a layer that the DLA refuses"
    operators: tuple[str, ...] = (
        *RESHAPES,
        *sorted(_BY_SHAPE | _OF_ONE | _NEUTRAL.keys() | _POOLS | _GLOBAL_POOLS | _REDUCTIONS),
        *("Transpose", "Slice", "Clip", "Pad", "Resize"),
    )
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Looks whether the result is an input."""
        source = _source(graph, node)
        if source is None or graph.constant(source):
            return None
        same = graph.shape(source) == graph.shape(node.outputs[0])
        if not same or graph.dtype(source) != graph.dtype(node.outputs[0]):
            return None
        before = graph.producer(source)
        if node.op in _MAXIMA and before is not None and before.op in _MAKE_NAN:
            return None
        return forward(graph, node, source)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a neighbour that reads or writes past the node."""
        without(graph, match, new)


def _source(graph: RewriteGraph, node: Node) -> str | None:
    """The input that the result equals if it has the same shape and type."""
    if node.op in _NEUTRAL:
        return _neutral(graph, node)
    return node.inputs[0] if _idle(graph, node) else None


def _neutral(graph: RewriteGraph, node: Node) -> str | None:
    pairs = [(node.inputs[0], node.inputs[1])]
    if node.op in _EITHER_SIDE:
        pairs.append((node.inputs[1], node.inputs[0]))
    for data, factor in pairs:
        known = graph.constant(factor) and not graph.recipe(factor)
        if known and graph.scalar(factor) == _NEUTRAL[node.op]:
            return data
    return None


def _idle(graph: RewriteGraph, node: Node) -> bool:
    if node.op in _BY_SHAPE or is_reshape(graph, node) or node.op in _GLOBAL_POOLS:
        return True
    if node.op in _OF_ONE:
        return len(node.inputs) == 1
    if node.op == "Transpose":
        return moves_ones(graph.shape(node.inputs[0]), permutation(graph, node))
    if node.op == "Slice":
        steps = graph.ints(node.input(4)) if node.input(4) else [1]
        return steps is not None and all(step == 1 for step in steps)
    if node.op == "Pad":
        return not any(graph.ints(node.inputs[1]) or [1])
    if node.op == "Clip":
        return not any(node.inputs[1:])
    if node.op in _POOLS:
        ones = (*node.attrs["kernel_shape"], *node.attrs.get("strides", ()))
        return all(number == 1 for number in ones) and not any(node.attrs.get("pads", ()))
    if node.op == "Resize":
        return _resizes_by_one(graph, node)
    axes = reduced_axes(graph, node) if node.op in _REDUCTIONS else None
    return axes is not None and all(graph.shape(node.inputs[0])[axis] == 1 for axis in axes)


def _resizes_by_one(graph: RewriteGraph, node: Node) -> bool:
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False
    if node.input(3):
        return graph.constant(node.inputs[3])
    scales = graph.value(node.inputs[2]) if node.input(2) else None
    return scales is not None and all(float(item) == 1 for item in scales.reshape(-1))


_LOOKED_AT = 16


class ShareLayout:
    """Two equal Reshapes, or Transposes, of the same tensor -> one, which all readers read.

    One reader changes over at a time; a transposition or reshape that nothing reads is gone, so
    it ends. One that the graph returns is kept, otherwise the first.
    """

    name = "share-layout"
    reason = (
        "a tensor that several branches reshape or transpose in the same way, at the network's "
        "input for example, needs that once"
    )
    operators: tuple[str, ...] = (*RESHAPES, "Transpose")
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Looks for a node equal to ``node`` and for a node that can read that one."""
        if graph.returned(node.outputs[0]) or not _moves(graph, node):
            return None
        equal = [
            item
            for item in islice(graph.readers(node.inputs[0]), _LOOKED_AT)
            if item is node or _equal(graph, item, node)
        ]
        retained = next((item for item in equal if graph.returned(item.outputs[0])), None)
        retained = retained or next(iter(equal), node)
        reader = a_reader(graph, node)
        if retained is node or reader is None:
            return None
        return Match((node, retained, reader))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a reader that reads the other node."""
        node, retained, reader = match.nodes
        new.many(
            retained.op, retained.inputs, retained.outputs, name=retained.name, **retained.attrs
        )
        again(graph, new, (node,), (reader,))
        read_instead(new, reader, node.outputs[0], retained.outputs[0])


def _moves(graph: RewriteGraph, node: Node) -> bool:
    return is_reshape(graph, node) or (node.op == "Transpose" and not node.domain)


def _equal(graph: RewriteGraph, one: Node, other: Node) -> bool:
    if not _moves(graph, one) or one.inputs[0] != other.inputs[0]:
        return False
    if (one.op == "Transpose") != (other.op == "Transpose"):
        return False
    if one.op == "Transpose":
        return permutation(graph, one) == permutation(graph, other)
    return graph.shape(one.outputs[0]) == graph.shape(other.outputs[0])
