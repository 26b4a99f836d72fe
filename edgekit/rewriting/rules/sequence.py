"""Gathers and scatters.

Whole channels, rows and columns at constant indices are written as selections.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import (
    find_runs,
    four_dimensions,
    pick,
    pick_channels,
    reshape,
    select_taps,
    to_channels,
)

#: Reason of all gather rewrites.
GATHER_REASON = (
    "The DLA has no gather; for constant indices a slice, concatenated slices or a 1x1 "
    "convolution of 0 and 1 replaces it"
)
#: Reason of all scatter rewrites.
SCATTER_REASON = (
    "The DLA has no scatter; for constant indices the updates are concatenated with the other "
    "channels, or placed by a 1x1 convolution of 0 and 1"
)
# most indices that are checked one by one
_MOST_INDICES = 1 << 20


def picks_along(graph: RewriteGraph, node: Node) -> tuple[int, list[int]] | None:
    """Returns the axis and the indices along it of a GatherElements or a ScatterElements.

    None if they are along the batch, omit a part of another axis, or differ from place to place.
    """
    shape, found = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    if axis == 0 or (*found[:axis], *found[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
        return None
    value = graph.value(node.inputs[1])
    assert value is not None
    # the indices at the first place of the other axes
    line = value[tuple(slice(None) if at == axis else slice(1) for at in range(len(shape)))]
    if not (value == line).all():
        return None
    return axis, [int(index) % shape[axis] for index in line.ravel()]


def gathers_activation(graph: RewriteGraph, node: Node) -> bool:
    """Returns True if a node gathers from a floating-point activation at constant indices."""
    data = node.inputs[0]
    fixed = graph.constant(node.inputs[1]) and not graph.constant(data)
    return fixed and graph.floats(data) and graph.rank(data) > 1 and 0 not in graph.shape(data)


def read_gather(graph: RewriteGraph, node: Node) -> tuple[int, list[int]] | None:
    """Returns axis and indices of a Gather along any axis except the batch; else None."""
    if not gathers_activation(graph, node):
        return None
    shape = graph.shape(node.inputs[0])
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    picks = graph.ints(node.inputs[1])
    if not picks:
        return None
    picks = [index % shape[axis] for index in picks]
    return axis, picks


def write_selection(
    graph: RewriteGraph, node: Node, new: Writer, axis: int, picks: Sequence[int]
) -> None:
    """Writes the selection of indices along an axis, and a Reshape if shapes differ."""
    source, output = node.inputs[0], node.outputs[0]
    shape, result = graph.shape(source), graph.shape(output)
    made = (*shape[:axis], len(picks), *shape[axis + 1 :])
    whole = picks == list(range(shape[axis]))
    if made == result and not whole:
        pick(new, source, shape, axis, picks, output=output)
        return
    chosen = source if whole else pick(new, source, shape, axis, picks)
    reshape(new, chosen, result, output=output)


@rewrite("gather", operators=("Gather",), reason=GATHER_REASON)
def gather(graph: RewriteGraph, node: Node) -> Replacement:
    """Gather of some channels, rows or columns of a 4-D tensor.

    One range of channels is a Slice, a few ranges are Slices and a Concat, others a 1x1
    convolution. Along H and W a range is a Slice, every n-th element a pooling of window 1; other
    indices are selected as channels between transpositions. A table with computed indices (an
    embedding) has no such form. A convolution is equal for finite values only: an infinity or NaN
    in a channel makes all its sums NaN, because 0 times it is NaN.

    At a Gather at a list of constant indices, not along the batch.
    """
    found = read_gather(graph, node)
    if found is None or not found[0]:
        return
    plain = graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
    if not plain:
        return
    new = yield (node,)
    write_selection(graph, node, new, *found)


@rewrite("gather-shaped", operators=("Gather",), reason=GATHER_REASON, enabling=True)
def gather_shaped(graph: RewriteGraph, node: Node) -> Replacement:
    """Gather that changes the number of dimensions, or of a tensor of another rank than 4.

    Writes the same selection on four dimensions and a Reshape; ``x[0]`` of a batch of 1 is only the
    Reshape. As a convolution it is equal for finite values only.

    At a Gather at a constant index, or of another rank than 4.
    """
    found = read_gather(graph, node)
    if found is None:
        return
    axis, picks = found
    # the DLA does not slice batches; of a batch of 1, the only sample is a reshape
    if axis == 0 and (graph.shape(node.inputs[0])[0] != 1 or len(picks) != 1):
        return
    plain = axis and graph.rank(node.inputs[0]) == 4 and graph.rank(node.inputs[1]) == 1
    if plain:
        return
    new = yield (node,)
    write_selection(graph, node, new, axis, picks)


class ScatterPlace(NamedTuple):
    """The place of updates: whole slices along ``axis``, each index once."""

    axis: int
    picks: list[int]


def scatters_activation(graph: RewriteGraph, node: Node) -> bool:
    """Returns True if a node scatters floating-point activations to constant indices."""
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


def scatter(graph: RewriteGraph, node: Node, place: ScatterPlace) -> Replacement:
    """Writes the remaining data and the updates; does not apply if an index is repeated."""
    # ONNX leaves open which of several updates at one index wins, and "add" needs their sum
    if len(set(place.picks)) != len(place.picks):
        return
    new = yield (node,)
    data, _, updates = node.inputs
    output = node.outputs[0]
    shape = graph.shape(data)
    wide, axis = four_dimensions(shape, place.axis)
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
    channels = shape[1]
    ranges = find_runs(picks)
    # a concatenated constant would be a layer on the GPU
    if len(ranges) == 1 and not adds and not any(fixed):
        start, end = ranges[0]
        left = [(0, start)] if start else []
        right = [(end, channels)] if end < channels else []
        before = [pick_channels(new, data, channels, range(*part)) for part in left]
        after = [pick_channels(new, data, channels, range(*part)) for part in right]
        if before or after:
            return new.node("Concat", [*before, updates, *after], output=output, axis=1)
    written = {channel: index for index, channel in enumerate(picks)}
    sources = [written.get(channel, -1) for channel in range(channels)]
    if fixed[1]:
        # a recipe: the updates and a channel of zeros, put in order
        zero = new.constant(np.zeros((shape[0], 1, *shape[2:])), role="zero")
        both = new.node("Concat", [updates, zero], axis=1)
        order = new.constant([len(picks) if c < 0 else c for c in sources], role="order")
        placed = new.node("Gather", [both, order], axis=1)
    else:
        placed = select_taps(new, updates, len(picks), [(c, 0, 0) for c in sources])
    if not adds:
        mask = np.array([1.0 if c < 0 else 0.0 for c in sources]).reshape(1, -1, 1, 1)
        data = new.node("Mul", [data, new.constant(mask, role="mask")])
    return new.node("Add", [data, placed], output=output)


@rewrite("scatter-elements", operators=("ScatterElements",), reason=SCATTER_REASON, enabling=True)
def scatter_elements(graph: RewriteGraph, node: Node) -> Replacement:
    """ScatterElements of whole channels, rows or columns at constant indices.

    A range of channels is replaced by a Concat of the remaining data and the updates; scattered
    channels are set to zero by a scale and the updates, placed by a 1x1 convolution, are added.
    Along H and W the same is done between transpositions. Not supported: reductions other than
    "add", indices that differ from place to place or are repeated, and the batch axis.

    At a ScatterElements that writes whole channels, rows or columns.
    """
    picks = picks_along(graph, node) if scatters_activation(graph, node) else None
    if picks:
        yield from scatter(graph, node, ScatterPlace(*picks))
