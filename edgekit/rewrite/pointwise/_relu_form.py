"""Selections by the sign of x to ReLU and leaky ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import by_constant, image, number

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ReluForm"]

# whether the first branch is that of the positive numbers, for x op 0
_POSITIVE_FIRST = {"Greater": True, "GreaterOrEqual": True, "Less": False, "LessOrEqual": False}


class ReluForm:
    """Where(x > 0, x, a x) and Where(x > 0, x, 0), with any of the four comparisons."""

    name = "relu-form"
    reason = "a selection by the sign of x between x and a multiple of it is a leaky ReLU"
    operators: tuple[str, ...] = ("Where",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Where between an image and a multiple of it, by its sign."""
        condition, *branches = node.inputs
        compared = graph.producer(condition)
        if compared is None or compared.op not in _POSITIVE_FIRST or compared.domain:
            return None
        first = _POSITIVE_FIRST[compared.op]
        source, zero = compared.inputs
        if graph.constant(source):
            source, zero, first = zero, source, not first
        if not image(graph, source) or number(graph, zero) != 0:
            return None
        positive, negative = branches if first else reversed(branches)
        if positive != source or graph.shape(node.outputs[0]) != graph.shape(source):
            return None
        # a multiple or comparison that others read too is part of the proof and stays
        slope, nodes = number(graph, negative), [node, compared]
        if slope is None:
            before = graph.producer(negative)
            found = by_constant(graph, before, "Mul")
            if found is None or before is None or found[0] != source:
                return None
            slope = found[1]
            nodes.append(before)
        elif slope != 0:
            return None
        return Match(tuple(nodes), (source, slope))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the ReLU or the LeakyRelu, and again what others read."""
        source, slope = match.facts
        for other in match.nodes[1:]:
            if not graph.inner(other.outputs[0], match.nodes):
                new.node(other.op, other.inputs, output=other.outputs[0])
        output = match.nodes[0].outputs[0]
        if slope == 0:
            new.node("Relu", [source], output=output)
        else:
            new.node("LeakyRelu", [source], output=output, alpha=slope)
