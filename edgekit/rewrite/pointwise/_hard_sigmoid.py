"""HardSigmoid to a scale and a clip from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["HardSigmoid", "hard_sigmoid"]

# ONNX's defaults
# (0.2 as an FP32 attribute holds it)
_ALPHA, _BETA = 0.20000000298023224, 0.5


class HardSigmoid:
    """max(0, min(1, alpha x + beta)) is word for word a scale and a clip."""

    name = "hard-sigmoid"
    reason = "the DLA has no HardSigmoid; a scale and a clip from 0 to 1 are the same function"
    operators: tuple[str, ...] = ("HardSigmoid",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A HardSigmoid of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale and the clip."""
        node = match.nodes[0]
        alpha = float(node.attrs.get("alpha", _ALPHA))
        beta = float(node.attrs.get("beta", _BETA))
        source = node.inputs[0]
        hard_sigmoid(new, source, alpha, beta, 1.0, channels(graph, source), output=node.outputs[0])


def hard_sigmoid(
    new: Writer, source: str, alpha: float, beta: float, high: float, count: int, *, output: str
) -> str:
    """Writes ``max(0, min(high, alpha * source + beta))`` as a scale and a clip."""
    line = scaled(new, source, alpha, beta, count, role="line")
    bounds = [new.constant(0.0, role="min"), new.constant(high, role="max")]
    return new.node("Clip", [line, *bounds], output=output, role="clip")
