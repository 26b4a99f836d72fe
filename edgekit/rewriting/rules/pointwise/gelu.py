"""GELU with tanh or the error function, in the forms in which exporters write it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.operands import (
    by_constant,
    channels,
    factor_of,
    image,
    number,
    other_input,
    scaled,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


_DEEPEST = 8
_LARGEST_POWER = 3
_Poly = dict[int, float]


def gated(graph: RewriteGraph, node: Node) -> Match | None:
    """Returns the match at f, with (x, output, a, b, half): output = half x (1 + f(a x + b x³)).

    Args:
        graph: The graph.
        node: The node f (Tanh or Erf).
    """
    one = graph.only_reader(node.outputs[0])
    added = by_constant(graph, one, "Add")
    if one is None or added is None or added[1] != 1:
        return None
    after, output, half = [one], one.outputs[0], 1.0
    factors: list[str] = []
    # the products with x and with 0.5, in any order and grouping
    for _ in range(3):
        reader = graph.only_reader(output)
        number_times = factor_of(graph, reader, output)
        if reader is None or reader.domain:
            break
        if number_times is not None:
            half *= number_times
        elif reader.op == "Mul" and not factors and other_input(reader, output) != output:
            factors.append(other_input(reader, output))
        else:
            break
        after.append(reader)
        output = reader.outputs[0]
    if not factors:
        return None
    for base in _bases(graph, factors[0]):
        found = _with_base(graph, node, after, factors[0], base)
        if found is not None:
            nodes, first, third, times = found
            return Match(nodes, (base, output, first, third, half * times))
    return None


def _bases(graph: RewriteGraph, factor: str) -> list[str]:
    """What x may be when x, or x times a number, is multiplied with the gate."""
    before = graph.producer(factor)
    bases = [factor]
    if before is not None:
        bases += [name for name in before.inputs if image(graph, name)]
    return [name for name in bases if image(graph, name)]


def _with_base(
    graph: RewriteGraph, node: Node, after: list[Node], factor: str, base: str
) -> tuple[tuple[Node, ...], float, float, float] | None:
    taken: dict[str, Node] = {}
    inner = _poly(graph, node.inputs[0], base, taken, _DEEPEST)
    outer = _poly(graph, factor, base, taken, _DEEPEST)
    if inner is None or outer is None or set(outer) != {1} or not set(inner) <= {1, 3}:
        return None
    if 1 not in inner:
        return None
    nodes = (node, *after, *(n for n in taken.values()))
    output = after[-1].outputs[0]
    if any(t != output and not graph.inner(t, nodes) for n in nodes for t in n.outputs):
        return None
    return nodes, inner[1], inner.get(3, 0.0), outer[1]


def _poly(
    graph: RewriteGraph, tensor: str, base: str, taken: dict[str, Node], depth: int
) -> _Poly | None:
    """Returns a tensor as coefficients by power of ``base``; None when it is no such polynomial."""
    if tensor == base:
        return {1: 1.0}
    value = number(graph, tensor)
    if value is not None:
        return {0: value} if value else {}
    node = graph.producer(tensor)
    if node is None or node.domain or depth == 0 or len(node.inputs) != 2:
        return None
    if node.op not in {"Add", "Mul", "Div", "Pow"} or len(taken) >= _DEEPEST:
        return None
    left = _poly(graph, node.inputs[0], base, taken, depth - 1)
    right = _poly(graph, node.inputs[1], base, taken, depth - 1)
    if left is None or right is None:
        return None
    made = _combined(node.op, left, right)
    if made is not None:
        taken[node.name] = node
    return made


def _combined(op: str, left: _Poly, right: _Poly) -> _Poly | None:
    if op == "Add":
        return {p: left.get(p, 0.0) + right.get(p, 0.0) for p in {*left, *right}}
    if op == "Mul":
        made: _Poly = {}
        for p, a in left.items():
            for q, b in right.items():
                made[p + q] = made.get(p + q, 0.0) + a * b
        return made if all(p <= _LARGEST_POWER for p in made) else None
    if set(right) != {0}:
        return None
    if op == "Div":
        return {p: a / right[0] for p, a in left.items()}
    if right[0] not in {1, 2, 3}:
        return None
    made = {0: 1.0}
    for _ in range(int(right[0])):
        product = _combined("Mul", made, left)
        if product is None:
            return None
        made = product
    return made


OPERATORS = ("Gelu", "Erf")
# exporters round 1 / sqrt(2) in several ways
_CLOSE = 1e-3


def erf_gelu(graph: RewriteGraph, node: Node) -> Match | None:
    """Returns the nodes of 0.5 x (1 + erf(x / sqrt(2))), with (x, output)."""
    if node.op == "Gelu":
        if node.attrs.get("approximate", "none") != "none" or not image(graph, node.inputs[0]):
            return None
        return Match((node,), (node.inputs[0], node.outputs[0]))
    found = gated(graph, node)
    if found is None:
        return None
    source, output, first, third, half = found.facts
    if third or abs(half - 0.5) > _CLOSE or abs(first - 1 / math.sqrt(2)) > _CLOSE:
        return None
    return Match(found.nodes, (source, output))


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Gelu with approximate = "tanh", or the Tanh in what exporters write for it."""
        if node.op == "Tanh":
            found = gated(graph, node)
            # without a cube there is nothing here that the DLA lacks
            return found if found is not None and found.facts[3] else None
        if node.attrs.get("approximate", "none") != "tanh" or not image(graph, node.inputs[0]):
            return None
        return Match((node,), (node.inputs[0], node.outputs[0], _FIRST, _THIRD, 0.5))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes square, scale, product, sigmoid and product."""
        source, output, first, third, half = match.facts
        gelu_tanh(graph, new, source, first, third, half, output=output)


def gelu_tanh(
    graph: RewriteGraph,
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
