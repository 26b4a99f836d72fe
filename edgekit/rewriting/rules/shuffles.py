"""Channel shuffles, space to depth and depth to space.

Reshapes and transpositions are read as a single move of blocks (:class:`Blocks`), which is folded
into neighbouring weights, gathered at once, or written as a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import Tap, factors, pick_channels, select_taps
from edgekit.rewriting.rules.reshapes import RESHAPES, atom_dimensions, cut_dimensions

_C, _H, _W = 1, 2, 3
_MOST_TRANSPOSES = 4
_REMEMBERED = 4096
_Move = TypeVar("_Move")
#: Most readers of a shuffle that a rewrite follows.
MOST_BRANCHES = 8
_SAME_FOR_ALL = frozenset(
    [
        *("Abs", "AveragePool", "Clip", "Cos", "Elu", "Erf", "Exp", "GlobalAveragePool"),
        *("GlobalMaxPool", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "MaxPool", "Mish"),
        *("Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt"),
        "Tanh",
    ]
)
_WITH_CONSTANT = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"})
#: Returns True if a chain ends, or begins, at a node.
Ends: TypeAlias = Callable[["RewriteGraph", Node], bool]
# most nodes of a chain of per-channel operators that is followed
_MOST_NODES = 8


class Blocks(NamedTuple):
    """A move of elements from one 4-D tensor to another, block by block.

    Both tensors are viewed with many small dimensions (atoms), which are the same for both but in
    another order.

    Attributes:
        sizes: Sizes of the atoms, in the order of the source.
        origin: Dimension of the source that each atom is part of.
        order: Atoms in the order of the result.
        target: Dimension of the result that each atom is part of, by atom.
    """

    sizes: tuple[int, ...]
    origin: tuple[int, ...]
    order: tuple[int, ...]
    target: tuple[int, ...]

    def atoms(self, origin: int, target: int) -> list[int]:
        """Returns the atoms that move from one dimension to another, in the source's order."""
        pairs = zip(self.origin, self.target, strict=True)
        return [atom for atom, pair in enumerate(pairs) if pair == (origin, target)]

    def _dimension(self, target: int) -> list[int]:
        return [atom for atom in self.order if self.target[atom] == target]

    def _of_source(self, origin: int) -> list[int]:
        return [atom for atom, dim in enumerate(self.origin) if dim == origin]

    def _keeps_batch(self) -> bool:
        return self._dimension(0) == self._of_source(0)

    def shuffle(self) -> list[int] | None:
        """Returns the source's channel by channel of the result; None if other axes move, too."""
        others = all(self._dimension(dim) == self._of_source(dim) for dim in (0, _H, _W))
        if not others:
            return None
        return [int(item) for item in self._table(self._of_source(_C), self._dimension(_C)).ravel()]

    def to_space(self) -> tuple[np.ndarray, int, int] | None:
        """Returns the source's channel by [channel, row, column] of the block, and its sides.

        None unless H and W of the result are the source's, with a block of channels for each
        element.
        """
        rows, columns = self.atoms(_C, _H), self.atoms(_C, _W)
        grown = all(
            self._dimension(dim) == [*self._of_source(dim), *self._tail(dim)] for dim in (_H, _W)
        )
        channels = self._dimension(_C)
        inside = all(self.origin[atom] == _C for atom in channels)
        if not (self._keeps_batch() and grown and inside and (rows or columns)):
            return None
        tails = [self._tail(_H), self._tail(_W)]
        sides = [math.prod(self.sizes[atom] for atom in tail) for tail in tails]
        table = self._table(self._of_source(_C), [*channels, *tails[0], *tails[1]])
        return table.reshape(-1, *sides), sides[0], sides[1]

    def to_depth(self) -> tuple[list[tuple[int, int, int]], int, int] | None:
        """Returns (channel, row, column) of the source by channel of the result, and the sides.

        None unless blocks of H and W become channels.
        """
        rows, columns = self.atoms(_H, _C), self.atoms(_W, _C)
        shrunk = all(
            self._of_source(dim) == [*self._dimension(dim), *extra]
            for dim, extra in ((_H, rows), (_W, columns))
        )
        channels = self._of_source(_C)
        inside = all(self.target[atom] == _C for atom in channels)
        if not (self._keeps_batch() and shrunk and inside and (rows or columns)):
            return None
        sides = [math.prod(self.sizes[atom] for atom in part) for part in (rows, columns)]
        flat = self._table([*channels, *rows, *columns], self._dimension(_C)).ravel()
        count = math.prod(self.sizes[atom] for atom in channels)
        places = np.unravel_index(flat, (count, *sides))
        taps = [(int(c), int(i), int(j)) for c, i, j in zip(*places, strict=True)]
        return taps, sides[0], sides[1]

    def _tail(self, dim: int) -> list[int]:
        return [atom for atom in self._dimension(dim) if self.origin[atom] == _C]

    def _table(self, source: list[int], result: list[int]) -> np.ndarray:
        """Returns the flat index in the order ``source`` by place in the order ``result``."""
        sizes = [self.sizes[atom] for atom in source]
        grid = np.arange(math.prod(sizes)).reshape(sizes)
        return grid.transpose([source.index(atom) for atom in result])


