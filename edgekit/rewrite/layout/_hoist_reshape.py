"""A reshape to four dimensions moves before the operation whose result it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again, write
from edgekit.rewrite.layout._reshaped import KEEPING, carried
from edgekit.rewrite.layout._views import RESHAPES, is_reshape, view

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["HoistReshape"]

_DLA_RANK = 4


class HoistReshape:
    """Operation, Reshape (to 4-D) -> Reshape, operation in 4-D.

    For what stands between a graph input of fewer dimensions, or something that cannot work in
    4-D, and the first 4-D layer: nothing can sink there. Only where the reshape alone reads the
    result, so that no reshape back is needed. Every application leaves one operation fewer that
    does not work on four dimensions, as with ``sink-reshape``.
    """

    name = "hoist-reshape"
    reason = (
        "the DLA computes on N, C, H, W only: the reshape to 4-D stands before the operation, "
        "at the network's input in the end"
    )
    operators: tuple[str, ...] = RESHAPES
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks at the producer of what a reshape makes 4-D."""
        if not is_reshape(graph, node) or graph.rank(node.outputs[0]) != _DLA_RANK:
            return None
        made = graph.only_reader(node.inputs[0]) and graph.producer(node.inputs[0])
        if made is None or made.op not in KEEPING or made.domain or len(made.outputs) != 1:
            return None
        low = graph.shape(node.inputs[0])
        by = view(graph.shape(node.outputs[0]), low) if len(low) != _DLA_RANK else None
        there = carried(graph, made, by) if by is not None else None
        return Match((node, made, *there.passed), there) if there is not None else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the operation in 4-D; it writes what the reshape wrote."""
        node, made, *passed = match.nodes
        again(graph, new, tuple(passed), (made,))
        write(new, made, match.facts, [node.outputs[0]])
