"""Operators by what they do with dimensions, and how their axes are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.network._layers_pointwise import ACTIVATIONS, ELEMENTWISE
from edgekit.network._layers_pointwise import UNARY as FUNCTIONS

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = [
    "ALONG",
    "BROADCASTING",
    "REDUCTIONS",
    "SINGLE",
    "normal",
    "parameters",
    "reduced_axes",
    "reduces_by_input",
]

# one activation, element by element; what else they read has one element
SINGLE = (
    *ACTIVATIONS,
    *FUNCTIONS,
    "HardSwish",
    "Mish",
    "Swish",
    "Shrink",
    "Cast",
    "QuantizeLinear",
    "DequantizeLinear",
)
# element by element, all operands broadcast
BROADCASTING = (*ELEMENTWISE, "Mean", "Where", "PRelu")
ALONG = ("Softmax", "LogSoftmax", "Hardmax")
REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
_SUM_AXES_INPUT = 13
_AXES_INPUT = 18


def normal(node: Node) -> bool:
    """Whether a node can be written again: of ai.onnx, without graphs inside."""
    return not node.domain and node.op not in {"If", "Loop", "Scan", "SequenceMap"}


def parameters(graph: Graph, node: Node, first: int) -> bool:
    """Whether the inputs from ``first`` on are left out or constants of one element."""
    return all(
        not name or (graph.constant(name) and all(side == 1 for side in graph.shape(name)))
        for name in node.inputs[first:]
    )


def reduces_by_input(op: str, opset: int) -> bool:
    """Whether a reduction reads its axes as an input."""
    return opset >= (_SUM_AXES_INPUT if op == "ReduceSum" else _AXES_INPUT)


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Returns the axes of a reduction from 0 on; None where they are computed or there are none."""
    rank = graph.rank(node.inputs[0])
    if node.input(1):
        given = graph.ints(node.inputs[1])
        if given is None:
            return None
    else:
        given = list(node.attrs.get("axes") or ())
    if not given and node.attrs.get("noop_with_empty_axes"):
        return None
    return tuple(sorted(axis % rank for axis in given or range(rank)))
