"""Gathering of channels, rows and columns at constant indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.sequence._gathering import REASON, gathered, write_selection

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Gather"]


class Gather:
    """Gather of some channels, rows or columns of a 4-D tensor.

    One range of channels is a Slice, a few are Slices and a Concat, others a 1x1 convolution.
    Along H and W a range is a Slice, every n-th element a pooling of window 1, anything else goes
    through the channels between transpositions. A table that computed indices look up (an
    embedding) has no such form. A convolution is equal for finite values: an infinity or NaN of
    one channel makes NaNs of all that it sums, as 0 times it.
    """

    name = "gather"
    reason = REASON
    operators: tuple[str, ...] = ("Gather",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Gather at a list of constant indices, not along the batch."""
        found = gathered(graph, node)
        if found is None or not found[0]:
            return None
        plain = graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
        return Match((node,), found) if plain else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection."""
        write_selection(graph, match, new)
