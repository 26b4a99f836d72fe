"""Scattering to constant indices: parts side by side, or a masked sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewrite._select import four, pick_channels, reshape, runs, selection, to_channels
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ScatterElements", "ScatterNd"]

_REASON = (
    "The DLA scatters nothing; at constant indices the updates stand beside the channels that "
    "stay, or a 1x1 convolution of 0 and 1 places them"
)
# indices that are looked at one by one
_MOST_INDICES = 1 << 20


class _Place(NamedTuple):
    """Where updates go: whole slices along ``axis``, each index once."""

    axis: int
    picks: list[int]


class ScatterElements:
    """ScatterElements of whole channels, rows or columns at constant indices.

    A range of channels is replaced by a Concat of what stays and the updates; scattered channels
    are set to zero by a scale and the updates, placed by a 1x1 convolution, are added. Along H and
    W the same is done between transpositions. Reductions other than "add", indices that differ
    from place to place or come twice, and the batch have no such form.
    """

    name = "scatter-elements"
    reason = _REASON
    operators: tuple[str, ...] = ("ScatterElements",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a ScatterElements that writes whole channels, rows or columns."""
        if not _writable(graph, node):
            return None
        shape, found = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        if axis == 0 or (*found[:axis], *found[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
            return None
        value = graph.value(node.inputs[1])
        assert value is not None
        line = value[tuple(slice(None) if at == axis else slice(1) for at in range(len(shape)))]
        if not (value == line).all():
            return None
        picks = [int(index) % shape[axis] for index in line.ravel()]
        return _match(node, _Place(axis, picks))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes what stays and the updates."""
        _replace(graph, match, new)


class ScatterNd:
    """ScatterND of whole channels, rows or columns at constant indices (``x[:, 3] = y``).

    The indices may name channels, rows or every single element, as PyTorch's exporter does, if
    they go through the tensor in its own order. The forms are those of ScatterElements.
    """

    name = "scatter-nd"
    reason = _REASON
    operators: tuple[str, ...] = ("ScatterND",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a ScatterND that writes whole channels, rows or columns."""
        if not _writable(graph, node):
            return None
        value = graph.value(node.inputs[1])
        assert value is not None
        place = _grid(value, graph.shape(node.inputs[0]))
        return None if place is None else _match(node, place)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes what stays and the updates."""
        _replace(graph, match, new)


def _writable(graph: Graph, node: Node) -> bool:
    data, indices, updates = node.inputs
    size = 1
    for side in graph.shape(indices):
        size *= side
    return (
        node.attrs.get("reduction", "none") in {"none", "add"}
        and graph.constant(indices)
        and 0 < size <= _MOST_INDICES
        and graph.floats(data)
        and graph.rank(data) > 1
        and 0 not in graph.shape(data)
        and not (graph.constant(data) and graph.constant(updates))
    )


def _match(node: Node, place: _Place) -> Match | None:
    once = len(set(place.picks)) == len(place.picks)
    return Match((node,), place) if once else None


def _grid(value: np.ndarray, shape: Sequence[int]) -> _Place | None:
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
    return _Place(parts[0], [int(index) for index in lines[parts[0]]])


def _replace(graph: Graph, match: Match, new: Writer) -> None:
    (node,) = match.nodes
    place: _Place = match.facts
    data, _, updates = node.inputs
    output = node.outputs[0]
    shape = graph.shape(data)
    wide, axis = four(shape, place.axis)
    written = (*wide[:axis], len(place.picks), *wide[axis + 1 :])
    adds = node.attrs.get("reduction", "none") == "add"
    changed = wide != shape
    if changed:
        data = reshape(new, data, wide)
    if graph.shape(updates) != written:
        updates = reshape(new, updates, written)
    fixed = graph.constant(node.inputs[0]), graph.constant(node.inputs[2])
    if axis == 1:
        last = "" if changed else output
        made = _scatter(new, data, updates, wide, place.picks, adds, fixed, last)
    else:
        turned = [wide[0], wide[axis], *wide[2:]]
        turned[axis] = wide[1]
        parts = to_channels(new, data, axis), to_channels(new, updates, axis)
        inner = _scatter(new, *parts, turned, place.picks, adds, fixed, "")
        made = to_channels(new, inner, axis, output="" if changed else output)
    if changed:
        reshape(new, made, shape, output=output)


def _scatter(
    new: Writer,
    data: str,
    updates: str,
    shape: Sequence[int],
    picks: list[int],
    adds: bool,
    fixed: tuple[bool, bool],
    output: str,
) -> str:
    """Writes ``updates`` over, or onto, the channels ``picks`` of ``data``."""
    import numpy as np

    channels = shape[1]
    ranges = runs(picks)
    if len(ranges) == 1 and not adds and not any(fixed):
        start, end = ranges[0]
        left = [(0, start)] if start else []
        right = [(end, channels)] if end < channels else []
        before = [pick_channels(new, data, channels, range(*part)) for part in left]
        behind = [pick_channels(new, data, channels, range(*part)) for part in right]
        if before or behind:
            return new.node("Concat", [*before, updates, *behind], output=output, axis=1)
    written = {channel: index for index, channel in enumerate(picks)}
    sources = [written.get(channel, -1) for channel in range(channels)]
    if fixed[1]:
        # a recipe: the updates and a channel of zeros, put in order
        zero = new.constant(np.zeros((shape[0], 1, *shape[2:])), role="zero")
        both = new.node("Concat", [updates, zero], axis=1)
        order = new.constant([len(picks) if c < 0 else c for c in sources], role="order")
        placed = new.node("Gather", [both, order], axis=1)
    else:
        placed = selection(new, updates, len(picks), [(c, 0, 0) for c in sources])
    if not adds:
        mask = np.array([1.0 if c < 0 else 0.0 for c in sources]).reshape(1, -1, 1, 1)
        data = new.node("Mul", [data, new.constant(mask, role="mask")])
    return new.node("Add", [data, placed], output=output)
