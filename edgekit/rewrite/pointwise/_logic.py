"""And, Or, Xor, Not, GreaterOrEqual and LessOrEqual to arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._mask import LOGICAL, NEGATED, Mask, elem_type, tree

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Logic"]


class Logic:
    """Casts stand right behind the comparisons, as the DLA wants them; the rest is in numbers.

    Equal to the truth values except where a comparison meets what is not a number (NaN).
    """

    name = "logic"
    reason = (
        "the DLA has no logic on truth values; as 0 and 1, and is a product, or a maximum, not "
        "1 - a, and exclusive or |a - b|"
    )
    operators: tuple[str, ...] = ("Cast", *sorted(LOGICAL), *NEGATED)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Cast of logic to numbers, or logic whose truth values the graph returns."""
        if node.op == "Cast":
            source, output = node.inputs[0], node.outputs[0]
            if graph.constant(source) or graph.dtype(source) != "bool" or not graph.floats(output):
                return None
            found = tree(graph, source, node)
            if found is None or not found.nodes:
                return None
            return Match((node, *found.nodes), (source, output, "", found.again))
        output = node.outputs[0]
        found = tree(graph, output, None) if graph.returned(output) else None
        if found is None:
            return None
        others = tuple(other for other in found.nodes if other is not node)
        return Match((node, *others), (output, "", output, found.again))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the arithmetic; a cast to truth values where the graph returns them."""
        source, numbers, truth, again = match.facts
        typed = numbers or next((n for n in match.nodes[0].inputs if graph.floats(n)), "")
        dtype = graph.dtype(typed) if typed else "float32"
        mask = Mask(graph, new, dtype)
        mask.repeat(again)
        made = mask.of(source, numbers)
        if truth:
            new.node("Cast", [made], output=truth, role="truth", to=elem_type("bool"))
