"""MatMul with a constant matrix as a 1x1 convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.convolution._common import product
from edgekit.rewrite.convolution._dense import (
    Dense,
    Source,
    bias_of,
    image_of,
    per_column,
    pointwise,
    write_dense,
)

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["MatMulToConv"]

_RANKS = (2, 3, 4)
# channels last to channels first, and back
_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_SWAPPED = [0, 2, 1, 3]


@dataclass(frozen=True, slots=True)
class _Facts:
    dense: Dense
    matrix_first: bool
    output: str


class MatMulToConv:
    """MatMul(x, W) -> a 1x1 convolution over x's last axis, with the Add behind it as its bias.

    Rows [N, C] become images as Gemm's do; [N, L, C] and [N, H, W, C] are transposed to channels
    first and back. MatMul(W, x) works along x's last axis but one: no transposition is needed
    for [N, C, L]. A matrix for each batch stays, there is no convolution with several weights.
    """

    name = "matmul-to-conv"
    reason = (
        "the DLA has no matrix product; one with a constant matrix is a 1x1 convolution over "
        "the channels"
    )
    operators: tuple[str, ...] = ("MatMul",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """MatMul of an activation of 2 to 4 dimensions and one constant matrix."""
        fixed = [graph.constant(name) for name in node.inputs]
        if sum(fixed) != 1 or not graph.floats(node.outputs[0]):
            return None
        data, weight = node.inputs if fixed[1] else reversed(node.inputs)
        rank, matrix = graph.rank(data), graph.shape(weight)
        several = product(matrix[:-2]) != 1 or len(matrix) > rank
        if rank not in _RANKS or len(matrix) < 2 or several:
            return None
        columns = matrix[-2] if fixed[0] else matrix[-1]
        nodes, bias, output = [node], "", node.outputs[0]
        add = None if fixed[0] else graph.only_reader(output)
        found = _bias(graph, add, output, columns)
        if add is not None and found:
            nodes, bias, output = [node, add], found, add.outputs[0]
        source = Source(data, graph.shape(data))
        if rank == 2 and fixed[1]:
            source = image_of(graph, data, node)
            nodes += source.views
        dense = Dense(source, weight, fixed[0], columns, bias)
        return Match(tuple(nodes), _Facts(dense, fixed[0], output))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """The convolution between what brings the channels to their place."""
        facts: _Facts = match.facts
        dense, name = facts.dense, match.nodes[0].name
        weight, matrix = dense.weight, graph.shape(dense.weight)[-2:]
        if graph.rank(weight) > 2:
            weight = new.node("Reshape", [weight, new.constant(list(matrix))])
            dense = replace(dense, weight=weight)
        if graph.rank(match.nodes[0].inputs[0]) == 2 and not facts.matrix_first:
            write_dense(graph, new, dense, facts.output, name)
            return
        if not facts.matrix_first:
            weight = new.node("Transpose", [weight], perm=[1, 0])
        depth = matrix[1 if facts.matrix_first else 0]
        weight = new.node("Reshape", [weight, new.constant([dense.columns, depth, 1, 1])])
        bias = bias_of(graph, new, dense)
        if facts.matrix_first:
            _columns(graph, new, facts, weight, name)
        else:
            _rows(graph, new, facts, weight, bias, name)


def _bias(graph: Graph, add: Node | None, tensor: str, columns: int) -> str:
    """The constant that an Add behind the product adds for each column; "" when there is none."""
    if add is None or add.op != "Add" or add.domain:
        return ""
    other = next((name for name in add.inputs if name != tensor), "")
    if not other or not graph.constant(other) or not per_column(graph.shape(other), columns):
        return ""
    return other if graph.rank(other) <= graph.rank(tensor) else ""


def _rows(graph: Graph, new: Writer, facts: _Facts, weight: str, bias: str, name: str) -> None:
    """[N, L, C] or [N, H, W, C]."""
    data, shape = facts.dense.source.tensor, facts.dense.source.shape
    flat = len(shape) == 3
    if flat:
        wide = new.constant([shape[0], shape[1], 1, shape[2]])
        data = new.node("Reshape", [data, wide], name=f"{name}:image")
    data = new.node("Transpose", [data], name=f"{name}:first", perm=_FIRST)
    made = pointwise(new, data, weight, bias, name)
    last = "" if flat else facts.output
    made = new.node("Transpose", [made], output=last, name=f"{name}:last", perm=_LAST)
    if flat:
        rows = new.constant([*shape[:-1], facts.dense.columns])
        new.node("Reshape", [made, rows], output=facts.output, name=f"{name}:rows")


def _columns(graph: Graph, new: Writer, facts: _Facts, weight: str, name: str) -> None:
    """The matrix on the left: [C, L], [N, C, L] or [N, B, C, L]."""
    data, shape = facts.dense.source.tensor, facts.dense.source.shape
    if len(shape) == 4:
        data = new.node("Transpose", [data], name=f"{name}:first", perm=_SWAPPED)
        made = pointwise(new, data, weight, "", name)
        new.node("Transpose", [made], output=facts.output, name=f"{name}:last", perm=_SWAPPED)
        return
    batch = shape[0] if len(shape) == 3 else 1
    image = new.constant([batch, *shape[-2:], 1])
    data = new.node("Reshape", [data, image], name=f"{name}:image")
    made = pointwise(new, data, weight, "", name)
    rows = new.constant(list(graph.shape(facts.output)))
    new.node("Reshape", [made, rows], output=facts.output, name=f"{name}:rows")
