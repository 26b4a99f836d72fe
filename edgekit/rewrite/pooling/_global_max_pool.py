"""GlobalMaxPool to maximum pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, reduction_of
from edgekit.rewrite.pooling._reduced import greatest_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["GlobalMaxPool"]


class GlobalMaxPool:
    """The maximum of the image as a maximum of maxima."""

    name = "global-max-pool"
    reason = (
        "TensorRT makes a maximum Reduce of it, which the DLA lacks with most releases; "
        "maximum pools stand there instead"
    )
    operators: tuple[str, ...] = ("GlobalMaxPool",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every GlobalMaxPool over a 4-D tensor."""
        found = reduction_of(graph, node)
        parts = found and greatest_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the maximum pools."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
