"""Softplus to ReLU, approximately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import image

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ApproxSoftplusRelu"]


class ApproxSoftplusRelu:
    """At most ln 2 = 0.6932 from Softplus (at x = 0)."""

    name = "approx-softplus-relu"
    reason = "the DLA has no softplus; ReLU differs by at most ln 2 = 0.6932, at zero"
    operators: tuple[str, ...] = ("Softplus",)
    enabling = False
    deviation = 0.6932

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Softplus of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the ReLU."""
        node = match.nodes[0]
        new.node("Relu", [node.inputs[0]], output=node.outputs[0])
