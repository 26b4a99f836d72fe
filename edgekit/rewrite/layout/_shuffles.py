"""Where channels are reordered by reshapes and a transposition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._blocks import blocks_at

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["MOST_BRANCHES", "Shuffle", "shuffle_at"]


class Shuffle(NamedTuple):
    """Tensors read and written, and the source's channel by channel of the result."""

    source: str
    output: str
    picks: tuple[int, ...]


#: A rewrite follows so many readers of a shuffle.
MOST_BRANCHES = 8


def shuffle_at(graph: Graph, node: Node) -> Match | None:
    """Returns the nodes that reorder channels from a Transpose on; facts: :class:`Shuffle`."""
    for nodes, source, output, blocks in blocks_at(graph, node):
        picks = blocks.shuffle()
        if picks is not None and picks != sorted(picks):
            return Match(nodes, Shuffle(source, output, tuple(picks)))
    return None
