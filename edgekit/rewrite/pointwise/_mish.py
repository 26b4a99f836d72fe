"""Mish to sigmoid and division."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import channels, image, other_input, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Mish", "mish_at"]


class Mish:
    """x tanh(softplus(x)) without softplus.

    With s = sigmoid(x), 1 + exp(x) = 1 / (1 - s), so that tanh(ln(1 + exp(x))) = n / (2 - n) with
    n = s (2 - s): no difference of near numbers anywhere, and a denominator from 1 to 2.
    """

    name = "mish"
    reason = (
        "the DLA has no softplus; x n / (2 - n) with n = s (2 - s) and s = sigmoid(x) is the same "
        "function"
    )
    operators: tuple[str, ...] = ("Mish", "Softplus")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Mish of an image, or Softplus, Tanh and Mul as exporters write it."""
        return mish_at(graph, node)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the sigmoid, the two scales, the products and the division."""
        source, output = match.facts
        count = channels(graph, source)
        gate = new.node("Sigmoid", [source], role="sigmoid")
        above = new.node("Mul", [gate, scaled(new, gate, -1.0, 2.0, count)], role="numerator")
        below = scaled(new, above, -1.0, 2.0, count, role="denominator")
        ratio = new.node("Div", [above, below], role="ratio")
        new.node("Mul", [source, ratio], output=output)


def mish_at(graph: Graph, node: Node) -> Match | None:
    """Returns the nodes of a Mish with (input, output)."""
    source = node.inputs[0]
    if not image(graph, source):
        return None
    if node.op == "Mish":
        return Match((node,), (source, node.outputs[0]))
    tanh = graph.only_reader(node.outputs[0])
    if tanh is None or tanh.op != "Tanh" or tanh.domain:
        return None
    product = graph.only_reader(tanh.outputs[0])
    if product is None or product.op != "Mul" or other_input(product, tanh.outputs[0]) != source:
        return None
    return Match((node, tanh, product), (source, product.outputs[0]))
