"""ReduceL1 to Abs and convolutions of ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import in_row, reduction_of
from edgekit.rewrite.pooling._reduced import total_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ReduceL1"]


class ReduceL1:
    """Absolute values first, then their sum as `reduce-sum` has it."""

    name = "reduce-l1"
    reason = (
        "the DLA lacks sum Reduce; absolute values, which it has, and convolutions of ones "
        "stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceL1",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every ReduceL1 of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and total_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the function of one element and the sum."""
        node = match.nodes[0]
        source = node.inputs[0]
        first = new.node("Abs", [source], role="abs")
        in_row(new, first, match.facts, node)
