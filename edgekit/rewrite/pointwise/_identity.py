"""Identity, and n-ary operators of one input, to a scale by 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Identity"]


class Identity:
    """Loading removes an Identity unless it stands between an input and an output of the graph."""

    name = "identity"
    reason = "the DLA has no identity layer; a scale by 1 copies as well"
    operators: tuple[str, ...] = ("Identity", "Sum", "Mean", "Max", "Min")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """An operator that returns its only input, an image."""
        if len(node.inputs) != 1 or not image(graph, node.inputs[0]):
            return None
        return Match((node,))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale."""
        node = match.nodes[0]
        source = node.inputs[0]
        scaled(new, source, 1.0, 0.0, channels(graph, source), output=node.outputs[0])
