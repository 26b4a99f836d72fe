"""Convolutions with more output maps than the DLA takes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from edgekit.dla import limit
from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import conv_of, within, write_conv

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ManyOutputMaps"]

# parts start at multiples of this: the DLA stores channels in such blocks
_BLOCK = 32


class ManyOutputMaps:
    """Conv with more output maps than the limit -> Convs over parts of them, concatenated.

    The concatenation itself has too many channels for the DLA and runs on the GPU. A convolution
    with more groups than the limit would have as many input channels, which the DLA does not
    read at all: nothing is split there.
    """

    name = "many-output-maps"
    reason = (
        "the DLA's convolutions have a limited number of output maps; the parts of a larger one "
        "run there, only putting them together does not"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Conv of one group with too many output maps."""
        conv = conv_of(graph, node)
        if conv is None or conv.groups != 1 or within("convolution.output_maps", conv.weight[0]):
            return None
        return Match((node,), conv)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """One Conv for each part, and a Concat."""
        conv, node = match.facts, match.nodes[0]
        maps, most = conv.weight[0], limit("convolution.output_maps")[1]
        count = -(-maps // most)
        size = -(-maps // count)
        size = min(-(-size // _BLOCK) * _BLOCK, most)
        bounds = [*range(0, maps, size), maps]
        parts = []
        for index, (start, end) in enumerate(pairwise(bounds)):
            ends = [new.constant([value]) for value in (start, end, 0)]
            weight = new.node("Slice", [node.inputs[1], *ends])
            bias = new.node("Slice", [conv.bias, *ends]) if conv.bias else ""
            name = f"{node.name}:part" if index else node.name
            inputs = [node.inputs[0], weight, bias]
            parts.append(write_conv(new, inputs, conv.size, name=name, role="part"))
        new.node("Concat", parts, output=node.outputs[0], name=f"{node.name}:all", axis=1)
