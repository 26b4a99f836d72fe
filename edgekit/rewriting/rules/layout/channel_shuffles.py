"""Channel shuffles: folded into neighbouring weights, gathered at once, or as a convolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.layout.blocks import between_reshapes, blocks_at, blocks_of
from edgekit.rewriting.rules.selection import pick_channels

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer


class Shuffle(NamedTuple):
    """Tensors read and written, and the source's channel by channel of the result."""

    source: str
    output: str
    picks: tuple[int, ...]


#: A rewrite follows so many readers of a shuffle.
MOST_BRANCHES = 8


def shuffle_at(graph: RewriteGraph, node: Node) -> Match | None:
    """Returns the nodes that reorder channels from a Transpose on; facts: :class:`Shuffle`."""
    for nodes, source, output, blocks in blocks_at(graph, node):
        picks = blocks.shuffle()
        if picks is not None and picks != sorted(picks):
            return Match(nodes, Shuffle(source, output, tuple(picks)))
    return None


_SAME_FOR_ALL = frozenset(
    [
        *("Abs", "AveragePool", "Clip", "Cos", "Elu", "Erf", "Exp", "GlobalAveragePool"),
        *("GlobalMaxPool", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "MaxPool", "Mish"),
        *("Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt"),
        "Tanh",
    ]
)
_WITH_CONSTANT = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"})


class Channelwise(NamedTuple):
    """What an operator reads.

    Attributes:
        data: Position of its only activation.
        axes: Axis along the channels of its constants that have one, by position.
    """

    data: int
    axes: Mapping[int, int]


def channelwise(graph: RewriteGraph, node: Node) -> Channelwise | None:
    """Returns what a node that treats every channel of a 4-D tensor alone reads; else None."""
    if node.domain or len(node.outputs) != 1 or graph.rank(node.outputs[0]) != 4:
        return None
    data = [i for i, name in enumerate(node.inputs) if name and not graph.constant(name)]
    if len(data) != 1 or graph.rank(node.inputs[data[0]]) != 4:
        return None
    channels = graph.shape(node.inputs[data[0]])[1]
    if node.op in _SAME_FOR_ALL:
        return Channelwise(0, {}) if data == [0] else None
    if node.op == "BatchNormalization":
        return Channelwise(0, dict.fromkeys(range(1, 5), 0)) if data == [0] else None
    if node.op == "Conv":
        shape = graph.shape(node.inputs[1]) if data == [0] else ()
        depthwise = node.attrs.get("group", 1) == channels and shape[:2] == (channels, 1)
        return Channelwise(0, {1: 0, 2: 0}) if depthwise and channels > 1 else None
    if node.op not in _WITH_CONSTANT or len(node.inputs) != 2:
        return None
    other = 1 - data[0]
    shape = graph.shape(node.inputs[other])
    if graph.shape(node.outputs[0]) != graph.shape(node.inputs[data[0]]):
        return None
    axis = len(shape) - 3
    has_channels = axis >= 0 and shape[axis] != 1
    return Channelwise(data[0], {other: axis} if has_channels else {})


def mixes_channels(graph: RewriteGraph, node: Node) -> bool:
    """Whether a node is an ungrouped 2-D convolution with constant weights."""
    return (
        node.op == "Conv"
        and not node.domain
        and node.attrs.get("group", 1) == 1
        and graph.rank(node.inputs[0]) == 4
        and all(graph.constant(name) for name in node.inputs[1:] if name)
        and not graph.constant(node.inputs[0])
    )


#: Whether a chain ends, or begins, at a node.
Ends: TypeAlias = Callable[["RewriteGraph", Node], bool]

# a chain of per-channel operators is followed for so many nodes
_MOST_NODES = 8


