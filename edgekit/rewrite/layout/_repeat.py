"""Expand and Tile: convolutions and resizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import factors, pick
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._enlarge import enlarge, scale_limit

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Repeat"]


class Repeat:
    """Expand or Tile of a 4-D tensor: a convolution along C, a nearest resize along H and W.

    A side of 1 is enlarged by a nearest resize (several where the factor is beyond its limit, none
    where it has a prime factor beyond it); a larger side that Tile repeats goes through the
    channels between transpositions. The batch is not repeated.
    """

    name = "repeat"
    reason = (
        "The DLA slices with stride 1 only, which is how TensorRT repeats; "
        "a 1x1 convolution repeats channels, a nearest resize rows and columns"
    )
    operators: tuple[str, ...] = ("Expand", "Tile")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns an Expand or Tile that keeps four dimensions and the batch."""
        source = node.inputs[0]
        before, behind = graph.shape(source), graph.shape(node.outputs[0])
        if len(before) != 4 or len(behind) != 4 or before[0] != behind[0] or before == behind:
            return None
        if not graph.floats(source) or graph.constant(source) or 0 in behind:
            return None
        times = [b // a for a, b in zip(before, behind, strict=True)]
        for axis in (2, 3):
            if before[axis] == 1 and factors(times[axis], scale_limit()) is None:
                return None
        return Match((node,), times)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolution, the resizes and the transposed forms, as far as needed."""
        (node,), times = match.nodes, match.facts
        source, output = node.inputs[0], node.outputs[0]
        shape = list(graph.shape(source))
        tiled = [axis for axis in (1, 2, 3) if times[axis] > 1 and (axis == 1 or shape[axis] > 1)]
        grown = [axis for axis in (2, 3) if times[axis] > 1 and axis not in tiled]
        for axis in tiled:
            last = axis == tiled[-1] and not grown
            picks = list(range(shape[axis])) * times[axis]
            source = pick(new, source, shape, axis, picks, output=output if last else "")
            shape[axis] *= times[axis]
        if grown:
            scales = [times[axis] if axis in grown else 1 for axis in (2, 3)]
            enlarge(new, source, scales, output)
