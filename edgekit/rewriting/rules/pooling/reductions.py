"""Reductions over C, H and W as pools and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pooling.windows import (
    AXES_INPUT,
    AXES_INPUT_OTHERS,
    RowNode,
    greatest_parts,
    in_row,
    mean_parts,
    reduction_of,
    total_parts,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every reduction of floats in three dimensions over C or L or both."""
        found = reduction_of(graph, node, rank=3)
        return Match((node,), found) if found and found.axes else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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


class ReduceMean:
    """A mean as windows over the image and a 1x1 convolution over the channels."""

    name = "reduce-mean"
    reason = (
        "the DLA lacks average Reduce; average pools or depthwise convolutions over H and W "
        "and a 1x1 convolution over C stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceMean",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every ReduceMean of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and mean_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the windows, the sum over C, and a reshape where dimensions go."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class ReduceSum:
    """A sum as depthwise convolutions over the image and a 1x1 convolution over the channels."""

    name = "reduce-sum"
    reason = (
        "the DLA lacks sum Reduce; depthwise convolutions of ones over H and W and a 1x1 "
        "convolution over C stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceSum",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every ReduceSum of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and total_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolutions, and a reshape where dimensions go."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class ReduceSumSquare:
    """Squares first, then their sum as `reduce-sum` has it."""

    name = "reduce-sum-square"
    reason = (
        "the DLA lacks sum Reduce; a product of the tensor with itself and convolutions of "
        "ones stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceSumSquare",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every ReduceSumSquare of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and total_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the function of one element and the sum."""
        node = match.nodes[0]
        source = node.inputs[0]
        first = new.node("Mul", [source, source], role="square")
        in_row(new, first, match.facts, node)


class ReduceL1:
    """Absolute values first, then their sum as `reduce-sum` has it."""

    name = "reduce-l1"
    reason = (
        "the DLA lacks sum Reduce; absolute values, which it has, and convolutions of ones "
        "stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceL1",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every ReduceL1 of a 4-D tensor that leaves its batch alone."""
        found = reduction_of(graph, node)
        parts = found and total_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the function of one element and the sum."""
        node = match.nodes[0]
        source = node.inputs[0]
        first = new.node("Abs", [source], role="abs")
        in_row(new, first, match.facts, node)


class ReduceMax:
    """A maximum over H, W or both as a maximum of maxima."""

    name = "reduce-max"
    reason = "the DLA lacks maximum Reduce with most releases; maximum pools stand there instead"
    operators: tuple[str, ...] = ("ReduceMax",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every ReduceMax over H and W of a 4-D tensor; over C there is no pool."""
        found = reduction_of(graph, node)
        parts = found and greatest_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the maximum pools, and a reshape where dimensions go."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class ReduceMin:
    """A minimum over H, W or both as a negated maximum."""

    name = "reduce-min"
    reason = (
        "the DLA lacks minimum Reduce; maximum pools between two scales by -1 stand there instead"
    )
    operators: tuple[str, ...] = ("ReduceMin",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every ReduceMin over H and W of a 4-D tensor; over C there is no pool."""
        found = reduction_of(graph, node)
        parts = found and greatest_parts(found)
        if not (found and parts):
            return None
        pools = [part for part in parts if part.op != "Reshape"]
        negate = [RowNode("Mul", (-1.0,))] if pools else []
        return Match((node,), [*negate, *pools, *negate, *found.reshape()])

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a scale by -1, the maximum pools, and a scale by -1."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
