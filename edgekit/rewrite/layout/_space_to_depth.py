"""Blocks of H and W to channels: a convolution with a stride."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._select import Tap, factors, selection
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._blocks import blocks_at, blocks_of

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["SpaceToDepth"]


class SpaceToDepth:
    """SpaceToDepth, or Reshape, Transpose, Reshape of that effect (PixelUnshuffle).

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

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a SpaceToDepth, or a transposition between reshapes that makes one."""
        if node.op == "Transpose":
            found = blocks_at(graph, node)
            if found is None:
                return None
            (last, _, first), blocks = found
            nodes: tuple[Node, ...] = (node, first, last)
        else:
            batch, channels, height, width = graph.shape(node.inputs[0])
            block = node.attrs["blocksize"]
            middle = (batch, channels, height // block, block, width // block, block)
            shapes = graph.shape(node.inputs[0]), middle, (0, 3, 5, 1, 2, 4)
            made = blocks_of(*shapes, graph.shape(node.outputs[0]))
            if made is None or not graph.floats(node.inputs[0]):
                return None
            nodes, blocks = (node,), made
        facts = blocks.to_depth()
        if facts is None or any(factors(side, _most()) is None for side in facts[1:]):
            return None
        return Match(nodes, facts)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolutions."""
        source = match.nodes[1].inputs[0] if len(match.nodes) > 1 else match.nodes[0].inputs[0]
        taps, *sides = match.facts
        steps = [factors(side, _most()) or [] for side in sides]
        rounds = max(len(part) for part in steps)
        channels = graph.shape(source)[1]
        output = match.nodes[-1].outputs[0]
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


def _most() -> int:
    from edgekit.dla import limit

    return limit("convolution.stride")[1]
