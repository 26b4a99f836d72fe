"""Reductions of [N, C, L] as reductions of [N, C, L, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import AXES_INPUT, AXES_INPUT_OTHERS, reduction_of

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Reduce1d"]


class Reduce1d:
    """A reduction of three dimensions between two reshapes."""

    name = "reduce-1d"
    reason = (
        "the DLA reads four dimensions only; a reduction of [N, C, L, 1] stands there instead, for "
        "which there are pools and convolutions"
    )
    operators: tuple[str, ...] = (
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceSumSquare",
    )
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every reduction of floats in three dimensions over C or L or both."""
        found = reduction_of(graph, node, rank=3)
        return Match((node,), found) if found and found.axes else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a reshape, the reduction that keeps its dimensions, and a reshape."""
        import numpy as np

        (node,), found = match.nodes, match.facts
        shape = new.constant([*found.shape, 1], role="shape")
        read = [new.node("Reshape", [node.inputs[0], shape], role="in4d")]
        axes: list[int] | None = list(found.axes)
        if graph.opset >= AXES_INPUT.get(node.op, AXES_INPUT_OTHERS):
            read.append(new.constant(axes, role="axes"))
            axes = None
        result = new.node(node.op, read, name=node.name, axes=axes, keepdims=1)
        target = new.constant(np.array(found.target, np.int64), role="shape")
        new.node("Reshape", [result, target], output=node.outputs[0], name=f"{node.name}:out3d")
