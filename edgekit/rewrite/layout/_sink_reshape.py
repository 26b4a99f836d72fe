"""A reshape from four dimensions moves behind the operation that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again, reshaped, write
from edgekit.rewrite.layout._operators import BROADCASTING
from edgekit.rewrite.layout._reshaped import CARRIED, carried
from edgekit.rewrite.layout._views import lowered, view

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["SinkReshape"]


class SinkReshape:
    """Reshape (4-D to another rank), operation -> operation in 4-D, Reshape.

    The operation is element-wise, a softmax, a reduction, or works along an axis that the 4-D
    tensor has as well; other tensors that it reads are reshaped too. Every application leaves
    one operation fewer that does not work on four dimensions, and no rewrite of this package adds
    one, so it ends.
    """

    name = "sink-reshape"
    reason = (
        "the DLA computes on N, C, H, W only: the operation works on the 4-D tensor before the "
        "reshape, and the reshape stands behind it"
    )
    operators: tuple[str, ...] = CARRIED
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks for an operand that a reshape makes of a 4-D tensor."""
        several = node.op in BROADCASTING or node.op == "Concat"
        for name in dict.fromkeys(node.inputs if several else node.inputs[:1]):
            reshape = lowered(graph, name)
            if reshape is None:
                continue
            by = view(graph.shape(reshape.inputs[0]), graph.shape(name))
            there = carried(graph, node, by) if by is not None else None
            if there is not None:
                return Match((node, *there.passed), there)
        return None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the operation in 4-D and a Reshape behind each of its results."""
        node, *passed = match.nodes
        again(graph, new, tuple(passed), (node,))
        made = write(new, node, match.facts, [""] * len(node.outputs))
        gone = [item.name for item in passed if graph.inner(item.outputs[0], (node,))]
        for wide, old in zip(made, node.outputs, strict=True):
            name = gone.pop() if gone else f"{node.name}:reshape"
            reshaped(new, wide, graph.shape(old), output=old, name=name)