#: Nodes that move blocks, their input, their output, and the move.
_Place = tuple[tuple[Node, ...], str, str, Blocks]


def blocks_at(graph: RewriteGraph, node: Node) -> Iterator[_Place]:
    """Yields the moves that begin at a Transpose: nodes, input, output and the move.

    Reshapes and more transpositions follow it; a reshape may precede it. The nodes begin with the
    Transpose; longer chains come first.
    """
    first = graph.producer(node.inputs[0])
    before = first is not None and first.op in RESHAPES and not first.domain
    # with other readers the reshape must stay, and the DLA lacks it
    before = before and graph.only_reader(node.inputs[0]) is node
    nodes = (node, first) if before and first is not None else (node,)
    source = nodes[-1].inputs[0]
    if graph.constant(source) or not graph.floats(source) or graph.rank(source) != 4:
        return
    steps: list[tuple[Sequence[int], Sequence[int]]] = []
    found: list[tuple[tuple[Node, ...], int, str]] = []
    last: Node | None = node
    reshaped = before
    while last is not None and len(steps) < _MOST_TRANSPOSES:
        middle = graph.shape(last.inputs[0])
        # ONNX: without perm the dimensions are reversed
        steps.append((middle, last.attrs.get("perm") or list(reversed(range(len(middle))))))
        reader = graph.only_reader(last.outputs[0])
        # without a reshape whole dimensions move, no blocks
        if reshaped and graph.rank(last.outputs[0]) == 4:
            found.append((nodes, len(steps), last.outputs[0]))
        if reader is None or reader.op not in RESHAPES or reader.inputs[0] != last.outputs[0]:
            break
        nodes, reshaped = (*nodes, reader), True
        if graph.rank(reader.outputs[0]) == 4:
            found.append((nodes, len(steps), reader.outputs[0]))
        last = graph.only_reader(reader.outputs[0])
        if last is not None and last.op == "Transpose" and not last.domain:
            nodes = (*nodes, last)
        else:
            last = None
    # the whole move first: a part of it leaves reshapes that the DLA lacks
    for chain, count, output in reversed(found):
        move = trace_blocks(graph.shape(source), steps[:count], graph.shape(output))
        if move is not None:
            yield chain, source, output, move


def trace_blocks(
    source: Sequence[int],
    steps: Sequence[tuple[Sequence[int], Sequence[int]]],
    result: Sequence[int],
) -> Blocks | None:
    """Returns the move of a chain of reshapes and transpositions; None if it is not a move.

    Args:
        source: Shape before the chain.
        steps: Transposed shape and permutation of each step, in order.
        result: Shape after the chain.
    """
    moved = tuple((tuple(shape), tuple(perm)) for shape, perm in steps)
    return _trace_cached(tuple(source), moved, tuple(result))


