"""ReduceSum over C, H and W to convolutions of ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, reduction_of
from edgekit.rewrite.pooling._reduced import total_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ReduceSum"]


class ReduceSum:
    """A sum as depthwise convolutions over the image and a 1x1 convolution over the channels."""

    name = "reduce-sum"
    reason = (
        "the DLA lacks sum Reduce; depthwise convolutions of ones over H and W and a 1x1 "
        "convolution over C stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceSum",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every ReduceSum of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and total_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolutions, and a reshape where dimensions go."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
