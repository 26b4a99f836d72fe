"""PReLU, leaky ReLU and selections by sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.operands import (
    by_constant,
    channels,
    form,
    image,
    number,
    other_input,
    scaled,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
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

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the PRelu, its slopes derived from the factors."""
        source, factors, times = match.facts
        slope = new.constant([times], role="times")
        for name in factors:
            slope = new.node("Mul", [slope, name], role="slope")
        new.node("PRelu", [source, slope], output=match.nodes[0].outputs[0])


def _negative(
    graph: RewriteGraph, term: str, source: str
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


class Prelu:
    """The DLA takes constant slopes of any shape as they are."""

    name = "prelu"
    reason = (
        "the DLA's PReLU needs constant slopes; max(x, 0) - slope * max(-x, 0) takes computed ones"
    )
    operators: tuple[str, ...] = ("PRelu",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A PRelu of an image whose slopes are an image too."""
        return Match((node,)) if all(image(graph, name) for name in node.inputs) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the positive part less the product of slopes and negative part."""
        node = match.nodes[0]
        source, slope = node.inputs
        turned = scaled(new, source, -1.0, 0.0, channels(graph, source), role="turned")
        below = new.node("Mul", [new.node("Relu", [turned], role="below"), slope], role="slopes")
        above = new.node("Relu", [source], role="above")
        new.node("Sub", [above, below], output=node.outputs[0])


class LeakyRelu:
    """As TensorFlow and Keras models write it."""

    name = "leaky-relu"
    reason = "max(x, a x) with a from 0 to 1 is a leaky ReLU, which is one layer on the DLA"
    operators: tuple[str, ...] = ("Max",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Max of an image and a multiple of it."""
        for multiple in node.inputs:
            source = other_input(node, multiple)
            found = by_constant(graph, graph.producer(multiple), "Mul")
            if found is None or not image(graph, source) or found[0] != source:
                continue
            if 0 <= found[1] <= 1 and graph.only_reader(multiple) is node:
                before = graph.producer(multiple)
                assert before is not None
                return Match((node, before), (source, found[1]))
        return None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the LeakyRelu."""
        source, slope = match.facts
        new.node("LeakyRelu", [source], output=match.nodes[0].outputs[0], alpha=slope)


# whether the first branch is that of the positive numbers, for x op 0
_POSITIVE_FIRST = {"Greater": True, "GreaterOrEqual": True, "Less": False, "LessOrEqual": False}


class ReluForm:
    """Where(x > 0, x, a x) and Where(x > 0, x, 0), with any of the four comparisons."""

    name = "relu-form"
    reason = "a selection by the sign of x between x and a multiple of it is a leaky ReLU"
    operators: tuple[str, ...] = ("Where",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
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

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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
