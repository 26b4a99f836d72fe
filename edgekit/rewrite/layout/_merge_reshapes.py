"""Reshapes behind each other become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again, reshaped
from edgekit.rewrite.layout._views import RESHAPES, is_reshape, moves_ones, permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["MergeReshapes"]


class MergeReshapes:
    """Reshape, Reshape -> Reshape; of Reshape, Flatten, Squeeze and Unsqueeze.

    A Transpose that moves only dimensions of size 1 is a reshape too, next to one. The second
    reads what the first read, so every application shortens a chain. The first stays for others
    that read it. One that changes nothing is left to ``identity-removal``.
    """

    name = "merge-reshapes"
    reason = (
        "a reshape is a layer of its own, which the DLA mostly refuses: one stands for several, "
        "and pairs that cancel go away"
    )
    operators: tuple[str, ...] = (*RESHAPES, "Transpose")
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks whether a reshape reads a reshape."""
        first = graph.producer(node.inputs[0])
        if first is None or not _reshapes(graph, node) or not _reshapes(graph, first):
            return None
        if node.op == "Transpose" and first.op == "Transpose":
            return None
        return Match((node, first))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes one Reshape from the first one's source."""
        node, first = match.nodes
        again(graph, new, (first,), (node,))
        output = node.outputs[0]
        reshaped(new, first.inputs[0], graph.shape(output), output=output)


def _reshapes(graph: Graph, node: Node) -> bool:
    if node.op == "Transpose" and not node.domain:
        return moves_ones(graph.shape(node.inputs[0]), permutation(graph, node))
    return is_reshape(graph, node)