def chain_before(graph: RewriteGraph, tensor: str, ends: Ends) -> tuple[Node, ...] | None:
    """Returns the nodes from a convolution to a tensor that only one node reads, else None."""
    chain: list[Node] = []
    for _ in range(_MOST_NODES):
        node = graph.producer(tensor)
        if node is None or graph.only_reader(tensor) is None:
            return None
        chain.insert(0, node)
        if ends(graph, node):
            return tuple(chain)
        parts = channelwise(graph, node)
        if parts is None:
            return None
        tensor = node.inputs[parts.data]
    return None


def chains_after(
    graph: RewriteGraph, output: str, ends: Ends
) -> tuple[tuple[Node, ...], ...] | None:
    """Returns the chains from a tensor to convolutions; None when another node reads it."""
    readers = graph.readers(output)
    if not 0 < len(readers) <= MOST_BRANCHES or not graph.inner(output, readers):
        return None
    chains = [_chain(graph, reader, output, ends) for reader in readers]
    found = tuple(chain for chain in chains if chain is not None)
    return found if len(found) == len(chains) else None


def _chain(graph: RewriteGraph, reader: Node, tensor: str, ends: Ends) -> tuple[Node, ...] | None:
    chain: list[Node] = []
    node: Node | None = reader
    for _ in range(_MOST_NODES):
        if node is None:
            return None
        chain.append(node)
        if ends(graph, node):
            return tuple(chain) if node.inputs.index(tensor) == 0 else None
        parts = channelwise(graph, node)
        if parts is None or node.inputs[parts.data] != tensor:
            return None
        tensor = node.outputs[0]
        node = graph.only_reader(tensor)
    return None


def write_chain(
    graph: RewriteGraph,
    chain: tuple[Node, ...],
    new: Writer,
    order: str,
    source: str,
    output: str,
    at_end: Mapping[int, int],
) -> None:
    """Writes a chain again; ``at_end``: axis of its convolution's constants along the channels."""
    for node in chain:
        parts = channelwise(graph, node)
        data, axes = (0, at_end) if parts is None else (parts.data, parts.axes)
        inputs = list(node.inputs)
        for position, axis in axes.items():
            if node.input(position):
                inputs[position] = new.node("Gather", [inputs[position], order], axis=axis)
        inputs[data] = source
        target = output if node is chain[-1] else ""
        source = new.node(node.op, inputs, output=target, name=node.name, **node.attrs)


class _Fold(NamedTuple):
    """Where the permutation goes: chains of nodes, each beginning or ending at a convolution."""

    shuffle: Shuffle
    chains: tuple[tuple[Node, ...], ...]
    before: bool


class ChannelShuffleFold:
    """A channel shuffle next to an ungrouped convolution: that one's weights in another order.

    The convolution before it computes its output maps in the shuffled order, or those after it
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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a shuffle with a convolution before it, or with nothing else after it."""
        found = shuffle_at(graph, node)
        if found is None:
            return None
        shuffle: Shuffle = found.facts
        chain = chain_before(graph, shuffle.source, mixes_channels)
        if chain is not None:
            fold = _Fold(shuffle, (chain,), before=True)
        else:
            chains = chains_after(graph, shuffle.output, mixes_channels)
            if chains is None:
                return None
            fold = _Fold(shuffle, chains, before=False)
        inner = [item for part in fold.chains for item in part]
        return replace(found, nodes=(*found.nodes, *inner), facts=fold)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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


