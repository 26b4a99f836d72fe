"""Mean of several tensors to their sum and a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["MeanOp"]


class MeanOp:
    """The operator matrix has Sum, not Mean."""

    name = "mean-op"
    reason = "TensorRT does not say that Mean runs on the DLA; a sum and a scale do"
    operators: tuple[str, ...] = ("Mean",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Mean of two or more images."""
        if len(node.inputs) < 2 or not all(image(graph, name) for name in node.inputs):
            return None
        return Match((node,))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the sum and the scale."""
        node = match.nodes[0]
        total = new.node("Sum", node.inputs, role="sum")
        output = node.outputs[0]
        count = channels(graph, output)
        scaled(new, total, 1 / len(node.inputs), 0.0, count, output=output)
