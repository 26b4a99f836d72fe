"""Channel shuffles whose groups are gathered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import pick_channels
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._blocks import between_reshapes, blocks_of
from edgekit.rewrite.layout._shuffles import MOST_BRANCHES

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ChannelShuffleParts"]


class ChannelShuffleParts:
    """A channel shuffle of one image whose groups are taken apart at once (ShuffleNet V2).

    [1, C, H, W] becomes [C/g, g, H * W], is transposed and seen as [g, 1, C/g, H, W], of which
    each reader gathers one group: a 1x1 convolution for each, which picks that group's channels.
    """

    name = "channel-shuffle-parts"
    reason = (
        "The DLA has neither five dimensions nor gathering; "
        "a 1x1 convolution of 0 and 1 picks each group of shuffled channels"
    )
    operators: tuple[str, ...] = ("Transpose",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a transposition between reshapes to five dimensions, and its Gathers."""
        chain = between_reshapes(graph, node)
        if chain is None:
            return None
        last, _, first = chain
        source, result = graph.shape(first.inputs[0]), graph.shape(last.outputs[0])
        if len(source) != 4 or source[0] != 1 or len(result) != 5 or result[1] != 1:
            return None
        readers = graph.readers(last.outputs[0])
        if not 0 < len(readers) <= MOST_BRANCHES or not graph.inner(last.outputs[0], readers):
            return None
        indices = [_group(graph, reader) for reader in readers]
        middle = graph.shape(node.inputs[0])
        perm = node.attrs.get("perm") or list(reversed(range(len(middle))))
        whole = (1, result[0] * result[2], *result[3:])
        move = blocks_of(source, [(middle, perm)], whole)
        picks = None if move is None else move.shuffle()
        if picks is None or None in indices:
            return None
        size = result[2]
        parts = [picks[index % result[0] * size :][:size] for index in indices if index is not None]
        return Match((node, first, last, *readers), parts)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a selection for each Gather."""
        _, first, _, *readers = match.nodes
        source = first.inputs[0]
        channels = graph.shape(source)[1]
        for reader, picks in zip(readers, match.facts, strict=True):
            pick_channels(new, source, channels, picks, output=reader.outputs[0])


def _group(graph: Graph, node: Node) -> int | None:
    """The index of a Gather of one element of the first dimension."""
    if node.op != "Gather" or node.domain or node.attrs.get("axis", 0) not in {0, -5}:
        return None
    fixed = graph.ints(node.inputs[1])
    return fixed[0] if fixed is not None and graph.rank(node.inputs[1]) == 0 else None
