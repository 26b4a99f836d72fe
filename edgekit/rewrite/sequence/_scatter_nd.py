"""ScatterND of whole channels, rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.sequence._scattering import REASON, Place, place_match, writable, write_scatter

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ScatterNd"]


class ScatterNd:
    """ScatterND of whole channels, rows or columns at constant indices (``x[:, 3] = y``).

    The indices may name channels, rows or every single element, as PyTorch's exporter does, if
    they go through the tensor in its own order. The forms are those of ScatterElements.
    """

    name = "scatter-nd"
    reason = REASON
    operators: tuple[str, ...] = ("ScatterND",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a ScatterND that writes whole channels, rows or columns."""
        if not writable(graph, node):
            return None
        value = graph.value(node.inputs[1])
        assert value is not None
        place = _grid(value, graph.shape(node.inputs[0]))
        return None if place is None else place_match(node, place)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes what stays and the updates."""
        write_scatter(graph, match, new)


def _grid(value: np.ndarray, shape: Sequence[int]) -> Place | None:
    """The one axis along which an ordered grid of indices is not all of the tensor."""
    import numpy as np

    depth = value.shape[-1]
    columns = value.reshape(-1, depth) % np.array(shape[:depth])
    # distinct indices of each column in the order in which they come
    lines = [list(dict.fromkeys(columns[:, at].tolist())) for at in range(depth)]
    sizes = [len(line) for line in lines]
    if int(np.prod(sizes)) != len(columns):
        return None
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, depth)
    parts = [at for at, line in enumerate(lines) if line != list(range(shape[at]))]
    if not (grid == columns).all() or len(parts) != 1 or parts[0] == 0:
        return None
    return Place(parts[0], [int(index) for index in lines[parts[0]]])
