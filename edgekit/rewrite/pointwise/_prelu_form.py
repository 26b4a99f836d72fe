"""PReLU as Keras models write it to PRelu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import by_constant, form, image, other_input

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["PreluForm"]

_MOST_FACTORS = 3


class PreluForm:
    """max(x, 0) plus a multiple of max(-x, 0), or of x - |x|: both are multiples of min(x, 0)."""

    name = "prelu-form"
    reason = (
        "the sum of the positive part and a multiple of the negative part is a PReLU, which is "
        "one layer on the DLA"
    )
    operators: tuple[str, ...] = ("Add", "Sub")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """The sum, or difference, of an image's positive part and its scaled negative part."""
        left, right = node.inputs
        for positive, term in ((left, right), (right, left)):
            relu = graph.producer(positive)
            if relu is None or relu.op != "Relu" or relu.domain or positive == term:
                continue
            if node.op == "Sub" and positive == right:
                continue
            found = _negative(graph, term, relu.inputs[0])
            if found is None or not image(graph, relu.inputs[0]):
                continue
            nodes, factors, times = found
            whole = (node, relu, *nodes)
            if any(not graph.inner(t, whole) for part in whole[1:] for t in part.outputs):
                continue
            shape = graph.shape(relu.inputs[0])
            if not all(form(graph.shape(name), shape) for name in factors):
                continue
            sign = -1.0 if node.op == "Sub" else 1.0
            return Match(whole, (relu.inputs[0], factors, sign * times))
        return None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the PRelu, its slopes derived from the factors."""
        source, factors, times = match.facts
        slope = new.constant([times], role="times")
        for name in factors:
            slope = new.node("Mul", [slope, name], role="slope")
        new.node("PRelu", [source, slope], output=match.nodes[0].outputs[0])


def _negative(
    graph: Graph, term: str, source: str
) -> tuple[tuple[Node, ...], tuple[str, ...], float] | None:
    """Returns nodes, constants and number if ``term`` is their product with min(source, 0)."""
    nodes: list[Node] = []
    factors: list[str] = []
    times = 1.0
    while True:
        node = graph.producer(term)
        if node is None or node.domain:
            return None
        nodes.append(node)
        if node.op == "Mul" and len(factors) < _MOST_FACTORS:
            constant = next((name for name in node.inputs if graph.constant(name)), "")
            term = other_input(node, constant)
            if not constant or not graph.floats(constant):
                return None
            factors.append(constant)
        elif node.op == "Neg" and times > 0:
            times, term = -times, node.inputs[0]
        else:
            break
    last = nodes[-1]
    if last.op == "Relu":
        turned = graph.producer(last.inputs[0])
        minus = by_constant(graph, turned, "Mul")
        if turned is None or turned.domain:
            return None
        if not (turned.op == "Neg" and turned.inputs[0] == source) and minus != (source, -1.0):
            return None
        return (*nodes, turned), tuple(factors), -times
    if last.op == "Sub" and last.inputs[0] == source:
        size = graph.producer(last.inputs[1])
        if size is not None and size.op == "Abs" and size.inputs[0] == source:
            return (*nodes, size), tuple(factors), 2.0 * times
    return None
