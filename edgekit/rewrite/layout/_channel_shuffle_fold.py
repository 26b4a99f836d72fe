"""Channel shuffles as another order of a neighbour's weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._channelwise import mixes_channels
from edgekit.rewrite.layout._shuffle_chains import chain_before, chains_behind, write_chain
from edgekit.rewrite.layout._shuffles import Shuffle, shuffle_at

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ChannelShuffleFold"]


@dataclass(frozen=True, slots=True)
class _Fold:
    """Where the permutation goes: chains of nodes, each beginning or ending at a convolution."""

    shuffle: Shuffle
    chains: tuple[tuple[Node, ...], ...]
    before: bool


class ChannelShuffleFold:
    """A channel shuffle next to an ungrouped convolution: that one's weights in another order.

    The convolution before it computes its output maps in the shuffled order, or those behind it
    read their input maps in the old one; what stands between may be anything that treats each
    channel alone (batch normalisation, activations, pooling, depthwise convolutions), whose
    per-channel numbers are reordered too. A grouped convolution cannot take the permutation: it
    reads and writes within its groups only.
    """

    name = "channel-shuffle-fold"
    reason = (
        "The DLA has no reshape to five dimensions; "
        "the neighbouring convolution's weights in another order make the shuffle for nothing"
    )
    operators: tuple[str, ...] = ("Transpose",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a shuffle with a convolution before it, or with nothing else behind it."""
        found = shuffle_at(graph, node)
        if found is None:
            return None
        shuffle: Shuffle = found.facts
        chain = chain_before(graph, shuffle.source, mixes_channels)
        if chain is not None:
            fold = _Fold(shuffle, (chain,), before=True)
        else:
            chains = chains_behind(graph, shuffle.output, mixes_channels)
            if chains is None:
                return None
            fold = _Fold(shuffle, chains, before=False)
        inner = [item for part in fold.chains for item in part]
        return replace(found, nodes=(*found.nodes, *inner), facts=fold)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the chains again with reordered weights."""
        fold: _Fold = match.facts
        source, output, picks = fold.shuffle
        if fold.before:
            order = new.constant(list(picks), role="order")
            (chain,) = fold.chains
            write_chain(graph, chain, new, order, chain[0].inputs[0], output, {1: 0, 2: 0})
            return
        inverse = sorted(range(len(picks)), key=picks.__getitem__)
        order = new.constant(inverse, role="order")
        for chain in fold.chains:
            write_chain(graph, chain, new, order, source, chain[-1].outputs[0], {1: 1})
