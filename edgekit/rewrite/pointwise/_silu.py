"""Swish to a sigmoid and a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Silu"]


class Silu:
    """x * Sigmoid(a x) of earlier opsets is what the DLA runs; only the operator is rewritten."""

    name = "silu"
    reason = "the DLA has no Swish; the product of x and its sigmoid is the same function"
    operators: tuple[str, ...] = ("Swish",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Swish of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the sigmoid and the product."""
        node = match.nodes[0]
        source = node.inputs[0]
        alpha = float(node.attrs.get("alpha", 1.0))
        line = source
        if alpha != 1.0:
            line = scaled(new, source, alpha, 0.0, channels(graph, source))
        gate = new.node("Sigmoid", [line], role="sigmoid")
        new.node("Mul", [source, gate], output=node.outputs[0])
