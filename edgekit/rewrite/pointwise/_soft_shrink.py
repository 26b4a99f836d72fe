"""Shrink without a jump to two ReLUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["SoftShrink"]


class SoftShrink:
    """A Shrink whose bias is not its threshold jumps there, which nothing continuous does."""

    name = "soft-shrink"
    reason = "the DLA has no Shrink; max(x - a, 0) - max(-x - a, 0) is the same function"
    operators: tuple[str, ...] = ("Shrink",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Shrink of an image with bias and threshold equal."""
        bias = float(node.attrs.get("bias", 0.0))
        threshold = float(node.attrs.get("lambd", 0.5))
        if bias != threshold or bias < 0 or not image(graph, node.inputs[0]):
            return None
        return Match((node,), bias)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the two parts and their difference."""
        node = match.nodes[0]
        source = node.inputs[0]
        count = channels(graph, source)
        parts = [
            new.node(
                "Relu", [scaled(new, source, sign, -match.facts, count, role=role)], role="relu"
            )
            for sign, role in ((1.0, "above"), (-1.0, "below"))
        ]
        new.node("Sub", parts, output=node.outputs[0])
