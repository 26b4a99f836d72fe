"""Slices backwards along H or W: by way of the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._sliced import float_spans, slice_along

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["SliceBackward"]


class SliceBackward:
    """A slice backwards along H or W: the channel form between two transpositions."""

    name = "slice-backward"
    reason = (
        "The DLA slices with stride 1 only; "
        "a 1x1 convolution reverses what transpositions make the channels"
    )
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice with a negative step along H or W."""
        spans = float_spans(graph, node)
        if spans is None or spans[1][2] != 1:
            return None
        axis = next((axis for axis in (2, 3) if spans[axis][2] < 0), 0)
        return Match((node,), spans) if axis else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the transpositions and the convolution, and a Slice of what else is sliced."""
        axis = next(axis for axis in (2, 3) if match.facts[axis][2] < 0)
        slice_along(graph, match, new, axis)
