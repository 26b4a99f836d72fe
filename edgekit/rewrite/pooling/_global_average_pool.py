"""GlobalAveragePool to average pools or depthwise convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, reduction_of
from edgekit.rewrite.pooling._reduced import mean_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["GlobalAveragePool"]


class GlobalAveragePool:
    """The mean over the image as windows that the DLA has."""

    name = "global-average-pool"
    reason = (
        "TensorRT makes an average Reduce of it, which the DLA lacks; average pools and "
        "depthwise convolutions stand there instead"
    )
    operators: tuple[str, ...] = ("GlobalAveragePool",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every GlobalAveragePool over a 4-D tensor that windows can make."""
        found = reduction_of(graph, node)
        parts = found and mean_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the pools or convolutions."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
