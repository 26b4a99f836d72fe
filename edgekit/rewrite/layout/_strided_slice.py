"""Slices with steps along H and W: pooling of window 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import factors, stepped
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._sliced import float_spans

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["StridedSlice"]


class StridedSlice:
    """A slice with steps along H or W: the same slice without, then pooling of window 1.

    Steps beyond the largest pooling stride take several poolings; one with a prime factor beyond
    it stays. Where the slice begins at 0 and reaches the end there is nothing to slice.
    """

    name = "strided-slice"
    reason = (
        "The DLA slices with stride 1 only; a maximum pooling of window 1 keeps each n-th element"
    )
    operators: tuple[str, ...] = ("Slice",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Slice with a step above 1 along H or W and none along N and C."""
        spans = float_spans(graph, node)
        if spans is None or spans[0] != (0, graph.shape(node.inputs[0])[0], 1):
            return None
        from edgekit.dla import limit

        most = limit("pooling.stride")[1]
        steps = [step for _, _, step in spans]
        if steps[1] != 1 or min(steps) < 1 or max(steps[2:]) == 1:
            return None
        if any(factors(step, most) is None for step in steps[2:]):
            return None
        return Match((node,), spans)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the slice and the poolings."""
        (node,) = match.nodes
        places = {axis: span for axis, span in enumerate(match.facts) if axis}
        shape = graph.shape(node.inputs[0])
        stepped(new, node.inputs[0], shape, places, output=node.outputs[0])
