"""Gathering that changes the rank, or of another rank than four."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.sequence._gathering import REASON, gathered, write_selection

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["GatherShaped"]


class GatherShaped:
    """Gather that changes the number of dimensions, or of a tensor that has not four.

    The same selection on four dimensions and a Reshape; ``x[0]`` of a batch of 1 is the Reshape
    alone. As a convolution it is equal for finite values only.
    """

    name = "gather-shaped"
    reason = REASON
    operators: tuple[str, ...] = ("Gather",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Gather at a constant index, or of another rank than 4."""
        found = gathered(graph, node)
        if found is None:
            return None
        axis, picks = found
        if axis == 0 and (graph.shape(node.inputs[0])[0] != 1 or len(picks) != 1):
            return None
        plain = axis and graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
        return None if plain else Match((node,), found)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the selection and the Reshape."""
        write_selection(graph, match, new)
