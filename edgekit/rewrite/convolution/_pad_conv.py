"""Pad before a convolution, as the convolution's own padding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import Conv, conv_of, keep, write_conv
from edgekit.rewrite.convolution._over_limits import too_large, too_padded
from edgekit.rewrite.convolution._pads import Zeros, zeros_of
from edgekit.rewrite.convolution._split import Plan, plan_of, write_plan

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["PadConv"]


@dataclass(frozen=True, slots=True)
class _Facts:
    """The Conv with both paddings, of the Pad's input; ``plan`` where it must be larger then."""

    wide: Conv
    zeros: Zeros
    plan: Plan | None


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

    def match(self, graph: Graph, node: Node) -> Match | None:
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
        wide = replace(conv, size=replace(conv.size, pads=pads))
        wide = replace(wide, shape=graph.shape(zeros.node.inputs[0]))
        plan = None
        if pads != conv.size.pads and not too_large(conv) and too_padded(wide):
            plan = None if any(zeros.channels) else plan_of(wide)
            if plan is None or any(map(any, plan.zeros)):
                return None
        return Match((node, zeros.node), _Facts(wide, zeros, plan))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """The Conv with the sum of both paddings."""
        facts: _Facts = match.facts
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
