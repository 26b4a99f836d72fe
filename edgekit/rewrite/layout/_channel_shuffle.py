"""Channel shuffles as a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import pick_channels
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._shuffles import shuffle_at

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ChannelShuffle"]


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

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a transposition with its reshapes that together reorder the channels."""
        return shuffle_at(graph, node)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolution."""
        source, output, picks = match.facts
        pick_channels(new, source, graph.shape(source)[1], picks, output=output)