@lru_cache(_REMEMBERED)
def _trace_cached(
    source: tuple[int, ...],
    steps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    result: tuple[int, ...],
) -> Blocks | None:
    # numbers of the atoms, in the source's order and in the current order
    sizes = dict(enumerate(source))
    ordered, reached = list(sizes), list(sizes)

    def refine(shape: Sequence[int]) -> tuple[int, ...] | None:
        parts = cut_dimensions([sizes[atom] for atom in reached], shape)
        if parts is None:
            return None
        for atom, inner in zip(tuple(reached), parts, strict=True):
            new = range(len(sizes), len(sizes) + len(inner))
            sizes.update(zip(new, inner, strict=True))
            for order in (ordered, reached):
                # both orders list every atom, so the new atoms replace it in both
                at = order.index(atom)
                order[at : at + 1] = new
        return atom_dimensions([sizes[atom] for atom in reached], shape)

    for middle, perm in steps:
        dims = refine(middle)
        if dims is None:
            return None
        here = list(zip(reached, dims, strict=True))
        reached[:] = [atom for dim in perm for atom, of in here if of == dim]
    after = refine(result)
    if after is None:
        return None
    order = tuple(ordered.index(atom) for atom in reached)
    target = tuple(dim for _, dim in sorted(zip(order, after, strict=True)))
    small = tuple(sizes[atom] for atom in ordered)
    return Blocks(small, atom_dimensions(small, source), order, target)


