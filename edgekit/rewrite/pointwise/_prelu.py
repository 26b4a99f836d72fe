"""PRelu with computed slopes to two ReLUs and a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Prelu"]


class Prelu:
    """The DLA takes constant slopes of any shape as they are."""

    name = "prelu"
    reason = (
        "the DLA's PReLU needs constant slopes; max(x, 0) - slope * max(-x, 0) takes computed ones"
    )
    operators: tuple[str, ...] = ("PRelu",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A PRelu of an image whose slopes are an image too."""
        return Match((node,)) if all(image(graph, name) for name in node.inputs) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the positive part less the product of slopes and negative part."""
        node = match.nodes[0]
        source, slope = node.inputs
        turned = scaled(new, source, -1.0, 0.0, channels(graph, source), role="turned")
        below = new.node("Mul", [new.node("Relu", [turned], role="below"), slope], role="slopes")
        above = new.node("Relu", [source], role="above")
        new.node("Sub", [above, below], output=node.outputs[0])
