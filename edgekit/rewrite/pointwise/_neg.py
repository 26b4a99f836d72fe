"""Neg to a scale by -1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Neg"]


class Neg:
    """NVIDIA's recipe for Neg is a scale too."""

    name = "neg"
    reason = "the DLA has no negation; a scale by -1 is the same"
    operators: tuple[str, ...] = ("Neg",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Neg of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale."""
        node = match.nodes[0]
        source = node.inputs[0]
        scaled(new, source, -1.0, 0.0, channels(graph, source), output=node.outputs[0])
