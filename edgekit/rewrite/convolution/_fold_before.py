"""Scales before a convolution, folded into its weights and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import Conv, conv_of, write_conv
from edgekit.rewrite.convolution._scales import Scale, scale_of, write_scale

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["FoldScaleBefore"]


class FoldScaleBefore:
    """Conv(factor x + shift) -> Conv(x) with other weights and bias.

    A shift only where the convolution does not pad: its zeros would have to be shifted too.
    """

    name = "fold-scale-before"
    reason = (
        "a factor or a shift of a convolution's input goes into its weights and bias: one layer "
        "less, and no division or difference that older releases lack"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Conv that alone reads a scaled activation."""
        conv = conv_of(graph, node)
        scale = None if conv is None else scale_of(graph, graph.producer(node.inputs[0]))
        if conv is None or scale is None or not graph.inner(node.inputs[0], [node]):
            return None
        if scale.shifts and any(conv.size.pads):
            return None
        return Match((node, scale.node), (conv, scale))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """The Conv with other weights and bias."""
        conv: Conv = match.facts[0]
        scale: Scale = match.facts[1]
        weight, bias = conv.node.inputs[1], conv.bias
        factor, shift = write_scale(graph, new, scale)
        if shift:
            added = _through(new, conv, _by_input(new, conv, weight, shift))
            bias = new.node("Add", [bias, added]) if bias else added
        if factor:
            scaled = _by_input(new, conv, weight, factor)
            weight = new.node("Reshape", [scaled, new.constant(list(conv.weight))])
        output, name = conv.node.outputs[0], conv.node.name
        inputs = [scale.data, weight, bias]
        write_conv(new, inputs, conv.size, groups=conv.groups, output=output, name=name)


def _by_input(new: Writer, conv: Conv, weight: str, values: str) -> str:
    """Weights as [groups, K / groups, C / groups, taps], times a value for each input channel."""
    maps, each = conv.weight[:2]
    apart = new.constant([conv.groups, maps // conv.groups, each, -1])
    weight = new.node("Reshape", [weight, apart])
    values = new.node("Reshape", [values, new.constant([conv.groups, 1, each, 1])])
    return new.node("Mul", [weight, values])


def _through(new: Writer, conv: Conv, products: str) -> str:
    """What a constant input adds to each map: the sum over channels and taps, as [K]."""
    axes = new.constant([2, 3])
    summed = new.node("ReduceSum", [products, axes], keepdims=0)
    return new.node("Reshape", [summed, new.constant([conv.weight[0]])])
