"""Sub of two activations to a scale by -1 and a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Sub"]


class Sub:
    """Where the DLA has the difference itself this makes one layer more, and is not kept."""

    name = "sub"
    reason = "old releases have no difference of two tensors on the DLA; a scale by -1 and a sum do"
    operators: tuple[str, ...] = ("Sub",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A difference of two images."""
        return Match((node,)) if all(image(graph, name) for name in node.inputs) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale and the sum."""
        node = match.nodes[0]
        left, right = node.inputs
        turned = scaled(new, right, -1.0, 0.0, channels(graph, right), role="turned")
        new.node("Add", [left, turned], output=node.outputs[0])
