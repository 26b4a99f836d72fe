"""Operands that repeat in a form that the DLA does not have are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import image, to_shape
from edgekit.rewrite.pointwise._spread import broadcasts, spread, spreadable

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["BroadcastOperand"]

_PAIR = 2


class BroadcastOperand:
    """A spatial attention map [N, 1, H, W], a row [N, C, 1, W], a small tensor and large constant.

    Batches are not repeated, nor operands of fewer dimensions: no DLA layer does either.
    """

    name = "broadcast-operand"
    reason = (
        "the DLA's element-wise layers take a second operand of form NCHW, NC11 or N111 only; a "
        "convolution with ones repeats along C, a nearest resize along H and W"
    )
    operators: tuple[str, ...] = ("Add", "Mul", "Sub", "Div", "Max", "Min", "Sum")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """An operation of two images, or of an image and a constant, in no form of the DLA's."""
        if len(node.inputs) != _PAIR or graph.rank(node.outputs[0]) != 4:
            return None
        whole = graph.shape(node.outputs[0])
        fixed = [graph.constant(name) for name in node.inputs]
        if all(fixed) or graph.dtype(node.outputs[0]) != "float32":
            return None
        if any(fixed):
            source = node.inputs[fixed.index(False)]
            if not image(graph, source) or graph.shape(source) == whole:
                return None
            if node.op not in {"Add", "Mul", "Sub"} or (node.op == "Sub" and fixed[0]):
                return None
            return Match((node,)) if spreadable(graph.shape(source), whole) else None
        if not all(image(graph, name) for name in node.inputs):
            return None
        small, large = (graph.shape(name) for name in node.inputs)
        if large != whole:
            small, large = large, small
        if large == whole and broadcasts(small, whole):
            return None
        return Match((node,)) if all(spreadable(s, whole) for s in (small, large)) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the copies of what is too small, and the operation."""
        node = match.nodes[0]
        whole = graph.shape(node.outputs[0])
        kept = _kept(graph, node, whole)
        operands = []
        for name in node.inputs:
            if graph.constant(name):
                operands.append(to_shape(graph, new, name, whole))
            elif name == kept:
                operands.append(name)
            else:
                operands.append(spread(new, name, graph.shape(name), whole))
        new.node(node.op, operands, output=node.outputs[0])


def _kept(graph: Graph, node: Node, whole: Sequence[int]) -> str:
    """Returns the operand that may stay small, as the other one gets the whole shape."""
    if any(graph.constant(name) for name in node.inputs):
        return ""
    fits = [name for name in node.inputs if broadcasts(graph.shape(name), whole)]
    return fits[0] if fits else ""
