"""1 / (1 + exp(-x)) to Sigmoid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import by_constant, image, number

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["SigmoidForm"]


class SigmoidForm:
    """Also x / (1 + exp(-x)), which is SiLU."""

    name = "sigmoid-form"
    reason = "the DLA has no exponential; 1 / (1 + exp(-x)) is the sigmoid, which it has"
    operators: tuple[str, ...] = ("Exp",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """The Exp of a negated image, then 1 added, then a reciprocal or division."""
        turned = graph.producer(node.inputs[0])
        if turned is None or turned.domain or graph.only_reader(node.inputs[0]) is not node:
            return None
        times = by_constant(graph, turned, "Mul")
        if turned.op != "Neg" and (times is None or times[1] != -1):
            return None
        source = turned.inputs[0] if times is None else times[0]
        one = graph.only_reader(node.outputs[0])
        added = by_constant(graph, one, "Add")
        if one is None or not image(graph, source) or added is None or added[1] != 1:
            return None
        last = graph.only_reader(one.outputs[0])
        if last is None or last.domain or last.op not in {"Reciprocal", "Div"}:
            return None
        if last.inputs[-1] != one.outputs[0]:
            return None
        multiplied = last.inputs[0] == source
        if last.op == "Div" and not multiplied and number(graph, last.inputs[0]) != 1:
            return None
        return Match((node, turned, one, last), (source, last.outputs[0], multiplied))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the Sigmoid, and the product if there is one."""
        source, output, multiplied = match.facts
        gate = new.node("Sigmoid", [source], output="" if multiplied else output, role="sigmoid")
        if multiplied:
            new.node("Mul", [source, gate], output=output)
