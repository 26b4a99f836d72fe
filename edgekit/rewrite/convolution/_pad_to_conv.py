"""Pad as convolutions that move their input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._pad_conv import PadConv
from edgekit.rewrite.convolution._pads import Zeros, zeros_of
from edgekit.rewrite.convolution._zeros import write_channels, write_zeros
from edgekit.rewrite.pooling._pad_pool import PadPool

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["PadToConv"]

_TAKE = (PadConv(), PadPool())
# readers of a Pad that are asked
_MOST_READERS = 8


class PadToConv:
    """Pad of zeros -> a depthwise Conv along H and along W, a 1x1 Conv for channels.

    Each has a single 1 in every kernel. Only where no convolution or pool behind it takes the
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

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Pad of zeros around the channels or the image."""
        zeros = zeros_of(graph, node)
        if zeros is None or not any((*zeros.channels, *zeros.height, *zeros.width)):
            return None
        # those are asked first that take it over without a layer of their own
        for reader in graph.readers(node.outputs[0])[:_MOST_READERS]:
            if any(reader.op in item.operators and item.match(graph, reader) for item in _TAKE):
                return None
        return Match((node,), zeros)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
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