class ChannelShuffle:
    """Reshapes and transpositions within C: a 1x1 convolution with a permutation matrix.

    Any regrouping of the channels counts, whatever rank the exporter chose between. It is grouped
    where the permutation stays within groups.
    """

    name = "channel-shuffle"
    reason = (
        "The DLA has no reshape to five dimensions; "
        "a 1x1 convolution by a permutation matrix reorders the channels"
    )
    operators: tuple[str, ...] = ("Transpose",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a transposition with its reshapes that together reorder the channels."""
        return shuffle_at(graph, node)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolution."""
        source, output, picks = match.facts
        pick_channels(new, source, graph.shape(source)[1], picks, output=output)


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
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

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a selection for each Gather."""
        _, first, _, *readers = match.nodes
        source = first.inputs[0]
        channels = graph.shape(source)[1]
        for reader, picks in zip(readers, match.facts, strict=True):
            pick_channels(new, source, channels, picks, output=reader.outputs[0])


def _group(graph: RewriteGraph, node: Node) -> int | None:
    """The index of a Gather of one element of the first dimension."""
    if node.op != "Gather" or node.domain or node.attrs.get("axis", 0) not in {0, -5}:
        return None
    fixed = graph.ints(node.inputs[1])
    return fixed[0] if fixed is not None and graph.rank(node.inputs[1]) == 0 else None


class _Dense(NamedTuple):
    """Chains that take the permutation ``picks``, each beginning or ending at a convolution."""

    picks: tuple[int, ...]
    chains: tuple[tuple[Node, ...], ...]
    before: bool


class ChannelShuffleDense:
    """A permutation of the channels and the grouped convolution next to it are one (ShuffleNet V1).

    Zeros between the groups' weights make that convolution an ungrouped one, which can write or
    read its channels in any order. Of the convolutions before and after, those with fewer
    products are taken; what stands between treats each channel alone, as in channel-shuffle-fold.
    """

    name = "channel-shuffle-dense"
    reason = (
        "Grouped convolutions cannot reorder channels; "
        "ungrouped, with zeros between the groups, the neighbour does it without a layer of its own"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a 1x1 convolution that reorders channels, with convolutions next to it."""
        picks = _picks(graph, node)
        if picks is None:
            return None
        found = []
        chain = chain_before(graph, node.inputs[0], _convolution)
        if chain is not None:
            found.append(_Dense(picks, (chain,), before=True))
        chains = chains_after(graph, node.outputs[0], _convolution)
        if chains is not None:
            found.append(_Dense(picks, chains, before=False))
        if not found:
            return None
        best = min(found, key=lambda dense: _products(graph, dense))
        inner = [item for chain in best.chains for item in chain]
        return Match((node, *inner), best)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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


def _picks(graph: RewriteGraph, node: Node) -> tuple[int, ...] | None:
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


def _convolution(graph: RewriteGraph, node: Node) -> bool:
    """Whether a node is a 2-D convolution with constant weights that mixes channels."""
    return (
        node.op == "Conv"
        and not node.domain
        and graph.rank(node.inputs[0]) == 4
        and not graph.constant(node.inputs[0])
        and all(graph.constant(name) for name in node.inputs[1:] if name)
        and channelwise(graph, node) is None
    )


def _products(graph: RewriteGraph, dense: _Dense) -> int:
    """Products of the ungrouped convolutions."""
    total = 0
    for chain in dense.chains:
        node = chain[0] if dense.before else chain[-1]
        image, kernel = graph.shape(node.outputs[0]), graph.shape(node.inputs[1])[2:]
        total += math.prod(image) * graph.shape(node.inputs[0])[1] * math.prod(kernel)
    return total


def _ungrouped(graph: RewriteGraph, new: Writer, node: Node) -> Node:
    """Writes a convolution's weights for one group; returns the convolution that reads them."""
    import numpy as np

    groups = node.attrs.get("group", 1)
    if groups == 1:
        return node
    maps, depth = graph.shape(node.inputs[1])[:2]
    new.check_size(maps, groups, depth)
    blocks = np.kron(np.eye(groups), np.ones((maps // groups, depth)))
    mask = new.constant(blocks[:, :, None, None], like=node.inputs[1], role="blocks")
    tiled = new.node("Tile", [node.inputs[1], new.constant([1, groups, 1, 1], role="repeats")])
    weight = new.node("Mul", [tiled, mask])
    attrs = {key: value for key, value in node.attrs.items() if key != "group"}
    inputs = (node.inputs[0], weight, *node.inputs[2:])
    return Node(node.name, node.op, inputs, node.outputs, attrs)
