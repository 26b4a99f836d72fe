"""Pad nodes as a padding of the next convolution, or as convolutions that move their input."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.convolution.geometry import (
    Conv,
    conv_of,
    keep,
    write_channels,
    write_conv,
    write_zeros,
)
from edgekit.rewriting.rules.convolution.limits import (
    SplitPlan,
    plan_of,
    too_large,
    too_padded,
    write_plan,
)
from edgekit.rewriting.rules.pooling.pools import PadPool

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


class Zeros(NamedTuple):
    """A Pad of zeros around images: (before, after) of C, H and W."""

    node: Node
    channels: tuple[int, int]
    height: tuple[int, int]
    width: tuple[int, int]


def zeros_of(graph: RewriteGraph, node: Node | None) -> Zeros | None:
    """Returns what a Pad of zeros puts around [N, C, H, W]; None for any other node.

    None too where it pads the batch or takes something away.
    """
    if (
        node is None
        or node.op != "Pad"
        or node.domain
        or node.attrs.get("mode", "constant") != "constant"
    ):
        return None
    data, value = node.inputs[0], node.input(2)
    if graph.rank(data) != 4 or not graph.floats(data) or graph.constant(data):
        return None
    pads = graph.ints(node.input(1))
    axes = graph.ints(node.input(3)) if node.input(3) else [0, 1, 2, 3]
    if pads is None or axes is None or (value and graph.scalar(value) != 0.0):
        return None
    around = [(0, 0)] * 4
    for place, axis in enumerate(axes):
        around[axis % 4] = (pads[place], pads[place + len(axes)])
    if around[0] != (0, 0) or min(amount for pair in around for amount in pair) < 0:
        return None
    return Zeros(node, around[1], around[2], around[3])


class _PadFacts(NamedTuple):
    """The Conv with both paddings, of the Pad's input; ``plan`` where it must be larger then."""

    wide: Conv
    zeros: Zeros
    plan: SplitPlan | None


class PadConv:
    """Conv(Pad(x)) -> Conv(x) with more padding; padded channels -> weights without them.

    Only zeros: a convolution pads with nothing else. Where the padding would not be smaller than
    the kernel, the kernel gets taps of zero; where it is over the DLA's limit all the same, the
    Pad stays for ``pad-to-conv``. Other readers keep the Pad.
    """

    name = "pad-conv"
    reason = (
        "padding is a slice beyond the tensor, which boards may refuse; a convolution has padding "
        "of its own"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Conv with constant weights that reads a Pad of zeros."""
        conv = conv_of(graph, node)
        zeros = None if conv is None else zeros_of(graph, graph.producer(node.inputs[0]))
        if conv is None or zeros is None or (conv.groups != 1 and any(zeros.channels)):
            return None
        top, left, bottom, right = conv.size.pads
        pads = (
            top + zeros.height[0],
            left + zeros.width[0],
            bottom + zeros.height[1],
            right + zeros.width[1],
        )
        wide = conv._replace(size=replace(conv.size, pads=pads))
        wide = wide._replace(shape=graph.shape(zeros.node.inputs[0]))
        plan = None
        if pads != conv.size.pads and not too_large(conv) and too_padded(wide):
            plan = None if any(zeros.channels) else plan_of(wide)
            if plan is None or any(map(any, plan.zeros)):
                return None
        return Match((node, zeros.node), _PadFacts(wide, zeros, plan))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """The Conv with the sum of both paddings."""
        facts: _PadFacts = match.facts
        zeros, conv, data = facts.zeros, facts.wide, facts.zeros.node.inputs[0]
        node, weight = conv.node, conv.node.inputs[1]
        if not graph.inner(node.inputs[0], [node]):
            keep(new, zeros.node)
        if facts.plan is not None:
            write_plan(new, conv, facts.plan, data)
            return
        if any(zeros.channels):
            first = zeros.channels[0]
            last = first + conv.shape[1]
            bounds = [new.constant([value]) for value in (first, last, 1)]
            weight = new.node("Slice", [weight, *bounds])
        inputs = [data, weight, conv.bias]
        write_conv(
            new, inputs, conv.size, groups=conv.groups, output=node.outputs[0], name=node.name
        )


_TAKE = (PadConv(), PadPool())
# readers of a Pad that are looked at
_MOST_READERS = 8


class PadToConv:
    """Pad of zeros -> a depthwise Conv along H and along W, a 1x1 Conv for channels.

    Each has a single 1 in every kernel. Only where no convolution or pool after it takes the
    padding over (``pad-conv``, ``pad-pool``). Other values, reflection and repetition of the
    border stay.
    """

    name = "pad-to-conv"
    reason = (
        "padding is a slice beyond the tensor, which boards may refuse; a convolution that moves "
        "its input pads with zeros"
    )
    operators: tuple[str, ...] = ("Pad",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Pad of zeros around the channels or the image."""
        zeros = zeros_of(graph, node)
        if zeros is None or not any((*zeros.channels, *zeros.height, *zeros.width)):
            return None
        # those are tried first that take it over without a layer of their own
        for reader in graph.readers(node.outputs[0])[:_MOST_READERS]:
            if any(reader.op in item.operators and item.match(graph, reader) for item in _TAKE):
                return None
        return Match((node,), zeros)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """The convolutions; the channels last, for they are fewest before."""
        zeros: Zeros = match.facts
        node, channels = zeros.node, graph.shape(zeros.node.inputs[0])[1]
        output, name = node.outputs[0], node.name
        more = any(zeros.channels)
        end = "" if more else output
        data = write_zeros(
            new, node.inputs[0], channels, zeros.height, zeros.width, name=name, output=end
        )
        if more:
            write_channels(new, data, channels, *zeros.channels, name=name, output=output)
