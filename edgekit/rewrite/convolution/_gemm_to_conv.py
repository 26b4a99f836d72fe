"""Gemm with constant weights as a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._dense import Dense, image_of, per_column, write_dense

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["GemmToConv"]


class GemmToConv:
    """Gemm(flatten(x), W, b) -> Reshape(Conv(x, W as a window over all of x, b)).

    A Gemm on rows that were no image is a 1x1 convolution on [N, C, 1, 1]. A Gemm whose first
    operand is transposed stays: it would take a transposition of the batch. So does one with a
    computed matrix or a third operand that is not one vector for all rows.
    """

    name = "gemm-to-conv"
    reason = (
        "a matrix product runs on the DLA only as a convolution, and flattening its input to two "
        "dimensions does not; a convolution over the whole image needs no flattening"
    )
    operators: tuple[str, ...] = ("Gemm",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Gemm of an activation and a constant matrix."""
        data, weight, bias = node.inputs[0], node.inputs[1], node.input(2)
        if node.attrs.get("transA", 0) or not graph.floats(node.outputs[0]):
            return None
        if graph.constant(data) or not graph.constant(weight):
            return None
        columns = graph.shape(node.outputs[0])[1]
        if bias and not (graph.constant(bias) and per_column(graph.shape(bias), columns)):
            return None
        source = image_of(graph, data, node)
        turned = bool(node.attrs.get("transB", 0))
        factors = [float(node.attrs.get(key, 1.0)) for key in ("alpha", "beta")]
        facts = Dense(source, weight, turned, columns, bias, *factors)
        return Match((node, *source.views), facts)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """A convolution over the whole window, and its result as rows."""
        gemm = match.nodes[0]
        write_dense(graph, new, match.facts, gemm.outputs[0], gemm.name)
