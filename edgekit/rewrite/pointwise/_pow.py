"""Powers with small whole exponents to products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import by_constant, channels, image, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Pow"]

# four products at most
_LARGEST = 8


class Pow:
    """x ** n by squaring; roots and negative powers have no form in the DLA's operations."""

    name = "pow"
    reason = "the exponent is a constant, which stays on the GPU; products are the same power"
    operators: tuple[str, ...] = ("Pow",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Pow of an image with a whole exponent from 1 to 8."""
        found = by_constant(graph, node, "Pow")
        if found is None or not image(graph, found[0]):
            return None
        source, exponent = found
        if exponent not in range(1, _LARGEST + 1):
            return None
        return Match((node,), (source, int(exponent)))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the products of x, x², x⁴, …"""
        node = match.nodes[0]
        source, exponent = match.facts
        output = node.outputs[0]
        if exponent == 1:
            scaled(new, source, 1.0, 0.0, channels(graph, source), output=output)
            return
        square, product = source, ""
        while exponent:
            rest, odd = divmod(exponent, 2)
            if odd:
                last = output if rest == 0 else ""
                product = new.node("Mul", [product, square], output=last) if product else square
            if rest:
                # a power of two ends with a square
                last = output if rest == 1 and not product else ""
                square = new.node("Mul", [square, square], output=last, role="square")
                if last:
                    return
            exponent = rest
