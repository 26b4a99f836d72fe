"""Blocks of H and W to channels and back: reshapes and transpositions read as one move,
written as convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.layout.views import cut_dimensions, dimensions_of
from edgekit.rewriting.rules.selection import Tap, factors, selection

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewriting.graph import RewriteGraph, Writer


_RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_C, _H, _W = 1, 2, 3
_MOST_TRANSPOSES = 4
_REMEMBERED = 4096


class Blocks(NamedTuple):
    """A move of elements from one 4-D tensor to another, block by block.

    Both tensors are read as one tensor of many small dimensions (atoms), which are the same for
    both but stand in another order.

    Attributes:
        sizes: Of the atoms, in the order of the source.
        origin: Dimension of the source that each atom is part of.
        order: Atoms in the order of the result.
        target: Dimension of the result that each atom is part of, by atom.
    """

    sizes: tuple[int, ...]
    origin: tuple[int, ...]
    order: tuple[int, ...]
    target: tuple[int, ...]

    def atoms(self, origin: int, target: int) -> list[int]:
        """Returns the atoms that go from one dimension to another, as the source orders them."""
        pairs = zip(self.origin, self.target, strict=True)
        return [atom for atom, pair in enumerate(pairs) if pair == (origin, target)]

    def _dimension(self, target: int) -> list[int]:
        return [atom for atom in self.order if self.target[atom] == target]

    def _of_source(self, origin: int) -> list[int]:
        return [atom for atom, dim in enumerate(self.origin) if dim == origin]

    def _keeps_batch(self) -> bool:
        return self._dimension(0) == self._of_source(0)

    def shuffle(self) -> list[int] | None:
        """Returns the source's channel by channel of the result; None when more than C moves."""
        others = all(self._dimension(dim) == self._of_source(dim) for dim in (0, _H, _W))
        if not others:
            return None
        return [int(item) for item in self._table(self._of_source(_C), self._dimension(_C)).ravel()]

    def to_space(self) -> tuple[np.ndarray, int, int] | None:
        """Returns the source's channel by [channel, row, column] of the block, and its sides.

        None unless H and W of the result are those of the source, each element a block of
        channels.
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
        import numpy as np

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
        """Flat index into ``source``'s atoms by place in ``result``'s, the same atoms reordered."""
        import numpy as np

        sizes = [self.sizes[atom] for atom in source]
        grid = np.arange(math.prod(sizes)).reshape(sizes)
        return grid.transpose([source.index(atom) for atom in result])


def between_reshapes(graph: RewriteGraph, node: Node) -> tuple[Node, Node, Node] | None:
    """Returns a Transpose with the reshapes after (first) and before it; None without them."""
    first, last = graph.producer(node.inputs[0]), graph.only_reader(node.outputs[0])
    if first is None or first.op not in _RESHAPES or last is None or last.op not in _RESHAPES:
        return None
    if graph.only_reader(first.outputs[0]) is not node or not graph.floats(first.inputs[0]):
        return None
    if node.outputs[0] != last.inputs[0] or graph.constant(first.inputs[0]):
        return None
    return last, node, first


def blocks_at(
    graph: RewriteGraph, node: Node
) -> Iterator[tuple[tuple[Node, ...], str, str, Blocks]]:
    """Yields the moves that begin at a Transpose: its nodes, what they read and write, the move.

    Reshapes and further transpositions follow it; a reshape may stand before it. The nodes begin
    with the Transpose; longer chains come first.
    """
    first = graph.producer(node.inputs[0])
    before = first is not None and first.op in _RESHAPES and not first.domain
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
        steps.append((middle, last.attrs.get("perm") or list(reversed(range(len(middle))))))
        reader = graph.only_reader(last.outputs[0])
        if reshaped and graph.rank(last.outputs[0]) == 4:
            found.append((nodes, len(steps), last.outputs[0]))
        if reader is None or reader.op not in _RESHAPES or reader.inputs[0] != last.outputs[0]:
            break
        nodes, reshaped = (*nodes, reader), True
        if graph.rank(reader.outputs[0]) == 4:
            found.append((nodes, len(steps), reader.outputs[0]))
        last = graph.only_reader(reader.outputs[0])
        if last is not None and last.op == "Transpose" and not last.domain:
            nodes = (*nodes, last)
        else:
            last = None
    for chain, count, output in reversed(found):
        move = blocks_of(graph.shape(source), steps[:count], graph.shape(output))
        if move is not None:
            yield chain, source, output, move


def blocks_of(
    source: Sequence[int],
    steps: Sequence[tuple[Sequence[int], Sequence[int]]],
    result: Sequence[int],
) -> Blocks | None:
    """Returns the move that reshapes and transpositions make; None if it is none.

    Args:
        source: Shape before.
        steps: Shape that is transposed, and the permutation, one after the other.
        result: Shape after it.
    """
    moved = tuple((tuple(shape), tuple(perm)) for shape, perm in steps)
    return _blocks_of(tuple(source), moved, tuple(result))


@lru_cache(_REMEMBERED)
def _blocks_of(
    source: tuple[int, ...],
    steps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    result: tuple[int, ...],
) -> Blocks | None:
    # atoms by number, in the order of the source and in the one reached
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
                at = order.index(atom)
                order[at : at + 1] = new
        return dimensions_of([sizes[atom] for atom in reached], shape)

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
    return Blocks(small, dimensions_of(small, source), order, target)


class SpaceToDepth:
    """SpaceToDepth, or reshapes and transpositions of that effect (PixelUnshuffle, YOLOv2).

    A convolution whose kernel and stride are the block, with weights of zeros and ones: grouped
    where the order of the result allows it (PixelUnshuffle: depthwise). A block beyond the
    largest stride is made in steps; one with a prime factor beyond it stays.
    """

    name = "space-to-depth"
    reason = (
        "The DLA does not move blocks between space and depth; "
        "a strided convolution with weights of 0 and 1 does"
    )
    operators: tuple[str, ...] = ("SpaceToDepth", "Transpose")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a SpaceToDepth, or a transposition between reshapes that makes one."""
        if node.op == "Transpose":
            for nodes, source, output, blocks in blocks_at(graph, node):
                facts = blocks.to_depth()
                if facts is not None and _in_steps(facts):
                    return Match(nodes, (source, output, facts))
            return None
        batch, channels, height, width = graph.shape(node.inputs[0])
        block = node.attrs["blocksize"]
        middle = (batch, channels, height // block, block, width // block, block)
        steps = [(middle, (0, 3, 5, 1, 2, 4))]
        made = blocks_of(graph.shape(node.inputs[0]), steps, graph.shape(node.outputs[0]))
        if made is None or not graph.floats(node.inputs[0]):
            return None
        facts = made.to_depth()
        if facts is None or not _in_steps(facts):
            return None
        return Match((node,), (node.inputs[0], node.outputs[0], facts))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolutions."""
        source, output, facts = match.facts
        taps, *sides = facts
        steps = [factors(side, _most()) or [] for side in sides]
        rounds = max(len(part) for part in steps)
        channels = graph.shape(source)[1]
        for index in range(rounds):
            rows, columns = ((part[index : index + 1] or [1])[0] for part in steps)
            last = index == rounds - 1
            now = taps if last else _all(channels, rows, columns)
            kernel = (rows, columns)
            source = selection(
                new,
                source,
                channels,
                now,
                kernel=kernel,
                strides=kernel,
                output=output if last else "",
            )
            taps = [
                ((channel * rows + i % rows) * columns + j % columns, i // rows, j // columns)
                for channel, i, j in taps
            ]
            channels = len(now)


def _all(channels: int, rows: int, columns: int) -> Sequence[Tap]:
    sides = [(i, j) for i in range(rows) for j in range(columns)]
    return [(channel, i, j) for channel in range(channels) for i, j in sides]


def _in_steps(facts: tuple[Sequence[Tap], int, int]) -> bool:
    return all(factors(side, _most()) is not None for side in facts[1:])


def _most() -> int:
    from edgekit.dla.rules import limit

    return limit("convolution.stride")[1]


class DepthToSpace:
    """DepthToSpace (DCR and CRD), or reshapes and transpositions of that effect (PixelShuffle).

    A deconvolution whose kernel and stride are the block, with weights of zeros and ones in one
    group (a DLA has no grouped one). A large block is made along H first, then along W: square
    strides from 23 on are disabled, and two steps cost hardly more than one. It is not folded into
    a convolution before it, whose bias would be another one at each place of the block.
    """

    name = "depth-to-space"
    reason = (
        "The DLA does not move blocks between space and depth; "
        "a strided deconvolution with weights of 0 and 1 does"
    )
    operators: tuple[str, ...] = ("DepthToSpace", "Transpose")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a DepthToSpace, or a transposition between reshapes that makes one."""
        if node.op == "Transpose":
            for nodes, source, output, blocks in blocks_at(graph, node):
                facts = blocks.to_space()
                if facts is not None:
                    return Match(nodes, (source, output, facts))
            return None
        batch, channels, height, width = graph.shape(node.inputs[0])
        block = node.attrs["blocksize"]
        maps, perm = (block, block, channels // block**2), (0, 3, 4, 1, 5, 2)
        if node.attrs.get("mode", "DCR") == "CRD":
            maps, perm = (channels // block**2, block, block), (0, 1, 4, 2, 5, 3)
        steps = [((batch, *maps, height, width), perm)]
        made = blocks_of(graph.shape(node.inputs[0]), steps, graph.shape(node.outputs[0]))
        if made is None or not graph.floats(node.inputs[0]):
            return None
        facts = made.to_space()
        if facts is None:
            return None
        return Match((node,), (node.inputs[0], node.outputs[0], facts))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the deconvolutions."""
        import numpy as np

        from edgekit.dla.rules import limit

        source, output, facts = match.facts
        table, rows, columns = facts
        maps = len(table)
        if max(rows, columns) > limit("convolution.stride")[1] and min(rows, columns) > 1:
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
