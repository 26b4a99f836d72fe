"""1 / (1 + exp(-x)) to Sigmoid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import by_constant, channels, image, number, scaled

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["SigmoidForm"]


class SigmoidForm:
    """Also x / (1 + exp(-x)), which is SiLU, and 1 / (1 + exp(x)), the sigmoid of -x.

    It begins at the negation and at the division too: a rewrite of those alone, or of a
    transposition between them, would come first.
    """

    name = "sigmoid-form"
    reason = "the DLA has no exponential; 1 / (1 + exp(-x)) is the sigmoid, which it has"
    operators: tuple[str, ...] = ("Exp", "Neg", "Mul", "Reciprocal", "Div")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """The Exp of an image, negated or not, then 1 added, then a reciprocal or division."""
        first = _exponential(graph, node)
        if first is None or first.op != "Exp" or first.domain:
            return None
        one = graph.only_reader(first.outputs[0])
        added = by_constant(graph, one, "Add")
        if one is None or added is None or added[1] != 1:
            return None
        last = graph.only_reader(one.outputs[0])
        if last is None or last.domain or last.op not in {"Reciprocal", "Div"}:
            return None
        if last.inputs[-1] != one.outputs[0]:
            return None
        turned = graph.producer(first.inputs[0])
        source = _negated(graph, turned)
        if turned is None or not source:
            turned, source = None, first.inputs[0]
        if not image(graph, source) or node not in {turned, first, last}:
            return None
        multiplied = last.inputs[0] == source and last.op == "Div" and turned is not None
        if last.op == "Div" and not multiplied and number(graph, last.inputs[0]) != 1:
            return None
        rest = tuple(item for item in (turned, first, one, last) if item not in {None, node})
        return Match((node, *rest), (source, last.outputs[0], multiplied, turned))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the Sigmoid, and the product if there is one; again a negation others read."""
        source, output, multiplied, turned = match.facts
        line = source
        if turned is None:
            line = scaled(new, source, -1.0, 0.0, channels(graph, source), role="turned")
        elif not graph.inner(turned.outputs[0], match.nodes):
            new.node(turned.op, turned.inputs, output=turned.outputs[0], **turned.attrs)
        gate = new.node("Sigmoid", [line], output="" if multiplied else output, role="sigmoid")
        if multiplied:
            new.node("Mul", [source, gate], output=output)


def _exponential(graph: Graph, node: Node) -> Node | None:
    """Returns what may be the Exp of the form that has ``node`` at any of its anchors."""
    if node.op == "Exp":
        return node
    if node.op in {"Neg", "Mul"}:
        return graph.only_reader(node.outputs[0])
    added = by_constant(graph, graph.producer(node.inputs[-1]), "Add")
    return None if added is None else graph.producer(added[0])


def _negated(graph: Graph, node: Node | None) -> str:
    """Returns x of -x as a Neg, a product with -1, or the scale that "neg" writes; else ""."""
    if node is None or node.domain:
        return ""
    if node.op == "Neg":
        return node.inputs[0]
    if node.op == "BatchNormalization":
        brought = [graph.fixed(name) for name in node.inputs[1:]]
        if len(node.outputs) != 1 or node.attrs.get("epsilon") != 0.0:
            return ""
        wanted = zip(brought, (-1, 0, 0, 1), strict=True)
        minus = all(item is not None and (item.value == value).all() for item, value in wanted)
        return node.inputs[0] if minus else ""
    times = by_constant(graph, node, "Mul")
    return times[0] if times is not None and times[1] == -1 else ""
