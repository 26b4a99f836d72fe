"""ReduceMean over C, H and W to pools and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, reduction_of
from edgekit.rewrite.pooling._reduced import mean_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ReduceMean"]


class ReduceMean:
    """A mean as windows over the image and a 1x1 convolution over the channels."""

    name = "reduce-mean"
    reason = (
        "the DLA lacks average Reduce; average pools or depthwise convolutions over H and W "
        "and a 1x1 convolution over C stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceMean",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every ReduceMean of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and mean_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the windows, the sum over C, and a reshape where dimensions go."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
