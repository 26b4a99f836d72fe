"""Min of activations to the maximum of their negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["MinOp"]


class MinOp:
    """TensorRT's header lists MIN, the operator matrix does not: a form without that risk."""

    name = "min-op"
    reason = "sources differ on the minimum; -max(-x, -y) needs only what all of them allow"
    operators: tuple[str, ...] = ("Min",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Min of two or more images."""
        if len(node.inputs) < 2 or not all(image(graph, name) for name in node.inputs):
            return None
        return Match((node,))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the negatives, their maximum and its negative."""
        node = match.nodes[0]
        turned = {
            name: scaled(new, name, -1.0, 0.0, channels(graph, name), role="turned")
            for name in dict.fromkeys(node.inputs)
        }
        most = new.node("Max", [turned[name] for name in node.inputs], role="max")
        output = node.outputs[0]
        scaled(new, most, -1.0, 0.0, channels(graph, output), output=output)
