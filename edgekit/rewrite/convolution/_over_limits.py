"""Convolutions beyond a limit of the DLA as sums of convolutions within it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import Conv, banks_available, conv_of, within
from edgekit.rewrite.convolution._split import banks, plan_of, write_plan

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["OverLimit"]


class OverLimit:
    """What these rewrites share: the split of the fewest layers that keeps to every limit.

    Each has its own file, which says when it is asked for; the split itself minds the limits of
    kernel, padding, dilation and convolution buffer together, so that no part breaks another one.
    """

    name = ""
    reason = ""
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def beyond(self, conv: Conv) -> bool:
        """Whether a convolution is beyond the limit."""
        raise NotImplementedError

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A 2-D Conv with constant weights beyond the limit that can be split."""
        conv = conv_of(graph, node)
        if conv is None or not self.beyond(conv):
            return None
        plan = plan_of(conv)
        return None if plan is None else Match((node,), (conv, plan))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """The parts and their sum."""
        conv, plan = match.facts
        write_plan(new, conv, plan, conv.node.inputs[0])


def too_large(conv: Conv) -> bool:
    """Whether the kernel is over its limit."""
    return not within("convolution.kernel", *conv.size.kernel)


def too_far(conv: Conv) -> bool:
    """Whether the dilation is over its limit."""
    return not within("convolution.dilation", *conv.size.dilation)


def too_padded(conv: Conv) -> bool:
    """Whether the padding is over its limit, or not smaller than the dilated kernel."""
    size = conv.size
    reach = [(k - 1) * d for k, d in zip(size.kernel, size.dilation, strict=True)]
    over = not within("convolution.padding", *size.pads)
    return over or any(pad > far for pad, far in zip(size.pads, (*reach, *reach), strict=True))


def too_full(conv: Conv) -> bool:
    """Whether the convolution buffer is full, or too small, in FP16."""
    return banks(conv) >= banks_available()
