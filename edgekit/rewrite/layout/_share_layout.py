"""Equal reshapes and transpositions of one tensor become one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again
from edgekit.rewrite.layout._forward import a_reader, read_instead
from edgekit.rewrite.layout._views import RESHAPES, is_reshape, permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ShareLayout"]

_LOOKED_AT = 16


class ShareLayout:
    """Two equal Reshapes, or Transposes, of the same tensor -> one, which all readers read.

    One reader changes over at a time; a transposition or reshape that nothing reads is gone, so
    it ends. One that the graph returns is kept, otherwise the first.
    """

    name = "share-layout"
    reason = (
        "a tensor that several branches reshape or transpose in the same way, at the network's "
        "input for example, needs that once"
    )
    operators: tuple[str, ...] = (*RESHAPES, "Transpose")
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks for an equal node beside ``node`` and for a node that can read that one."""
        if graph.returned(node.outputs[0]) or not _moves(graph, node):
            return None
        equal = [
            item
            for item in islice(graph.readers(node.inputs[0]), _LOOKED_AT)
            if item is node or _equal(graph, item, node)
        ]
        kept = next((item for item in equal if graph.returned(item.outputs[0])), None)
        kept = kept or next(iter(equal), node)
        reader = a_reader(graph, node)
        if kept is node or reader is None:
            return None
        return Match((node, kept, reader))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a reader that reads the other node."""
        node, kept, reader = match.nodes
        new.many(kept.op, kept.inputs, kept.outputs, name=kept.name, **kept.attrs)
        again(graph, new, (node,), (reader,))
        read_instead(new, reader, node.outputs[0], kept.outputs[0])


def _moves(graph: Graph, node: Node) -> bool:
    return is_reshape(graph, node) or (node.op == "Transpose" and not node.domain)


def _equal(graph: Graph, one: Node, other: Node) -> bool:
    if not _moves(graph, one) or one.inputs[0] != other.inputs[0]:
        return False
    if (one.op == "Transpose") != (other.op == "Transpose"):
        return False
    if one.op == "Transpose":
        return permutation(graph, one) == permutation(graph, other)
    return graph.shape(one.outputs[0]) == graph.shape(other.outputs[0])
