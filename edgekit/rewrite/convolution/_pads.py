"""Pad nodes: what they put around a tensor, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["Zeros", "zeros_of"]


@dataclass(frozen=True, slots=True)
class Zeros:
    """A Pad of zeros around images: (before, after) of C, H and W."""

    node: Node
    channels: tuple[int, int]
    height: tuple[int, int]
    width: tuple[int, int]


def zeros_of(graph: Graph, node: Node | None) -> Zeros | None:
    """Returns what a Pad of zeros puts around [N, C, H, W]; None for any other node.

    None too where it pads the batch or takes something away.
    """
    if (
        node is None
        or node.op != "Pad"
        or node.domain
        or node.attrs.get("mode", "constant") != "constant"
    ):
        return None
    data, value = node.inputs[0], node.input(2)
    if graph.rank(data) != 4 or not graph.floats(data) or graph.constant(data):
        return None
    pads = graph.ints(node.input(1))
    axes = graph.ints(node.input(3)) if node.input(3) else [0, 1, 2, 3]
    if pads is None or axes is None or (value and graph.scalar(value) != 0.0):
        return None
    around = [(0, 0)] * 4
    for place, axis in enumerate(axes):
        around[axis % 4] = (pads[place], pads[place + len(axes)])
    if around[0] != (0, 0) or min(amount for pair in around for amount in pair) < 0:
        return None
    return Zeros(node, around[1], around[2], around[3])
