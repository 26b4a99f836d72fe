"""Slices of tensors of other ranks, on four dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import four, reshape
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._sliced import Span, slice_of, write_slice

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Slice4d"]


class Slice4d:
    """A Slice of 2, 3, 5 or more dimensions: the same Slice of 4, between reshapes.

    [N, C] is [N, C, 1, 1]; what lies beside the sliced axis of more dimensions is merged, so only
    one of them may be sliced then. The batch is left alone: no DLA slices it.
    """

    name = "slice-4d"
    reason = "The DLA slices tensors of four dimensions only"
    operators: tuple[str, ...] = ("Slice",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice of a tensor of another rank than 4 that keeps the batch."""
        shape = graph.shape(node.inputs[0])
        if len(shape) in {0, 1, 4} or not graph.floats(node.inputs[0]):
            return None
        spans = slice_of(graph, node)
        if spans is None or spans[0] != (0, shape[0], 1):
            return None
        used = {a: span for a, span in enumerate(spans) if span != (0, shape[a], 1)}
        if not used or (len(used) > 1 and len(shape) > 4):
            return None
        return Match((node,), used)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the reshapes and the Slice."""
        (node,) = match.nodes
        used: dict[int, Span] = match.facts
        shape, result = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
        wide = four(shape, min(used))[0]
        places = {four(shape, axis)[1]: span for axis, span in used.items()}
        part = write_slice(new, reshape(new, node.inputs[0], wide), places)
        reshape(new, part, result, output=node.outputs[0])
