"""Scales around a convolution: y = factor x + shift for each channel, as recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite.convolution._common import product, vector

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Scale", "scale_of", "write_scale"]

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})


@dataclass(frozen=True, slots=True)
class Scale:
    """A node that scales or shifts each channel by constants.

    Attributes:
        node: BatchNormalization, Add, Sub, Mul or Div.
        data: The activation it reads.
        channels: Of the activation.
        operand: The constant of arithmetic; "" for a BatchNormalization.
        turned: The constant is the left operand.
    """

    node: Node
    data: str
    channels: int
    operand: str = ""
    turned: bool = False

    @property
    def shifts(self) -> bool:
        """Whether it adds something."""
        return self.node.op not in {"Mul", "Div"}


def scale_of(graph: Graph, node: Node | None) -> Scale | None:
    """Returns what a node does to each channel of [N, C, H, W]; None when it does anything else."""
    if node is None or node.domain or not node.outputs:
        return None
    if node.op == "BatchNormalization":
        return _batch_norm(graph, node)
    if node.op not in _ARITHMETIC:
        return None
    fixed = [graph.constant(name) for name in node.inputs]
    if sum(fixed) != 1:
        return None
    data, operand = node.inputs if fixed[1] else tuple(reversed(node.inputs))
    if graph.rank(data) != 4 or not graph.floats(data) or (fixed[0] and node.op == "Div"):
        return None
    channels, shape = graph.shape(data)[1], graph.shape(operand)
    per_channel = len(shape) in {3, 4} and product(shape) == channels == shape[-3]
    if len(shape) > 4 or not (product(shape) == 1 or per_channel):
        return None
    return Scale(node, data, channels, operand, fixed[0])


def _batch_norm(graph: Graph, node: Node) -> Scale | None:
    data = node.inputs[0]
    others = [name for name in node.outputs[1:] if name]
    if others or node.attrs.get("training_mode", 0) or not graph.floats(data):
        return None
    if graph.rank(data) != 4 or not all(graph.constant(name) for name in node.inputs[1:]):
        return None
    # statistics may have a type of their own
    if len({graph.dtype(name) for name in node.inputs}) > 1:
        return None
    return None if graph.constant(data) else Scale(node, data, graph.shape(data)[1])


def write_scale(graph: Graph, new: Writer, scale: Scale) -> tuple[str, str]:
    """Returns factor and shift as constants of [channels]; "" where there is none."""
    node = scale.node
    if node.op == "BatchNormalization":
        gamma, beta, mean, variance = node.inputs[1:5]
        epsilon = new.constant(float(node.attrs.get("epsilon", 1e-5)))
        spread = new.node("Sqrt", [new.node("Add", [variance, epsilon])])
        factor = new.node("Div", [gamma, spread])
        return factor, new.node("Sub", [beta, new.node("Mul", [mean, factor])])
    operand = vector(graph, new, scale.operand, scale.channels)
    if node.op == "Add":
        return "", operand
    if node.op == "Mul":
        return operand, ""
    if node.op == "Div":
        return new.node("Reciprocal", [operand]), ""
    if scale.turned:
        minus = new.node("Expand", [new.constant([-1.0]), new.constant([scale.channels])])
        return minus, operand
    return "", new.node("Neg", [operand])
