"""Constant indices, one for each element, that choose whole slices along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["picks_along"]


def picks_along(graph: Graph, node: Node) -> tuple[int, list[int]] | None:
    """Returns the axis and the indices along it of a GatherElements or a ScatterElements.

    None where they are along the batch, leave out a part of another axis, or differ from place to
    place.
    """
    shape, found = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    if axis == 0 or (*found[:axis], *found[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
        return None
    value = graph.value(node.inputs[1])
    assert value is not None
    line = value[tuple(slice(None) if at == axis else slice(1) for at in range(len(shape)))]
    if not (value == line).all():
        return None
    return axis, [int(index) % shape[axis] for index in line.ravel()]
