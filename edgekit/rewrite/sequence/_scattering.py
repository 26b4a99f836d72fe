"""What the rewrites of scattering have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgekit.rewrite._select import four, pick_channels, reshape, runs, selection, to_channels
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["REASON", "Place", "place_match", "writable", "write_scatter"]


#: Why, for all of them.
REASON = (
    "The DLA scatters nothing; at constant indices the updates stand beside the channels that "
    "stay, or a 1x1 convolution of 0 and 1 places them"
)
# indices that are looked at one by one
_MOST_INDICES = 1 << 20


class Place(NamedTuple):
    """Where updates go: whole slices along ``axis``, each index once."""

    axis: int
    picks: list[int]


def writable(graph: Graph, node: Node) -> bool:
    """Returns whether a node scatters activations of floats to constant indices."""
    data, indices, updates = node.inputs
    return (
        node.attrs.get("reduction", "none") in {"none", "add"}
        and graph.constant(indices)
        and 0 < math.prod(graph.shape(indices)) <= _MOST_INDICES
        and graph.floats(data)
        and graph.rank(data) > 1
        and 0 not in graph.shape(data)
        and not (graph.constant(data) and graph.constant(updates))
    )


def place_match(node: Node, place: Place) -> Match | None:
    """Returns the match at ``place``; None when an index comes twice."""
    once = len(set(place.picks)) == len(place.picks)
    return Match((node,), place) if once else None


def write_scatter(graph: Graph, match: Match, new: Writer) -> None:
    """Writes what stays of the data, and the updates."""
    (node,) = match.nodes
    place: Place = match.facts
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
