"""SiLU to HardSwish, approximately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, other_input
from edgekit.rewrite.pointwise._hard_sigmoid import hard_sigmoid

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ApproxSiluHardSwish"]


class ApproxSiluHardSwish:
    """At most 0.143 from SiLU (at |x| = 3). The DLA runs SiLU too, its sigmoid in FP16."""

    name = "approx-silu-hard-swish"
    reason = (
        "a sigmoid runs in FP16 on the DLA even in INT8; HardSwish needs a scale and a clip and "
        "differs by at most 0.143"
    )
    operators: tuple[str, ...] = ("Sigmoid", "Swish")
    enabling = False
    deviation = 0.143

    def match(self, graph: Graph, node: Node) -> Match | None:
        """The Sigmoid of x that only the product with x reads, or a Swish."""
        source = node.inputs[0]
        if not image(graph, source):
            return None
        if node.op == "Swish":
            plain = float(node.attrs.get("alpha", 1.0)) == 1.0
            return Match((node,), (source, node.outputs[0])) if plain else None
        product = graph.only_reader(node.outputs[0])
        if product is None or product.op != "Mul" or product.domain:
            return None
        if other_input(product, node.outputs[0]) != source:
            return None
        return Match((node, product), (source, product.outputs[0]))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale, the clip and the product."""
        source, output = match.facts
        count = channels(graph, source)
        gate = hard_sigmoid(new, source, 1 / 6, 0.5, 1.0, count, output="")
        new.node("Mul", [source, gate], output=output)
