"""Channel shuffles as another order of a neighbour's weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._channelwise import channelwise, mixes_channels
from edgekit.rewrite.layout._shuffles import MOST_BRANCHES, Shuffle, shuffle_at

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ChannelShuffleFold"]


# a chain of per-channel operators is followed for so many nodes
_MOST_NODES = 8


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
        chain = _before(graph, shuffle.source)
        if chain is not None:
            fold = _Fold(shuffle, (chain,), before=True)
        else:
            chains = _behind(graph, shuffle.output)
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
            _write(graph, chain, new, order, chain[0].inputs[0], output, {1: 0, 2: 0})
            return
        inverse = sorted(range(len(picks)), key=picks.__getitem__)
        order = new.constant(inverse, role="order")
        for chain in fold.chains:
            _write(graph, chain, new, order, source, chain[-1].outputs[0], {1: 1})


def _before(graph: Graph, tensor: str) -> tuple[Node, ...] | None:
    """The nodes from an ungrouped convolution to the shuffle, which nobody else reads."""
    chain: list[Node] = []
    for _ in range(_MOST_NODES):
        node = graph.producer(tensor)
        if node is None or graph.only_reader(tensor) is None:
            return None
        chain.insert(0, node)
        if mixes_channels(graph, node):
            return tuple(chain)
        parts = channelwise(graph, node)
        if parts is None:
            return None
        tensor = node.inputs[parts.data]
    return None


def _behind(graph: Graph, output: str) -> tuple[tuple[Node, ...], ...] | None:
    """Chains from the shuffle to ungrouped convolutions; None when another reads it."""
    readers = graph.readers(output)
    if not 0 < len(readers) <= MOST_BRANCHES or not graph.inner(output, readers):
        return None
    chains = [_chain(graph, reader, output) for reader in readers]
    found = tuple(chain for chain in chains if chain is not None)
    return found if len(found) == len(chains) else None


def _chain(graph: Graph, reader: Node, tensor: str) -> tuple[Node, ...] | None:
    chain: list[Node] = []
    node: Node | None = reader
    for _ in range(_MOST_NODES):
        if node is None:
            return None
        chain.append(node)
        if mixes_channels(graph, node):
            return tuple(chain) if node.inputs.index(tensor) == 0 else None
        parts = channelwise(graph, node)
        if parts is None or node.inputs[parts.data] != tensor:
            return None
        tensor = node.outputs[0]
        node = graph.only_reader(tensor)
    return None


def _write(
    graph: Graph,
    chain: tuple[Node, ...],
    new: Writer,
    order: str,
    source: str,
    output: str,
    ends: Mapping[int, int],
) -> None:
    """Writes a chain again; ``ends``: axis of its convolution's constants along the channels."""
    for node in chain:
        parts = channelwise(graph, node)
        data, axes = (0, ends) if parts is None else (parts.data, parts.axes)
        inputs = list(node.inputs)
        for position, axis in axes.items():
            if node.input(position):
                inputs[position] = new.node("Gather", [inputs[position], order], axis=axis)
        inputs[data] = source
        target = output if node is chain[-1] else ""
        source = new.node(node.op, inputs, output=target, name=node.name, **node.attrs)
