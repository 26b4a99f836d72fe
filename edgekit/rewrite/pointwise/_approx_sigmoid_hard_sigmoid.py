"""Sigmoid to HardSigmoid, approximately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image
from edgekit.rewrite.pointwise._hard_sigmoid import hard_sigmoid

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ApproxSigmoidHardSigmoid"]


class ApproxSigmoidHardSigmoid:
    """At most 0.0692 from the sigmoid (at |x| = 3), with the slope 1/6 of HardSwish."""

    name = "approx-sigmoid-hard-sigmoid"
    reason = (
        "a sigmoid runs in FP16 on the DLA even in INT8; a scale and a clip differ by at most "
        "0.0692"
    )
    operators: tuple[str, ...] = ("Sigmoid",)
    enabling = False
    deviation = 0.0692

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Sigmoid of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale and the clip."""
        node = match.nodes[0]
        source = node.inputs[0]
        count = channels(graph, source)
        hard_sigmoid(new, source, 1 / 6, 0.5, 1.0, count, output=node.outputs[0])
