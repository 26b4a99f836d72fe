"""Average pools whose padding counts, with a map of positions where it did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.pooling._common import Part, Pool
from edgekit.rewrite.pooling._windows import average_parts, position_map

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["inclusive_parts"]


def inclusive_parts(graph: Graph, node: Node, pool: Pool) -> list[Part] | None:
    """Returns what makes an AveragePool's result with padding that counts as zeros.

    The map is a constant of the whole tensor, which TensorRT takes as a scale; where it is the same
    everywhere it is a factor. None where there is no such form, or where a window that counts its
    padding reaches beyond it (ceil mode): implementations differ there.
    """
    import numpy as np

    channels = graph.shape(node.inputs[0])[1]
    if node.attrs.get("count_include_pad", 0):
        if pool.height.beyond or pool.width.beyond:
            return None
        return average_parts(pool.height, pool.width, channels)
    by_place = position_map(pool.height, pool.width)
    factor = float(by_place.flat[0])
    if (by_place == factor).all():
        return average_parts(pool.height, pool.width, channels, factor)
    parts = average_parts(pool.height, pool.width, channels)
    whole = np.broadcast_to(by_place, (1, channels, *by_place.shape))
    return None if parts is None else [*parts, Part("Mul", (whole,))]
