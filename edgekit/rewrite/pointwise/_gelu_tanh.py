"""GELU with tanh to a sigmoid and products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, scaled
from edgekit.rewrite.pointwise._gated import gated

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["GeluTanh", "gelu_tanh"]

# ONNX's definition of Gelu with approximate = "tanh"
_FIRST = math.sqrt(2 / math.pi)
_THIRD = 0.044715 * _FIRST


class GeluTanh:
    """0.5 x (1 + tanh(z)) is x sigmoid(2 z): five layers, none of them a power.

    Where x² is beyond FP16's range (|x| > 255) the sigmoid is 0 or 1 in any case.
    """

    name = "gelu-tanh"
    reason = (
        "the DLA has no GELU; x sigmoid(2z) with z = sqrt(2/pi) (x + 0.044715 x^3) is the same "
        "as its tanh form, in five layers"
    )
    operators: tuple[str, ...] = ("Gelu", "Tanh")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Gelu with approximate = "tanh", or the Tanh in what exporters write for it."""
        if node.op == "Tanh":
            found = gated(graph, node)
            # without a cube there is nothing here that the DLA lacks
            return found if found is not None and found.facts[3] else None
        if node.attrs.get("approximate", "none") != "tanh" or not image(graph, node.inputs[0]):
            return None
        return Match((node,), (node.inputs[0], node.outputs[0], _FIRST, _THIRD, 0.5))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes square, scale, product, sigmoid and product."""
        source, output, first, third, half = match.facts
        gelu_tanh(graph, new, source, first, third, half, output=output)


def gelu_tanh(
    graph: Graph,
    new: Writer,
    source: str,
    first: float = _FIRST,
    third: float = _THIRD,
    half: float = 0.5,
    *,
    output: str,
) -> None:
    """Writes ``half * x * (1 + tanh(first * x + third * x³))``."""
    count = channels(graph, source)
    square = new.node("Mul", [source, source], role="square")
    inner = scaled(new, square, 2 * third, 2 * first, count, role="inner")
    line = new.node("Mul", [inner, source], role="line")
    gate = new.node("Sigmoid", [line], role="sigmoid")
    if half == 0.5:
        new.node("Mul", [source, gate], output=output)
        return
    product = new.node("Mul", [source, gate], role="product")
    scaled(new, product, 2 * half, 0.0, count, output=output)
