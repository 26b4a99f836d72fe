"""Activations in forms that the DLA has: swishes, mish, ELU, softsign, shrinking, sigmoids
written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.clipping import bound, native
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


# ONNX's defaults
# (0.2 as an FP32 attribute holds it)
_ALPHA, _BETA = 0.20000000298023224, 0.5


class HardSigmoid:
    """max(0, min(1, alpha x + beta)) is word for word a scale and a clip."""

    name = "hard-sigmoid"
    reason = "the DLA has no HardSigmoid; a scale and a clip from 0 to 1 are the same function"
    operators: tuple[str, ...] = ("HardSigmoid",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A HardSigmoid of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale and the clip."""
        node = match.nodes[0]
        alpha = float(node.attrs.get("alpha", _ALPHA))
        beta = float(node.attrs.get("beta", _BETA))
        source = node.inputs[0]
        hard_sigmoid(new, source, alpha, beta, 1.0, channels(graph, source), output=node.outputs[0])


def hard_sigmoid(
    new: Writer, source: str, alpha: float, beta: float, high: float, count: int, *, output: str
) -> str:
    """Writes ``max(0, min(high, alpha * source + beta))`` as a scale and a clip."""
    line = scaled(new, source, alpha, beta, count, role="line")
    bounds = [new.constant(0.0, role="min"), new.constant(high, role="max")]
    return new.node("Clip", [line, *bounds], output=output, role="clip")


class HardSwish:
    """Three layers whatever the exporter wrote; the product stays within the result's range.

    The operator; x * Clip(x + 3, 0, 6) / 6 with the factor anywhere after the clip; and
    Clip(x + 3, 0, 6) / 6 without the product.
    """

    name = "hard-swish"
    reason = (
        "the DLA has no HardSwish; the product of x and a clipped scale of x is the same function, "
        "without exporters' factor behind it"
    )
    operators: tuple[str, ...] = ("HardSwish", "Clip")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A HardSwish of an image, or the Clip(x + a, 0, b) of its other forms."""
        if node.op == "HardSwish":
            # the operator's numbers, as ONNX defines it
            swish = (node.inputs[0], 1 / 6, 0.5, 1.0, node.outputs[0], True)
            return Match((node,), swish) if image(graph, node.inputs[0]) else None
        return _composed(graph, node)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale, the clip and the product."""
        source, alpha, beta, high, output, multiplied = match.facts
        last = "" if multiplied else output
        count = channels(graph, source)
        gate = hard_sigmoid(new, source, alpha, beta, high, count, output=last)
        if multiplied:
            new.node("Mul", [source, gate], output=output)


def _composed(graph: RewriteGraph, clip: Node) -> Match | None:
    shifted = clip.inputs[0]
    add = graph.producer(shifted)
    found = by_constant(graph, add, "Add")
    if add is None or found is None or graph.only_reader(shifted) is not clip:
        return None
    source, shift = found
    if not image(graph, source):
        return None
    known_low, low = bound(graph, clip.input(1), graph.dtype(source))
    known_high, high = bound(graph, clip.input(2), graph.dtype(source))
    if not (known_low and known_high) or low != 0 or high is None:
        return None
    nodes, factor, multiplied = [clip, add], 1.0, False
    current = clip.outputs[0]
    # one factor and one product with x, in either order
    for _ in range(2):
        reader = graph.only_reader(current)
        if reader is None or reader.domain:
            break
        times = factor_of(graph, reader, current)
        if times is not None and factor == 1.0:
            factor = times
        elif reader.op == "Mul" and other_input(reader, current) == source and not multiplied:
            multiplied = True
        else:
            break
        nodes.append(reader)
        current = reader.outputs[0]
    if factor == 1.0 or factor <= 0 or not native(0.0, factor * high):
        return None
    return Match(tuple(nodes), (source, factor, factor * shift, factor * high, current, multiplied))


