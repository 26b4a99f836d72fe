"""Splits of tensors of other ranks, on four dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import four, reshape
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Split4d"]


class Split4d:
    """A Split of 2, 3, 5 or more dimensions: the same Split of 4, between reshapes."""

    name = "split-4d"
    reason = "The DLA slices tensors of four dimensions only"
    operators: tuple[str, ...] = ("Split",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Split of a tensor of another rank than 4, not along its batch."""
        rank = graph.rank(node.inputs[0])
        if rank in {0, 1, 4} or not graph.floats(node.inputs[0]) or "" in node.outputs:
            return None
        axis = int(node.attrs.get("axis", 0)) % rank
        return Match((node,), axis) if axis and not graph.constant(node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the reshapes and the Split."""
        (node,), axis = match.nodes, match.facts
        wide, place = four(graph.shape(node.inputs[0]), axis)
        sizes = new.constant([graph.shape(name)[axis] for name in node.outputs], role="sizes")
        source = reshape(new, node.inputs[0], wide)
        blank = [""] * len(node.outputs)
        parts = new.many("Split", [source, sizes], blank, name=node.name, axis=place)
        for part, output in zip(parts, node.outputs, strict=True):
            shape = new.constant(list(graph.shape(output)), role="shape")
            new.node("Reshape", [part, shape], output=output, name=f"{output}:reshape")
