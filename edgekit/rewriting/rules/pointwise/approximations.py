"""Approximate forms of activations; off unless allowed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.activations import hard_sigmoid, mish_at
from edgekit.rewriting.rules.pointwise.gelu import OPERATORS, erf_gelu, gelu_tanh
from edgekit.rewriting.rules.pointwise.operands import channels, image, other_input, scaled

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


class ApproxGeluErf:
    """At most 4.8e-4 from GELU (at |x| near 2.7)."""

    name = "approx-gelu-erf"
    reason = (
        "the DLA has no error function; the tanh form of GELU differs by at most 4.8e-4 and runs "
        "there in five layers"
    )
    operators: tuple[str, ...] = OPERATORS
    enabling = False
    deviation = 4.8e-4

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Gelu without approximation, or the Erf in what exporters write for it."""
        return erf_gelu(graph, node)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the tanh form."""
        source, output = match.facts
        gelu_tanh(graph, new, source, output=output)


# of Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
_GELU_SLOPE = 1.702


class ApproxGeluSigmoid:
    """At most 0.0204 from GELU (at |x| near 2.2), in two layers fewer than the tanh form."""

    name = "approx-gelu-sigmoid"
    reason = (
        "the DLA has no error function; x sigmoid(1.702 x) differs from GELU by at most 0.0204 "
        "and runs there in three layers"
    )
    operators: tuple[str, ...] = OPERATORS
    enabling = False
    deviation = 0.0204

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Gelu without approximation, or the Erf in what exporters write for it."""
        return erf_gelu(graph, node)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale, the sigmoid and the product."""
        source, output = match.facts
        line = scaled(new, source, _GELU_SLOPE, 0.0, channels(graph, source))
        gate = new.node("Sigmoid", [line], role="sigmoid")
        new.node("Mul", [source, gate], output=output)


# the slope with the smallest largest deviation; the best clipped line in its place is 0.146 off
_MISH_SLOPE = 1.25


class ApproxMish:
    """At most 0.104 from Mish; where the DLA divides, "mish" is exact."""

    name = "approx-mish"
    reason = (
        "the DLA has no softplus; x sigmoid(1.25 x) differs from Mish by at most 0.104 and needs "
        "no division"
    )
    operators: tuple[str, ...] = ("Mish", "Softplus")
    enabling = False
    deviation = 0.104

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Mish of an image, or Softplus, Tanh and Mul as exporters write it."""
        return mish_at(graph, node)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale, the sigmoid and the product."""
        source, output = match.facts
        line = scaled(new, source, _MISH_SLOPE, 0.0, channels(graph, source))
        gate = new.node("Sigmoid", [line], role="sigmoid")
        new.node("Mul", [source, gate], output=output)


class ApproxSiluHardSwish:
    """At most 0.143 from SiLU (at |x| = 3). The DLA runs SiLU too, its sigmoid in FP16."""

    name = "approx-silu-hard-swish"
    reason = (
        "a sigmoid runs in FP16 on the DLA even in INT8; HardSwish needs a scale and a clip and "
        "differs by at most 0.143"
    )
    operators: tuple[str, ...] = ("Sigmoid", "Swish")
    enabling = False
    deviation = 0.143

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """The Sigmoid of x that only the product with x reads, or a Swish."""
        source = node.inputs[0]
        if not image(graph, source):
            return None
        if node.op == "Swish":
            plain = float(node.attrs.get("alpha", 1.0)) == 1.0
            return Match((node,), (source, node.outputs[0])) if plain else None
        product = graph.only_reader(node.outputs[0])
        if product is None or product.op != "Mul" or product.domain:
            return None
        if other_input(product, node.outputs[0]) != source:
            return None
        return Match((node, product), (source, product.outputs[0]))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale, the clip and the product."""
        source, output = match.facts
        count = channels(graph, source)
        gate = hard_sigmoid(new, source, 1 / 6, 0.5, 1.0, count, output="")
        new.node("Mul", [source, gate], output=output)


class ApproxSigmoidHardSigmoid:
    """At most 0.0692 from the sigmoid (at |x| = 3), with the slope 1/6 of HardSwish."""

    name = "approx-sigmoid-hard-sigmoid"
    reason = (
        "a sigmoid runs in FP16 on the DLA even in INT8; a scale and a clip differ by at most "
        "0.0692"
    )
    operators: tuple[str, ...] = ("Sigmoid",)
    enabling = False
    deviation = 0.0692

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Sigmoid of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the scale and the clip."""
        node = match.nodes[0]
        source = node.inputs[0]
        count = channels(graph, source)
        hard_sigmoid(new, source, 1 / 6, 0.5, 1.0, count, output=node.outputs[0])


class ApproxSoftplusRelu:
    """At most ln 2 = 0.6932 from Softplus (at x = 0)."""

    name = "approx-softplus-relu"
    reason = "the DLA has no softplus; ReLU differs by at most ln 2 = 0.6932, at zero"
    operators: tuple[str, ...] = ("Softplus",)
    enabling = False
    deviation = 0.6932

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Softplus of an image."""
        return Match((node,)) if image(graph, node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the ReLU."""
        node = match.nodes[0]
        new.node("Relu", [node.inputs[0]], output=node.outputs[0])
