"""Softsign to absolute value, scale and division."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Softsign"]


class Softsign:
    """x / (1 + |x|): helps where the release has division on the DLA."""

    name = "softsign"
    reason = "the DLA has no Softsign; x / (1 + |x|) is its definition"
    operators: tuple[str, ...] = ("Softsign",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Softsign of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the absolute value, the scale and the division."""
        node = match.nodes[0]
        source = node.inputs[0]
        size = new.node("Abs", [source], role="abs")
        below = scaled(new, size, 1.0, 1.0, channels(graph, source), role="denominator")
        new.node("Div", [source, below], output=node.outputs[0])
