"""Concatenation along H or W as a sum of padded parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._joined import joined_axis

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ConcatSum"]


# a sum of more parts than these reads and writes the whole too often
_MOST_PARTS = 4


class ConcatSum:
    """Concat of a few parts along H or W: each padded with zeros to the whole, and their sum.

    The padding is that of a depthwise convolution with a single 1 in its kernel, so the rest of
    the whole must be within the padding that a convolution may have. No transposition is needed,
    which no source allows on Xavier.
    """

    name = "concat-sum"
    reason = (
        "The DLA concatenates along C only; "
        "padded by depthwise convolutions of 0 and 1 the parts are added instead"
    )
    operators: tuple[str, ...] = ("Concat",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Concat of a few 4-D activations along H or W, none of them too small."""
        from edgekit.dla import limit

        axis = joined_axis(graph, node)
        if not axis or len(node.inputs) > _MOST_PARTS or any(map(graph.constant, node.inputs)):
            return None
        whole = graph.shape(node.outputs[0])[axis]
        rest = whole - min(graph.shape(name)[axis] for name in node.inputs)
        return Match((node,), axis) if rest <= limit("convolution.padding")[1] else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolutions and the sum."""
        import numpy as np

        (node,), axis = match.nodes, match.facts
        shape = graph.shape(node.outputs[0])
        channels, whole = shape[1], shape[axis]
        total, begin = "", 0
        for index, name in enumerate(node.inputs):
            # pads of `rest` on both sides; the place of the 1 in the kernel moves the part
            rest = whole - graph.shape(name)[axis]
            kernel = np.zeros((channels, 1, rest + 1))
            kernel[:, :, rest - begin] = 1.0
            sides = [1, 1]
            sides[axis - 2] = rest + 1
            pads = [0, 0, 0, 0]
            pads[axis - 2] = pads[axis] = rest
            weight = new.constant(kernel.reshape(channels, 1, *sides), role="place")
            part = new.node(
                "Conv",
                [name, weight],
                role=f"part_{index}",
                kernel_shape=sides,
                pads=pads,
                group=channels,
            )
            last = index == len(node.inputs) - 1
            output = node.outputs[0] if last else ""
            total = new.node("Add", [total, part], output=output, role="sum") if total else part
            begin += graph.shape(name)[axis]
