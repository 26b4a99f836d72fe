"""Arithmetic in forms that become one scale or a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.operands import (
    by_constant,
    channels,
    form,
    image,
    scaled,
    to_shape,
    vector,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


_LONGEST_CHAIN = 8
_OPERATORS = ("Add", "Mul", "Sub", "Div", "Neg", "BatchNormalization")


class ScaleChain:
    """Frozen batch normalisation (Mul, Add), normalised inputs (Sub, Div) and the like.

    FP32 models only: what is derived in FP16 would be less exact than the nodes it stands for.
    """

    name = "scale-chain"
    reason = "multiplications and additions of constants in a row are one SCALE layer, not several"
    operators: tuple[str, ...] = _OPERATORS
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """The last of two or more scales, with those before it."""
        source = _scaled_by(graph, node)
        if not source or graph.dtype(source) != "float32":
            return None
        reader = graph.only_reader(node.outputs[0])
        if reader is not None and _scaled_by(graph, reader) == node.outputs[0]:
            return None
        chain = [node]
        while len(chain) < _LONGEST_CHAIN:
            before = graph.producer(source)
            further = _scaled_by(graph, before) if before is not None else ""
            if before is None or not further or graph.only_reader(source) is None:
                break
            chain.append(before)
            source = further
        return Match(tuple(chain), source) if len(chain) > 1 else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes one BatchNormalization, its factor and shift derived from all constants."""
        source = match.facts
        count = graph.shape(source)[1]
        line = _LinearMap(graph, new, count)
        current = source
        for node in reversed(match.nodes):
            line.then(node, current)
            current = node.outputs[0]
        scaled(new, source, line.factor, line.shift, count, output=match.nodes[0].outputs[0])


def _scaled_by(graph: RewriteGraph, node: Node) -> str:
    """Returns the image that a node scales, by numbers or one for each channel; "" if none."""
    if node.domain or node.op not in _OPERATORS:
        return ""
    if node.op in {"Neg", "BatchNormalization"}:
        rest = node.inputs[1:]
        plain = len(node.outputs) == 1 and not node.attrs.get("training_mode", 0)
        fits = plain and all(graph.constant(name) and graph.floats(name) for name in rest)
        return node.inputs[0] if fits and image(graph, node.inputs[0]) else ""
    left, right = node.inputs
    if graph.constant(left) == graph.constant(right):
        return ""
    source, constant = (right, left) if graph.constant(left) else (left, right)
    if node.op == "Div" and source == right:
        return ""
    if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
        return ""
    fits = form(graph.shape(constant), graph.shape(source)) in {"uniform", "channel"}
    return source if fits else ""


class _LinearMap:
    """factor * x + shift, as vectors of C elements derived from constants."""

    def __init__(self, graph: RewriteGraph, new: Writer, count: int) -> None:
        import numpy as np

        self._graph, self._new, self._count = graph, new, count
        self.factor = new.constant(np.ones(count), role="one")
        self.shift = new.constant(np.zeros(count), role="zero")

    def then(self, node: Node, source: str) -> None:
        """Lets a node follow."""
        if node.op == "Neg":
            self._turn()
            return
        if node.op == "BatchNormalization":
            self._normalise(node)
            return
        first = node.inputs[0] != source
        constant = node.inputs[0] if first else node.inputs[1]
        value = vector(self._graph, self._new, constant, self._count)
        if node.op in {"Mul", "Div"}:
            self.factor = self._new.node(node.op, [self.factor, value], role="factor")
            self.shift = self._new.node(node.op, [self.shift, value], role="shift")
            return
        if node.op == "Sub" and first:
            self._turn()
        op = "Sub" if node.op == "Sub" and not first else "Add"
        self.shift = self._new.node(op, [self.shift, value], role="shift")

    def _turn(self) -> None:
        self.factor = self._new.node("Neg", [self.factor], role="factor")
        self.shift = self._new.node("Neg", [self.shift], role="shift")

    def _normalise(self, node: Node) -> None:
        new = self._new
        _, scale, bias, mean, variance = node.inputs
        epsilon = new.constant(float(node.attrs.get("epsilon", 1e-5)), like=variance)
        deviation = new.node("Sqrt", [new.node("Add", [variance, epsilon])])
        gain = new.node("Div", [scale, deviation], role="gain")
        self.factor = new.node("Mul", [self.factor, gain], role="factor")
        moved = new.node("Mul", [new.node("Sub", [self.shift, mean]), gain], role="moved")
        self.shift = new.node("Add", [moved, bias], role="shift")


