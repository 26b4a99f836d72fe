"""ReduceMin over H and W to maximum pools of the negative."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import Part, in_row, reduction_of
from edgekit.rewrite.pooling._reduced import greatest_parts

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ReduceMin"]


class ReduceMin:
    """A minimum over H, W or both as a negated maximum."""

    name = "reduce-min"
    reason = (
        "the DLA lacks minimum Reduce; maximum pools between two scales by -1 stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceMin",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every ReduceMin over H and W of a 4-D tensor; over C there is no pool."""
        found = reduction_of(graph, node)
        parts = found and greatest_parts(found)
        if not (found and parts):
            return None
        pools = [part for part in parts if part.op != "Reshape"]
        negate = [Part("Mul", (-1.0,))] if pools else []
        return Match((node,), [*negate, *pools, *negate, *found.reshape()])

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a scale by -1, the maximum pools, and a scale by -1."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
