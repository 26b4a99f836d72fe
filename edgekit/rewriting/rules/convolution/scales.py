"""Scales around a convolution, folded into its weights and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.convolution.geometry import Conv, conv_of, product, vector, write_conv

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})


class Scale(NamedTuple):
    """A node that scales or shifts each channel by constants.

    Attributes:
        node: BatchNormalization, Add, Sub, Mul or Div.
        data: The activation it reads.
        channels: Of the activation.
        operand: The constant of arithmetic; "" for a BatchNormalization.
        turned: The constant is the left operand.
    """

    node: Node
    data: str
    channels: int
    operand: str = ""
    turned: bool = False

    @property
    def shifts(self) -> bool:
        """Whether it adds something."""
        return self.node.op not in {"Mul", "Div"}


def scale_of(graph: RewriteGraph, node: Node | None) -> Scale | None:
    """Returns what a node does to each channel of [N, C, H, W]; None when it does anything else."""
    if node is None or node.domain or not node.outputs:
        return None
    if node.op == "BatchNormalization":
        return _batch_norm(graph, node)
    if node.op not in _ARITHMETIC:
        return None
    fixed = [graph.constant(name) for name in node.inputs]
    if sum(fixed) != 1:
        return None
    data, operand = node.inputs if fixed[1] else tuple(reversed(node.inputs))
    if graph.rank(data) != 4 or not graph.floats(data) or (fixed[0] and node.op == "Div"):
        return None
    channels, shape = graph.shape(data)[1], graph.shape(operand)
    per_channel = len(shape) in {3, 4} and product(shape) == channels == shape[-3]
    if len(shape) > 4 or not (product(shape) == 1 or per_channel):
        return None
    return Scale(node, data, channels, operand, fixed[0])


def _batch_norm(graph: RewriteGraph, node: Node) -> Scale | None:
    data = node.inputs[0]
    others = [name for name in node.outputs[1:] if name]
    if others or node.attrs.get("training_mode", 0) or not graph.floats(data):
        return None
    if graph.rank(data) != 4 or not all(graph.constant(name) for name in node.inputs[1:]):
        return None
    # statistics may have a type of their own
    if len({graph.dtype(name) for name in node.inputs}) > 1:
        return None
    return None if graph.constant(data) else Scale(node, data, graph.shape(data)[1])


def write_scale(graph: RewriteGraph, new: Writer, scale: Scale) -> tuple[str, str]:
    """Returns factor and shift as constants of [channels]; "" if there is none."""
    node = scale.node
    if node.op == "BatchNormalization":
        gamma, beta, mean, variance = node.inputs[1:5]
        epsilon = new.constant(float(node.attrs.get("epsilon", 1e-5)))
        spread = new.node("Sqrt", [new.node("Add", [variance, epsilon])])
        factor = new.node("Div", [gamma, spread])
        return factor, new.node("Sub", [beta, new.node("Mul", [mean, factor])])
    operand = vector(graph, new, scale.operand, scale.channels)
    if node.op == "Add":
        return "", operand
    if node.op == "Mul":
        return operand, ""
    if node.op == "Div":
        return new.node("Reciprocal", [operand]), ""
    if scale.turned:
        minus = new.node("Expand", [new.constant([-1.0]), new.constant([scale.channels])])
        return minus, operand
    return "", new.node("Neg", [operand])


class _FoldAfter:
    """What both rewrites share."""

    name = ""
    reason = ""
    operators: tuple[str, ...] = ()
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """The scale of a Conv's result that nothing else reads."""
        scale = scale_of(graph, node)
        conv = None if scale is None else conv_of(graph, graph.producer(scale.data))
        if scale is None or conv is None or not graph.inner(scale.data, [node]):
            return None
        return Match((node, conv.node), (conv, scale))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Conv that alone reads a scaled activation."""
        conv = conv_of(graph, node)
        scale = None if conv is None else scale_of(graph, graph.producer(node.inputs[0]))
        if conv is None or scale is None or not graph.inner(node.inputs[0], [node]):
            return None
        if scale.shifts and any(conv.size.pads):
            return None
        return Match((node, scale.node), (conv, scale))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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
