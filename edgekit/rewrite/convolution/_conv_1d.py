"""Convolutions over sequences as convolutions over images of width 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.network._window import Window
from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import conv_of, write_conv

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Conv1d"]


class Conv1d:
    """Conv on [N, C, L] -> Conv of [k, 1] on [N, C, L, 1], between reshapes.

    TensorRT does the same inside; in the model the reshapes can move away.
    """

    name = "conv-1d"
    reason = (
        "DLA layers read four dimensions: a sequence [N, C, L] is taken as an image [N, C, L, 1], "
        "so that the reshapes around each convolution can go"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Conv of one spatial axis with constant weights."""
        conv = conv_of(graph, node, spatial=1)
        return None if conv is None else Match((node,), conv)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Reshape, Conv, Reshape."""
        conv, node = match.facts, match.nodes[0]
        wide = new.constant([*conv.shape, 1])
        data = new.node("Reshape", [node.inputs[0], wide], name=f"{node.name}:image")
        weight = new.node("Reshape", [node.inputs[1], new.constant([*conv.weight, 1])])
        size = conv.size
        window = Window(
            (*size.kernel, 1),
            (*size.stride, 1),
            (size.pads[0], 0, size.pads[1], 0),
            (*size.dilation, 1),
        )
        inputs = [data, weight, conv.bias]
        made = write_conv(new, inputs, window, groups=conv.groups, name=node.name)
        narrow = new.constant(list(conv.target))
        new.node("Reshape", [made, narrow], output=node.outputs[0], name=f"{node.name}:sequence")
