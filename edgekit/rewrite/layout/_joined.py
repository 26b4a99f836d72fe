"""Concatenations along H and W."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["joined_axis"]


def joined_axis(graph: Graph, node: Node) -> int:
    """Returns H or W when a Concat of 4-D activations runs along it, else 0."""
    axis = int(node.attrs["axis"]) % graph.rank(node.outputs[0])
    plain = graph.rank(node.outputs[0]) == 4 and graph.floats(node.outputs[0])
    if not plain or axis not in {2, 3} or len(node.inputs) < 2:
        return 0
    return 0 if all(graph.constant(name) for name in node.inputs) else axis
