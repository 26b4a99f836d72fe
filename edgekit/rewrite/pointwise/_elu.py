"""Elu, Celu and Selu to ReLU, tanh and division."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Elu"]

# ONNX's defaults
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


class Elu:
    """The exponential of what is not positive, by a tangent that never divides by little.

    For r >= 0, 1 - exp(-r) = 2 t / (1 + t) with t = tanh(r / 2), and 1 + t is from 1 to 2.
    """

    name = "elu"
    reason = (
        "the DLA has no exponential; for the negative side 1 - exp(-r) = 2t / (1 + t) with "
        "t = tanh(r / 2) is the same"
    )
    operators: tuple[str, ...] = ("Elu", "Celu", "Selu")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """One of them with an image."""
        if not image(graph, node.inputs[0]):
            return None
        alpha = float(node.attrs.get("alpha", _SELU[0] if node.op == "Selu" else 1.0))
        if node.op == "Celu" and alpha <= 0:
            return None
        gamma = float(node.attrs.get("gamma", _SELU[1])) if node.op == "Selu" else 1.0
        # f(x) = gamma max(x, 0) - depth (1 - exp(-max(-x, 0) / width))
        width = alpha if node.op == "Celu" else 1.0
        return Match((node,), (gamma, gamma * alpha, width))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the positive part less the negative part."""
        node = match.nodes[0]
        gamma, depth, width = match.facts
        source = node.inputs[0]
        count = channels(graph, source)
        half = scaled(new, source, -0.5 / width, 0.0, count, role="half")
        tangent = new.node("Tanh", [new.node("Relu", [half], role="below")], role="tanh")
        above = scaled(new, tangent, 2.0 * depth, 0.0, count, role="numerator")
        below = scaled(new, tangent, 1.0, 1.0, count, role="denominator")
        negative = new.node("Div", [above, below], role="negative")
        positive = new.node("Relu", [source], role="above")
        if gamma != 1.0:
            positive = scaled(new, positive, gamma, 0.0, count, role="positive")
        new.node("Sub", [positive, negative], output=node.outputs[0])
