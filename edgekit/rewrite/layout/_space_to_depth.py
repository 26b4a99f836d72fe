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

    def match(self, graph: Graph, node: Node) -> Match | None:
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

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
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
    from edgekit.dla import limit

    return limit("convolution.stride")[1]
