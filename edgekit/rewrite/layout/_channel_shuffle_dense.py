"""Channel shuffles in the weights of a neighbouring grouped convolution, ungrouped for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._channelwise import channelwise
from edgekit.rewrite.layout._shuffle_chains import chain_before, chains_behind, write_chain

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ChannelShuffleDense"]


@dataclass(frozen=True, slots=True)
class _Dense:
    """Chains that take the permutation ``picks``, each beginning or ending at a convolution."""

    picks: tuple[int, ...]
    chains: tuple[tuple[Node, ...], ...]
    before: bool


class ChannelShuffleDense:
    """A permutation of the channels and the grouped convolution next to it are one (ShuffleNet V1).

    Zeros between the groups' weights make that convolution an ungrouped one, which can write or
    read its channels in any order. Of the convolutions before and behind, those with fewer
    products are taken; what stands between treats each channel alone, as in channel-shuffle-fold.
    """

    name = "channel-shuffle-dense"
    reason = (
        "Grouped convolutions cannot reorder channels; "
        "ungrouped, with zeros between the groups, the neighbour does it without a layer of its own"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a 1x1 convolution that reorders channels, with convolutions next to it."""
        picks = _picks(graph, node)
        if picks is None:
            return None
        found = []
        chain = chain_before(graph, node.inputs[0], _convolution)
        if chain is not None:
            found.append(_Dense(picks, (chain,), before=True))
        chains = chains_behind(graph, node.outputs[0], _convolution)
        if chains is not None:
            found.append(_Dense(picks, chains, before=False))
        if not found:
            return None
        best = min(found, key=lambda dense: _products(graph, dense))
        inner = [item for chain in best.chains for item in chain]
        return Match((node, *inner), best)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the chains again, their convolutions ungrouped and in another order."""
        node, found = match.nodes[0], match.facts
        if found.before:
            order = new.constant(list(found.picks), role="order")
            (chain,) = found.chains
            dense = _ungrouped(graph, new, chain[0])
            source, target, at_end = chain[0].inputs[0], node.outputs[0], {1: 0, 2: 0}
            write_chain(graph, (dense, *chain[1:]), new, order, source, target, at_end)
            return
        inverse = sorted(range(len(found.picks)), key=found.picks.__getitem__)
        order = new.constant(inverse, role="order")
        for chain in found.chains:
            dense = _ungrouped(graph, new, chain[-1])
            target = chain[-1].outputs[0]
            write_chain(graph, (*chain[:-1], dense), new, order, node.inputs[0], target, {1: 1})


def _picks(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The channel that each output map of a convolution copies, if they are a permutation.

    Only weights that a rewrite brought along are looked at.
    """
    brought = graph.fixed(node.inputs[1]) if len(node.inputs) == 2 else None
    if brought is None or graph.rank(node.inputs[0]) != 4:
        return None
    weight = brought.value
    maps, depth, *kernel = weight.shape
    if kernel != [1, 1] or graph.shape(node.inputs[0]) != graph.shape(node.outputs[0]):
        return None
    if not ((weight == 0) | (weight == 1)).all() or not (weight.sum(axis=(1, 2, 3)) == 1).all():
        return None
    per_group = maps // node.attrs.get("group", 1)
    inner = weight.reshape(maps, depth).argmax(axis=1)
    picks = tuple(int(c) + k // per_group * depth for k, c in enumerate(inner))
    return picks if sorted(picks) == list(range(maps)) else None


def _convolution(graph: Graph, node: Node) -> bool:
    """Whether a node is a 2-D convolution with constant weights that mixes channels."""
    return (
        node.op == "Conv"
        and not node.domain
        and graph.rank(node.inputs[0]) == 4
        and not graph.constant(node.inputs[0])
        and all(graph.constant(name) for name in node.inputs[1:] if name)
        and channelwise(graph, node) is None
    )


def _products(graph: Graph, dense: _Dense) -> int:
    """Products of the ungrouped convolutions."""
    total = 0
    for chain in dense.chains:
        node = chain[0] if dense.before else chain[-1]
        image, kernel = graph.shape(node.outputs[0]), graph.shape(node.inputs[1])[2:]
        total += math.prod(image) * graph.shape(node.inputs[0])[1] * math.prod(kernel)
    return total


def _ungrouped(graph: Graph, new: Writer, node: Node) -> Node:
    """Writes a convolution's weights for one group; returns the convolution that reads them."""
    import numpy as np

    groups = node.attrs.get("group", 1)
    if groups == 1:
        return node
    maps, depth = graph.shape(node.inputs[1])[:2]
    new.room(maps, groups, depth)
    blocks = np.kron(np.eye(groups), np.ones((maps // groups, depth)))
    mask = new.constant(blocks[:, :, None, None], like=node.inputs[1], role="blocks")
    tiled = new.node("Tile", [node.inputs[1], new.constant([1, groups, 1, 1], role="repeats")])
    weight = new.node("Mul", [tiled, mask])
    attrs = {key: value for key, value in node.attrs.items() if key != "group"}
    inputs = (node.inputs[0], weight, *node.inputs[2:])
    return Node(node.name, node.op, inputs, node.outputs, attrs)
