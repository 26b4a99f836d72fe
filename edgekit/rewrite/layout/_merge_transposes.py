"""Transpositions behind each other become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again
from edgekit.rewrite.layout._views import permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["MergeTransposes"]


class MergeTransposes:
    """Transpose, Transpose -> Transpose.

    The second reads what the first read, so every application shortens a chain; the first stays
    for others that read it. One that changes nothing is left to ``identity-removal``.
    """

    name = "merge-transposes"
    reason = (
        "a transposition moves a whole tensor and often breaks a loadable in two: one stands for "
        "several, and pairs that cancel go away"
    )
    operators: tuple[str, ...] = ("Transpose",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks whether a transposition reads a transposition."""
        first = graph.producer(node.inputs[0])
        if first is None or first.op != "Transpose" or first.domain:
            return None
        return Match((node, first))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes one Transpose from the first one's source."""
        node, first = match.nodes
        again(graph, new, (first,), (node,))
        before, after = permutation(graph, first), permutation(graph, node)
        perm = [before[i] for i in after]
        new.node("Transpose", [first.inputs[0]], output=node.outputs[0], perm=perm)