class ScaleForm:
    """c - x, x / c, Sum(x, c), and constants that repeat along H or W only.

    A constant that makes the result larger than the activation is left to "broadcast-operand".
    """

    name = "scale-form"
    reason = (
        "the builder makes a SCALE layer only of x op c with c a number, one for each channel or "
        "one for each element; other constants stay on the GPU"
    )
    operators: tuple[str, ...] = ("Add", "Mul", "Sub", "Div", "Sum")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """An image and a constant that are no SCALE layer, or a division."""
        if len(node.inputs) != 2:
            return None
        fixed = [graph.constant(name) for name in node.inputs]
        if fixed not in ([True, False], [False, True]):
            return None
        constant_first = fixed[0]
        source, constant = reversed(node.inputs) if constant_first else node.inputs
        if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
            return None
        fits = form(graph.shape(constant), graph.shape(source))
        if not fits or (node.op == "Div" and constant_first):
            return None
        turned = node.op == "Sub" and constant_first
        if not turned and node.op not in {"Div", "Sum"} and fits != "other":
            return None
        return Match((node,), (source, constant, turned, fits))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a scale; the constants that it takes are derived from the old ones."""
        node = match.nodes[0]
        source, constant, turned, fits = match.facts
        output, shape = node.outputs[0], graph.shape(source)
        if turned and fits in {"uniform", "channel"}:
            shift = vector(graph, new, constant, shape[1])
            scaled(new, source, -1.0, shift, shape[1], output=output)
            return
        operand = to_shape(graph, new, constant, shape)
        if turned:
            source = scaled(new, source, -1.0, 0.0, shape[1], role="turned")
        if node.op == "Div":
            operand = new.node("Reciprocal", [operand])
        op = {"Div": "Mul", "Sum": "Add"}.get(node.op, "Add" if turned else node.op)
        new.node(op, [source, operand], output=output)


class Identity:
    """Loading removes an Identity unless it stands between an input and an output of the graph."""

    name = "identity"
    reason = "the DLA has no identity layer; a scale by 1 copies as well"
    operators: tuple[str, ...] = ("Identity", "Sum", "Mean", "Max", "Min")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """An operator that returns its only input, an image."""
        if len(node.inputs) != 1 or not image(graph, node.inputs[0]):
            return None
        return Match((node,))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale."""
        node = match.nodes[0]
        source = node.inputs[0]
        scaled(new, source, 1.0, 0.0, channels(graph, source), output=node.outputs[0])


class Neg:
    """NVIDIA's recipe for Neg is a scale too."""

    name = "neg"
    reason = "the DLA has no negation; a scale by -1 is the same"
    operators: tuple[str, ...] = ("Neg",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Neg of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale."""
        node = match.nodes[0]
        source = node.inputs[0]
        scaled(new, source, -1.0, 0.0, channels(graph, source), output=node.outputs[0])


# four products at most
_LARGEST_EXPONENT = 8


class Pow:
    """x ** n by squaring; roots and negative powers have no form in the DLA's operations."""

    name = "pow"
    reason = "the exponent is a constant, which stays on the GPU; products are the same power"
    operators: tuple[str, ...] = ("Pow",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Pow of an image with a whole exponent from 1 to 8."""
        found = by_constant(graph, node, "Pow")
        if found is None or not image(graph, found[0]):
            return None
        source, exponent = found
        if exponent not in range(1, _LARGEST_EXPONENT + 1):
            return None
        return Match((node,), (source, int(exponent)))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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


class Reciprocal:
    """The numerator 0 * min(max(x, 0), 1) + c is the constant c without a constant layer.

    The clip keeps an infinite denominator, as exp(100) in FP32 or exp(12) in FP16, from making a
    NaN of 0 * x.
    """

    name = "reciprocal"
    reason = (
        "a constant numerator stays on the GPU; a scale of the clipped denominator by 0 plus the "
        "constant makes the same numerator on the DLA"
    )
    operators: tuple[str, ...] = ("Reciprocal", "Div")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Reciprocal of an image, or a Div of a number, or one for each channel, by an image."""
        source = node.inputs[-1]
        if not image(graph, source):
            return None
        if node.op == "Reciprocal":
            return Match((node,), "")
        numerator = node.inputs[0]
        if not graph.constant(numerator):
            return None
        if form(graph.shape(numerator), graph.shape(source)) not in {"uniform", "channel"}:
            return None
        return Match((node,), numerator)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the numerator and the division."""
        node = match.nodes[0]
        source, numerator = node.inputs[-1], match.facts
        count = channels(graph, source)
        value = vector(graph, new, numerator, count) if numerator else 1.0
        low, high = (new.constant(bound, role="bound") for bound in (0.0, 1.0))
        finite = new.node("Clip", [source, low, high], role="finite")
        above = scaled(new, finite, 0.0, value, count, role="numerator")
        new.node("Div", [above, source], output=node.outputs[0])


class MeanOp:
    """The operator matrix has Sum, not Mean."""

    name = "mean-op"
    reason = "TensorRT does not say that Mean runs on the DLA; a sum and a scale do"
    operators: tuple[str, ...] = ("Mean",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Mean of two or more images."""
        if len(node.inputs) < 2 or not all(image(graph, name) for name in node.inputs):
            return None
        return Match((node,))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the sum and the scale."""
        node = match.nodes[0]
        total = new.node("Sum", node.inputs, role="sum")
        output = node.outputs[0]
        count = channels(graph, output)
        scaled(new, total, 1 / len(node.inputs), 0.0, count, output=output)


class MinOp:
    """TensorRT's header lists MIN, the operator matrix does not: a form without that risk."""

    name = "min-op"
    reason = "sources differ on the minimum; -max(-x, -y) needs only what all of them allow"
    operators: tuple[str, ...] = ("Min",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Min of two or more images."""
        if len(node.inputs) < 2 or not all(image(graph, name) for name in node.inputs):
            return None
        return Match((node,))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the negatives, their maximum and its negative."""
        node = match.nodes[0]
        turned = {
            name: scaled(new, name, -1.0, 0.0, channels(graph, name), role="turned")
            for name in dict.fromkeys(node.inputs)
        }
        most = new.node("Max", [turned[name] for name in node.inputs], role="max")
        output = node.outputs[0]
        scaled(new, most, -1.0, 0.0, channels(graph, output), output=output)


class Sub:
    """Where the DLA has the difference itself this makes one layer more, and is not kept."""

    name = "sub"
    reason = "old releases have no difference of two tensors on the DLA; a scale by -1 and a sum do"
    operators: tuple[str, ...] = ("Sub",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A difference of two images."""
        return Match((node,)) if all(image(graph, name) for name in node.inputs) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale and the sum."""
        node = match.nodes[0]
        left, right = node.inputs
        turned = scaled(new, right, -1.0, 0.0, channels(graph, right), role="turned")
        new.node("Add", [left, turned], output=node.outputs[0])
