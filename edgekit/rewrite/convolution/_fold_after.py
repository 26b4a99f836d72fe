"""Scales behind a convolution, folded into its weights and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import Conv, conv_of, write_conv
from edgekit.rewrite.convolution._scales import Scale, scale_of, write_scale

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["FoldBatchNorm", "FoldScale"]


class _FoldAfter:
    """What both rewrites share."""

    name = ""
    reason = ""
    operators: tuple[str, ...] = ()
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """The scale of a Conv's result that nothing else reads."""
        scale = scale_of(graph, node)
        conv = None if scale is None else conv_of(graph, graph.producer(scale.data))
        if scale is None or conv is None or not graph.inner(scale.data, [node]):
            return None
        return Match((node, conv.node), (conv, scale))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """The Conv with other weights and bias."""
        conv: Conv = match.facts[0]
        scale: Scale = match.facts[1]
        weight, bias = conv.node.inputs[1], conv.bias
        factor, shift = write_scale(graph, new, scale)
        if factor:
            by_map = new.node("Reshape", [factor, new.constant([scale.channels, 1, 1, 1])])
            weight = new.node("Mul", [weight, by_map])
            bias = new.node("Mul", [bias, factor]) if bias else ""
        if shift:
            bias = new.node("Add", [bias, shift]) if bias else shift
        output, name = scale.node.outputs[0], conv.node.name
        inputs = [conv.node.inputs[0], weight, bias]
        write_conv(new, inputs, conv.size, groups=conv.groups, output=output, name=name)


class FoldBatchNorm(_FoldAfter):
    """BatchNormalization(Conv(x)) -> Conv(x)."""

    name = "fold-batch-norm"
    reason = (
        "a batch normalization behind a convolution is a factor and a shift of its maps, which "
        "its weights and bias take in: one layer less"
    )
    operators: tuple[str, ...] = ("BatchNormalization",)


class FoldScale(_FoldAfter):
    """Conv(x) * c, / c, + c, - c or c - Conv(x) -> Conv(x), c being one number or one a channel.

    A frozen batch normalization written out is folded one node after the other. Division of a
    constant by the result stays, and so do constants that differ within a map.
    """

    name = "fold-scale"
    reason = (
        "a factor or a shift of a convolution's maps goes into its weights and bias: one layer "
        "less, and no division or difference that older releases lack"
    )
    operators: tuple[str, ...] = ("Mul", "Div", "Add", "Sub")
