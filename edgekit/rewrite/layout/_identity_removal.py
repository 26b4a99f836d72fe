"""Operations that change nothing go away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._forward import forward, without
from edgekit.rewrite.layout._operators import reduced_axes
from edgekit.rewrite.layout._views import RESHAPES, is_reshape, moves_ones, permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["IdentityRemoval"]

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

    def match(self, graph: Graph, node: Node) -> Match | None:
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

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a neighbour that reads or writes past the node."""
        without(graph, match, new)


def _source(graph: Graph, node: Node) -> str | None:
    """The input that the result equals if it has the same shape and type."""
    if node.op in _NEUTRAL:
        return _neutral(graph, node)
    return node.inputs[0] if _idle(graph, node) else None


def _neutral(graph: Graph, node: Node) -> str | None:
    pairs = [(node.inputs[0], node.inputs[1])]
    if node.op in _EITHER_SIDE:
        pairs.append((node.inputs[1], node.inputs[0]))
    for data, factor in pairs:
        known = graph.constant(factor) and not graph.recipe(factor)
        if known and graph.scalar(factor) == _NEUTRAL[node.op]:
            return data
    return None


def _idle(graph: Graph, node: Node) -> bool:
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


def _resizes_by_one(graph: Graph, node: Node) -> bool:
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False
    if node.input(3):
        return graph.constant(node.inputs[3])
    scales = graph.value(node.inputs[2]) if node.input(2) else None
    return scales is not None and all(float(item) == 1 for item in scales.reshape(-1))
