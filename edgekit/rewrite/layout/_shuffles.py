"""Where channels are reordered by reshapes and a transposition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._blocks import blocks_at

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["MOST_BRANCHES", "shuffle_at"]


#: A rewrite follows so many readers of a shuffle.
MOST_BRANCHES = 8


def shuffle_at(graph: Graph, node: Node) -> Match | None:
    """The transposition and its reshapes with the source's channel by channel of the result."""
    found = blocks_at(graph, node)
    if found is None:
        return None
    (last, _, first), blocks = found
    picks = blocks.shuffle()
    if picks is None or picks == sorted(picks):
        return None
    return Match((node, first, last), picks)