class Silu:
    """x * Sigmoid(a x) of earlier opsets is what the DLA runs; only the operator is rewritten."""

    name = "silu"
    reason = "the DLA has no Swish; the product of x and its sigmoid is the same function"
    operators: tuple[str, ...] = ("Swish",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Swish of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the sigmoid and the product."""
        node = match.nodes[0]
        source = node.inputs[0]
        alpha = float(node.attrs.get("alpha", 1.0))
        line = source
        if alpha != 1.0:
            line = scaled(new, source, alpha, 0.0, channels(graph, source))
        gate = new.node("Sigmoid", [line], role="sigmoid")
        new.node("Mul", [source, gate], output=node.outputs[0])


class SigmoidForm:
    """Also x / (1 + exp(-x)), which is SiLU, and 1 / (1 + exp(x)), the sigmoid of -x.

    It begins at the negation and at the division too: a rewrite of those alone, or of a
    transposition between them, would come first.
    """

    name = "sigmoid-form"
    reason = "the DLA has no exponential; 1 / (1 + exp(-x)) is the sigmoid, which it has"
    operators: tuple[str, ...] = ("Exp", "Neg", "Mul", "Reciprocal", "Div")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
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

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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


def _exponential(graph: RewriteGraph, node: Node) -> Node | None:
    """Returns what may be the Exp of the form that has ``node`` at any of its anchors."""
    if node.op == "Exp":
        return node
    if node.op in {"Neg", "Mul"}:
        return graph.only_reader(node.outputs[0])
    added = by_constant(graph, graph.producer(node.inputs[-1]), "Add")
    return None if added is None else graph.producer(added[0])


def _negated(graph: RewriteGraph, node: Node | None) -> str:
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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Mish of an image, or Softplus, Tanh and Mul as exporters write it."""
        return mish_at(graph, node)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the sigmoid, the two scales, the products and the division."""
        source, output = match.facts
        count = channels(graph, source)
        gate = new.node("Sigmoid", [source], role="sigmoid")
        above = new.node("Mul", [gate, scaled(new, gate, -1.0, 2.0, count)], role="numerator")
        below = scaled(new, above, -1.0, 2.0, count, role="denominator")
        ratio = new.node("Div", [above, below], role="ratio")
        new.node("Mul", [source, ratio], output=output)


def mish_at(graph: RewriteGraph, node: Node) -> Match | None:
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


# ONNX's defaults
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


class Elu:
    """The exponential of what is not positive, by a tangent that never divides by little.

    For r >= 0, 1 - exp(-r) = 2 t / (1 + t) with t = tanh(r / 2), and 1 + t is from 1 to 2.
    """

    name = "elu"
    reason = (
        "the DLA has no exponential; for the negative side 1 - exp(-r) = 2t / (1 + t) with "
        "t = tanh(r / 2) is the same"
    )
    operators: tuple[str, ...] = ("Elu", "Celu", "Selu")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """One of them with an image."""
        if not image(graph, node.inputs[0]):
            return None
        alpha = float(node.attrs.get("alpha", _SELU[0] if node.op == "Selu" else 1.0))
        if node.op == "Celu" and alpha <= 0:
            return None
        gamma = float(node.attrs.get("gamma", _SELU[1])) if node.op == "Selu" else 1.0
        # f(x) = gamma max(x, 0) - depth (1 - exp(-max(-x, 0) / width))
        width = alpha if node.op == "Celu" else 1.0
        return Match((node,), (gamma, gamma * alpha, width))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the positive part less the negative part."""
        node = match.nodes[0]
        gamma, depth, width = match.facts
        source = node.inputs[0]
        count = channels(graph, source)
        half = scaled(new, source, -0.5 / width, 0.0, count, role="half")
        tangent = new.node("Tanh", [new.node("Relu", [half], role="below")], role="tanh")
        above = scaled(new, tangent, 2.0 * depth, 0.0, count, role="numerator")
        below = scaled(new, tangent, 1.0, 1.0, count, role="denominator")
        negative = new.node("Div", [above, below], role="negative")
        positive = new.node("Relu", [source], role="above")
        if gamma != 1.0:
            positive = scaled(new, positive, gamma, 0.0, count, role="positive")
        new.node("Sub", [positive, negative], output=node.outputs[0])


class Softsign:
    """x / (1 + |x|): helps where the release has division on the DLA."""

    name = "softsign"
    reason = "the DLA has no Softsign; x / (1 + |x|) is its definition"
    operators: tuple[str, ...] = ("Softsign",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Softsign of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the absolute value, the scale and the division."""
        node = match.nodes[0]
        source = node.inputs[0]
        size = new.node("Abs", [source], role="abs")
        below = scaled(new, size, 1.0, 1.0, channels(graph, source), role="denominator")
        new.node("Div", [source, below], output=node.outputs[0])


class SoftShrink:
    """A Shrink whose bias is not its threshold jumps there, which nothing continuous does."""

    name = "soft-shrink"
    reason = "the DLA has no Shrink; max(x - a, 0) - max(-x - a, 0) is the same function"
    operators: tuple[str, ...] = ("Shrink",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Shrink of an image with bias and threshold equal."""
        bias = float(node.attrs.get("bias", 0.0))
        threshold = float(node.attrs.get("lambd", 0.5))
        if bias != threshold or bias < 0 or not image(graph, node.inputs[0]):
            return None
        return Match((node,), bias)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the two parts and their difference."""
        node = match.nodes[0]
        source = node.inputs[0]
        count = channels(graph, source)
        parts = [
            new.node(
                "Relu", [scaled(new, source, sign, -match.facts, count, role=role)], role="relu"
            )
            for sign, role in ((1.0, "above"), (-1.0, "below"))
        ]
        new.node("Sub", parts, output=node.outputs[0])
