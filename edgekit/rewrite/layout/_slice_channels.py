"""Slices with steps along C: a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._sliced import float_spans, slice_along

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["SliceChannels"]


class SliceChannels:
    """A slice with a step along C, backwards too: a 1x1 convolution that picks the channels."""

    name = "slice-channels"
    reason = "The DLA slices with stride 1 only; a 1x1 convolution of 0 and 1 picks the channels"
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice with a step along C."""
        spans = float_spans(graph, node)
        return Match((node,), spans) if spans is not None and spans[1][2] != 1 else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the choice of channels, and a Slice of what else is sliced."""
        slice_along(graph, match, new, 1)
