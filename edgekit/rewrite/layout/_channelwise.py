"""Operators that treat every channel alone, and what they know about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["Channelwise", "channelwise", "mixes_channels"]

_SAME_FOR_ALL = frozenset(
    [
        *("Abs", "AveragePool", "Clip", "Cos", "Elu", "Erf", "Exp", "GlobalAveragePool"),
        *("GlobalMaxPool", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "MaxPool", "Mish"),
        *("Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt"),
        "Tanh",
    ]
)
_WITH_CONSTANT = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"})


@dataclass(frozen=True, slots=True)
class Channelwise:
    """What an operator reads.

    Attributes:
        data: Position of its only activation.
        axes: Axis along the channels of its constants that have one, by position.
    """

    data: int
    axes: Mapping[int, int]


def channelwise(graph: Graph, node: Node) -> Channelwise | None:
    """Returns what a node that treats every channel of a 4-D tensor alone reads; else None."""
    if node.domain or len(node.outputs) != 1 or graph.rank(node.outputs[0]) != 4:
        return None
    data = [i for i, name in enumerate(node.inputs) if name and not graph.constant(name)]
    if len(data) != 1 or graph.rank(node.inputs[data[0]]) != 4:
        return None
    channels = graph.shape(node.inputs[data[0]])[1]
    if node.op in _SAME_FOR_ALL:
        return Channelwise(0, {}) if data == [0] else None
    if node.op == "BatchNormalization":
        return Channelwise(0, dict.fromkeys(range(1, 5), 0)) if data == [0] else None
    if node.op == "Conv":
        shape = graph.shape(node.inputs[1]) if data == [0] else ()
        depthwise = node.attrs.get("group", 1) == channels and shape[:2] == (channels, 1)
        return Channelwise(0, {1: 0, 2: 0}) if depthwise and channels > 1 else None
    if node.op not in _WITH_CONSTANT or len(node.inputs) != 2:
        return None
    other = 1 - data[0]
    shape = graph.shape(node.inputs[other])
    if graph.shape(node.outputs[0]) != graph.shape(node.inputs[data[0]]):
        return None
    axis = len(shape) - 3
    has_channels = axis >= 0 and shape[axis] != 1
    return Channelwise(data[0], {other: axis} if has_channels else {})


def mixes_channels(graph: Graph, node: Node) -> bool:
    """Whether a node is an ungrouped 2-D convolution with constant weights."""
    return (
        node.op == "Conv"
        and not node.domain
        and node.attrs.get("group", 1) == 1
        and graph.rank(node.inputs[0]) == 4
        and all(graph.constant(name) for name in node.inputs[1:] if name)
        and not graph.constant(node.inputs[0])
    )