@rewrite(
    "space-to-depth",
    operators=("SpaceToDepth", "Transpose"),
    reason=(
        "The DLA does not move blocks between space and depth; "
        "a strided convolution with weights of 0 and 1 does"
    ),
)
def space_to_depth(graph: RewriteGraph, node: Node) -> Replacement:
    """SpaceToDepth, or reshapes and transpositions of that effect (PixelUnshuffle, YOLOv2).

    Writes a convolution whose kernel and stride are the block, with weights of zeros and ones:
    grouped if the order of the result allows it (PixelUnshuffle: depthwise). A block beyond the
    largest stride is made in steps; a block with a prime factor beyond it is not supported.

    At a SpaceToDepth, or a transposition between reshapes that makes one.
    """
    if node.op == "Transpose":
        places = blocks_at(graph, node)
    else:
        batch, channels, height, width = graph.shape(node.inputs[0])
        block = node.attrs["blocksize"]
        middle = (batch, channels, height // block, block, width // block, block)
        places = _single_node_blocks(graph, node, middle, (0, 3, 5, 1, 2, 4))
    found = _first_match(places, _to_depth_in_steps)
    if found is None:
        return
    nodes, source, output, (taps, *sides) = found
    new = yield nodes
    steps = [factors(side, _largest_stride()) or [] for side in sides]
    rounds = max(len(part) for part in steps)
    channels = graph.shape(source)[1]
    for index in range(rounds):
        rows, columns = ((part[index : index + 1] or [1])[0] for part in steps)
        last = index == rounds - 1
        now = taps if last else list(product(range(channels), range(rows), range(columns)))
        kernel = (rows, columns)
        source = select_taps(
            new,
            source,
            channels,
            now,
            kernel=kernel,
            strides=kernel,
            output=output if last else "",
        )
        # the pixel's place in the block just made is now part of its channel
        taps = [
            ((channel * rows + i % rows) * columns + j % columns, i // rows, j // columns)
            for channel, i, j in taps
        ]
        channels = len(now)


def _first_match(
    places: Iterable[_Place], move: Callable[[Blocks], _Move | None]
) -> tuple[tuple[Node, ...], str, str, _Move] | None:
    """Returns the first place for which ``move`` is not None: nodes, input, output and result."""
    for nodes, source, output, blocks in places:
        found = move(blocks)
        if found is not None:
            return nodes, source, output, found
    return None


def _single_node_blocks(
    graph: RewriteGraph, node: Node, shape: Sequence[int], perm: Sequence[int]
) -> Iterator[_Place]:
    """Yields the place of a node that moves blocks itself, as a reshape and a transposition."""
    source, output = node.inputs[0], node.outputs[0]
    made = trace_blocks(graph.shape(source), [(shape, perm)], graph.shape(output))
    if made is not None and graph.floats(source):
        yield (node,), source, output, made


def _to_depth_in_steps(blocks: Blocks) -> tuple[Sequence[Tap], int, int] | None:
    facts = blocks.to_depth()
    steps = facts is not None and all(
        factors(side, _largest_stride()) is not None for side in facts[1:]
    )
    return facts if steps else None


def _largest_stride() -> int:
    return rule_range("convolution.stride")[1]


@rewrite(
    "depth-to-space",
    operators=("DepthToSpace", "Transpose"),
    reason=(
        "The DLA does not move blocks between space and depth; "
        "a strided deconvolution with weights of 0 and 1 does"
    ),
)
def depth_to_space(graph: RewriteGraph, node: Node) -> Replacement:
    """DepthToSpace (DCR and CRD), or reshapes and transpositions of that effect (PixelShuffle).

    Writes a deconvolution whose kernel and stride are the block, with weights of zeros and ones in
    one group (a DLA has no grouped deconvolution). A large block is made along H first, then along
    W: square strides from 23 on are disabled, and two steps cost little more than a single step. It
    is not folded into a preceding convolution, whose bias would differ by place in the block.

    At a DepthToSpace, or a transposition between reshapes that makes one.
    """
    if node.op == "Transpose":
        places = blocks_at(graph, node)
    else:
        batch, channels, height, width = graph.shape(node.inputs[0])
        block = node.attrs["blocksize"]
        # ONNX: in DCR the block's places are the outer part of C, in CRD the inner part
        parts, perm = (block, block, channels // block**2), (0, 3, 4, 1, 5, 2)
        if node.attrs.get("mode", "DCR") == "CRD":
            parts, perm = (channels // block**2, block, block), (0, 1, 4, 2, 5, 3)
        places = _single_node_blocks(graph, node, (batch, *parts, height, width), perm)
    found = _first_match(places, Blocks.to_space)
    if found is None:
        return
    nodes, source, output, (table, rows, columns) = found
    new = yield nodes
    maps = len(table)
    if max(rows, columns) > rule_range("convolution.stride")[1] and min(rows, columns) > 1:
        new.check_size(table.size, maps * columns, rows)
        weight = np.zeros((table.size, maps * columns, rows, 1))
        for (k, i, j), channel in np.ndenumerate(table):
            weight[channel, k * columns + j, i, 0] = 1.0
        source = _deconvolution(new, source, weight, "")
        table, rows = np.arange(maps * columns).reshape(maps, 1, columns), 1
    new.check_size(table.size, maps, rows, columns)
    weight = np.zeros((table.size, maps, rows, columns))
    for (k, i, j), channel in np.ndenumerate(table):
        weight[channel, k, i, j] = 1.0
    _deconvolution(new, source, weight, output)


def _deconvolution(new: Writer, source: str, weight: np.ndarray, output: str) -> str:
    sides = list(weight.shape[2:])
    fixed = new.constant(weight, role="selection")
    role = "blocks"
    inputs = [source, fixed]
    return new.node(
        "ConvTranspose", inputs, output=output, role=role, kernel_shape=sides, strides=sides
    )


class Shuffle(NamedTuple):
    """Input and output tensor, and the source's channel by channel of the result."""

    source: str
    output: str
    picks: tuple[int, ...]


def shuffle_at(graph: RewriteGraph, node: Node) -> tuple[tuple[Node, ...], Shuffle] | None:
    """Returns the nodes that reorder channels, from a Transpose on, and their shuffle."""
    for nodes, source, output, blocks in blocks_at(graph, node):
        picks = blocks.shuffle()
        if picks is not None and picks != sorted(picks):
            return nodes, Shuffle(source, output, tuple(picks))
    return None


class Channelwise(NamedTuple):
    """The inputs of an operator on separate channels.

    Attributes:
        data: Position of its only activation.
        axes: Axis along the channels by position, for its constants with such an axis.
    """

    data: int
    axes: Mapping[int, int]


def channelwise(graph: RewriteGraph, node: Node) -> Channelwise | None:
    """Returns the inputs of a node that treats channels of a 4-D tensor separately; else None."""
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
        # one channel and one group is both; ``mixes_channels`` takes it
        return Channelwise(0, {1: 0, 2: 0}) if depthwise and channels > 1 else None
    if node.op not in _WITH_CONSTANT or len(node.inputs) != 2:
        return None
    other = 1 - data[0]
    shape = graph.shape(node.inputs[other])
    # a constant that enlarges the activation
    if graph.shape(node.outputs[0]) != graph.shape(node.inputs[data[0]]):
        return None
    # constants broadcast from the last dimension: C is the third from the end
    axis = len(shape) - 3
    has_channels = axis >= 0 and shape[axis] != 1
    return Channelwise(data[0], {other: axis} if has_channels else {})


def mixes_channels(graph: RewriteGraph, node: Node) -> bool:
    """Returns True if a node is an ungrouped 2-D convolution with constant weights."""
    return node.attrs.get("group", 1) == 1 and _mixes_in_groups(graph, node)


def chain_before(graph: RewriteGraph, tensor: str, ends: Ends) -> tuple[Node, ...] | None:
    """Returns the nodes from a convolution to a tensor with one reader; else None."""
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
    """Returns the chains from a tensor to convolutions; None if it has other readers."""
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
    """Writes a chain again; ``at_end`` is the channel axis of its convolution's constants."""
    for node in chain:
        parts = channelwise(graph, node)
        # the convolution at the chain's end is not channelwise
        data, axes = (0, at_end) if parts is None else (parts.data, parts.axes)
        inputs = list(node.inputs)
        for position, axis in axes.items():
            if node.input(position):
                inputs[position] = new.node("Gather", [inputs[position], order], axis=axis)
        inputs[data] = source
        target = output if node is chain[-1] else ""
        source = new.node(node.op, inputs, output=target, name=node.name, **node.attrs)


@rewrite(
    "channel-shuffle-fold",
    operators=("Transpose",),
    reason="The DLA has no reshape to five dimensions; reordering the neighbouring convolution's "
    "weights does the shuffle at no cost",
)
def channel_shuffle_fold(graph: RewriteGraph, node: Node) -> Replacement:
    """Folds a channel shuffle into an ungrouped convolution, by reordering its weights.

    The preceding convolution computes its output maps in the shuffled order, or the following
    convolutions read their input maps in the old order. Operators between may treat each channel
    separately (batch normalisation, activations, pooling, depthwise convolutions); their numbers by
    channel are reordered too. A grouped convolution cannot include the permutation: it reads and
    writes only within its groups.

    At a shuffle after a convolution, or followed only by convolutions.
    """
    found = shuffle_at(graph, node)
    if found is None:
        return
    nodes, (source, output, picks) = found
    # before first: there is one chain, after the shuffle one for each reader
    chain = chain_before(graph, source, mixes_channels)
    chains = None if chain is not None else chains_after(graph, output, mixes_channels)
    if chain is not None:
        new = yield (*nodes, *chain)
        order = new.constant(list(picks), role="order")
        write_chain(graph, chain, new, order, chain[0].inputs[0], output, {1: 0, 2: 0})
        return
    if chains is None:
        return
    new = yield (*nodes, *(item for part in chains for item in part))
    inverse = sorted(range(len(picks)), key=picks.__getitem__)
    order = new.constant(inverse, role="order")
    for chain in chains:
        write_chain(graph, chain, new, order, source, chain[-1].outputs[0], {1: 1})


@rewrite(
    "channel-shuffle",
    operators=("Transpose",),
    reason="The DLA has no reshape to five dimensions; a 1x1 convolution with a permutation matrix "
    "reorders the channels",
)
def channel_shuffle(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes reshapes and transpositions within C as a 1x1 convolution with a permutation matrix.

    Applies to any regrouping of the channels, with any rank between. The convolution is grouped if
    the permutation stays within groups.

    At a transposition with its reshapes that together reorder the channels.
    """
    found = shuffle_at(graph, node)
    if found is None:
        return
    nodes, (source, output, picks) = found
    new = yield nodes
    pick_channels(new, source, graph.shape(source)[1], picks, output=output)


class _PermutedChains(NamedTuple):
    """Chains for the permutation ``picks``, each beginning or ending at a convolution."""

    picks: tuple[int, ...]
    chains: tuple[tuple[Node, ...], ...]
    before: bool


@rewrite(
    "channel-shuffle-dense",
    operators=("Conv",),
    reason="Grouped convolutions cannot reorder channels; without groups and with zeros between "
    "them, the neighbouring convolution does it at no extra layer",
)
def channel_shuffle_dense(graph: RewriteGraph, node: Node) -> Replacement:
    """Merges a permutation of the channels and a grouped convolution next to it (ShuffleNet V1).

    With zeros between the groups' weights, the convolution becomes ungrouped, and can write or read
    its channels in any order. Of the convolutions before and after, the side with fewer products is
    used; operators between treat each channel separately, as in channel-shuffle-fold.

    At a 1x1 convolution that reorders channels, with convolutions next to it.
    """
    picks = _picks(graph, node)
    if picks is None:
        return
    ways = []
    chain = chain_before(graph, node.inputs[0], _mixes_in_groups)
    if chain is not None:
        ways.append(_PermutedChains(picks, (chain,), before=True))
    chains = chains_after(graph, node.outputs[0], _mixes_in_groups)
    if chains is not None:
        ways.append(_PermutedChains(picks, chains, before=False))
    if not ways:
        return
    best = min(ways, key=lambda way: _products(graph, way))
    new = yield (node, *(item for chain in best.chains for item in chain))
    if best.before:
        order = new.constant(list(picks), role="order")
        (chain,) = best.chains
        dense = _ungrouped(graph, new, chain[0])
        source, target, at_end = chain[0].inputs[0], node.outputs[0], {1: 0, 2: 0}
        # ``dense`` itself is not written yet: the chain writes it in its new order
        write_chain(graph, (dense, *chain[1:]), new, order, source, target, at_end)
        return
    inverse = sorted(range(len(picks)), key=picks.__getitem__)
    order = new.constant(inverse, role="order")
    for chain in best.chains:
        dense = _ungrouped(graph, new, chain[-1])
        target = chain[-1].outputs[0]
        write_chain(graph, (*chain[:-1], dense), new, order, node.inputs[0], target, {1: 1})


def _picks(graph: RewriteGraph, node: Node) -> tuple[int, ...] | None:
    """Returns the channel copied to each output map, if a convolution is a permutation; else None.

    Checks only weights that a rewrite added.
    """
    # weights of the model may be large, and a refit changes them
    brought = graph.added_constant(node.inputs[1]) if len(node.inputs) == 2 else None
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
    # an index within a group, plus the group's first channel
    picks = tuple(int(c) + k // per_group * depth for k, c in enumerate(inner))
    return picks if sorted(picks) == list(range(maps)) else None


def _mixes_in_groups(graph: RewriteGraph, node: Node) -> bool:
    """Returns True if a node is a 2-D convolution with constant weights that mixes channels."""
    return (
        node.op == "Conv"
        and not node.domain
        and graph.rank(node.inputs[0]) == 4
        and not graph.constant(node.inputs[0])
        and all(graph.constant(name) for name in node.inputs[1:] if name)
        and channelwise(graph, node) is None
    )


def _products(graph: RewriteGraph, dense: _PermutedChains) -> int:
    """Returns the number of products of the ungrouped convolutions."""
    total = 0
    for chain in dense.chains:
        node = chain[0] if dense.before else chain[-1]
        image, kernel = graph.shape(node.outputs[0]), graph.shape(node.inputs[1])[2:]
        total += math.prod(image) * graph.shape(node.inputs[0])[1] * math.prod(kernel)
    return total


def _ungrouped(graph: RewriteGraph, new: Writer, node: Node) -> Node:
    """Writes a convolution's weights for one group; returns the convolution that reads them."""
    groups = node.attrs.get("group", 1)
    if groups == 1:
        return node
    maps, depth = graph.shape(node.inputs[1])[:2]
    new.check_size(maps, groups, depth)
    blocks = np.kron(np.eye(groups), np.ones((maps // groups, depth)))
    mask = new.constant(blocks[:, :, None, None], like=node.inputs[1], role="blocks")
    # every group's weights at every group's channels; the mask keeps those at their own
    tiled = new.node("Tile", [node.inputs[1], new.constant([1, groups, 1, 1], role="repeats")])
    weight = new.node("Mul", [tiled, mask])
    attrs = {key: value for key, value in node.attrs.items() if key != "group"}
    inputs = (node.inputs[0], weight, *node.inputs[2:])
    return Node(node.name, node.op, inputs, node.outputs, attrs)
