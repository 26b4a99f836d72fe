"""Clip between any bounds to a clipped ReLU between scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._clipped import bound, clippable, clipped, native
from edgekit.rewrite.pointwise._common import channels, image

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Clip"]


class Clip:
    """Bounds that are computed while running, or that cancel each other out, are left alone."""

    name = "clip"
    reason = (
        "the DLA clips only from 0 to an upper bound within a range; scales before and behind "
        "such a clip bring any bounds there"
    )
    operators: tuple[str, ...] = ("Clip",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Clip of an image with constant bounds that the DLA does not have as it is."""
        source = node.inputs[0]
        if not image(graph, source):
            return None
        known_low, low = bound(graph, node.input(1), graph.dtype(source))
        known_high, high = bound(graph, node.input(2), graph.dtype(source))
        if not (known_low and known_high) or native(low, high) or not clippable(low, high):
            return None
        return Match((node,), (low, high))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes scale, clip from zero, scale; or the sum of two such parts."""
        node = match.nodes[0]
        low, high = match.facts
        source = node.inputs[0]
        clipped(new, source, low, high, channels(graph, source), output=node.outputs[0])
