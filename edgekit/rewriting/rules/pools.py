"""Pooling and reductions.

Written within the limits of the DLA; :mod:`~edgekit.rewriting.rules.windows` splits the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx.helper import np_dtype_to_tensor_dtype

from edgekit.network.graph import Attributes, Node
from edgekit.network.windows import window
from edgekit.rewriting.graph import Replacement, RewriteGraph, rewrite
from edgekit.rewriting.rules.operands import is_image
from edgekit.rewriting.rules.windows import (
    PoolAxis,
    Reduction,
    RowNode,
    in_row,
    inclusive_parts,
    maximum_parts,
    mean_parts,
    read_pool,
    read_reduction,
    total_parts,
)

# auto_pad is resolved to pads; storage_order is that of indices, a second output
_DROPPED = {"auto_pad", "storage_order"}
# the smallest result by operator
_LOWEST = {
    "Abs": 0.0,
    "Exp": 0.0,
    "HardSigmoid": 0.0,
    "Relu": 0.0,
    "Sigmoid": 0.0,
    "Softplus": 0.0,
    "Tanh": -1.0,
}


@rewrite(
    "pool-1d",
    operators=("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
    reason="the DLA pools in two dimensions only; a pool over [N, C, L, 1] replaces it, between "
    "reshapes that disappear if the layers around have four dimensions too",
    enabling=True,
)
def pool_1d(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a one-dimensional pool as a two-dimensional pool between two reshapes.

    At every pool of floats in three dimensions without indices as output.
    """
    source = node.inputs[0]
    if any(node.outputs[1:]) or graph.rank(source) != 3 or not graph.floats(source):
        return
    new = yield (node,)
    target = node.outputs[0]
    before, after = graph.shape(source), graph.shape(target)
    wide = new.node("Reshape", [source, new.constant([*before, 1], role="shape")], role="in4d")
    attrs = _wide(node, before[2:], after[2:])
    result = new.node(node.op, [wide], name=node.name, **attrs)
    shape = new.constant(list(after), role="shape")
    new.node("Reshape", [result, shape], output=target, name=f"{node.name}:out3d")


def _wide(node: Node, source: tuple[int, ...], target: tuple[int, ...]) -> Attributes:
    attrs = {key: value for key, value in node.attrs.items() if key not in _DROPPED}
    if node.op.startswith("Global"):
        return attrs
    given = window(node.attrs, node.attrs["kernel_shape"], source, target).params()
    attrs |= {"kernel_shape": given["kernel"], "strides": given["stride"], "pads": given["pads"]}
    if "dilations" in attrs:
        attrs["dilations"] = given["dilation"]
    return attrs


class _Padding(NamedTuple):
    """The border of an image: number of elements (top, left, bottom, right) and their value."""

    pads: tuple[int, int, int, int]
    value: float


@rewrite(
    "pad-pool",
    operators=("MaxPool", "AveragePool"),
    reason="no form of Pad is certain to run on the DLA; the pool's own padding replaces it",
)
def pad_pool(graph: RewriteGraph, node: Node) -> Replacement:
    """Turns a Pad's border into the padding of the pool that reads it.

    At a pool that is the only reader of a Pad of H and W whose value changes no result.

    The value for an AveragePool is zero, which then counts. For a MaxPool it must never win: it is
    minus infinity, or at most the smallest result of the operator before the Pad.
    """
    pad = graph.producer(node.inputs[0])
    if pad is None or pad.op != "Pad" or graph.only_reader(pad.outputs[0]) is not node:
        return
    pool, border = read_pool(graph, node), _border(graph, pad)
    if pool is None or border is None:
        return
    axes = (pool.height, pool.width)
    nodes: tuple[Node, ...] = (node, pad)
    if node.op == "AveragePool":
        counts = node.attrs.get("count_include_pad", 0)
        own = any(axis.before or axis.after for axis in axes)
        # the pool has one attribute for all padding, so its own must count as the Pad's does
        if border.value != 0 or (own and not counts) or any(axis.beyond for axis in axes):
            return
    # the lowest number of the type never wins
    elif border.value > float(np.finfo(graph.dtype(pad.inputs[0])).min):
        source = graph.producer(pad.inputs[0])
        lowest = None if source is None else _lowest(graph, source)
        # a border above the smallest result could win
        if source is None or lowest is None or border.value > lowest:
            return
        # the pool's own values are needed for equal results
        nodes = (node, pad, source)
    sizes = graph.shape(pad.inputs[0])[2:]
    pads = _pads(axes, border.pads, sizes)
    if pads is None:
        return
    new = yield nodes
    for item in nodes[2:]:
        new.node(item.op, item.inputs, output=item.outputs[0], name=item.name, **item.attrs)
    attrs: dict[str, Any] = {
        **{key: value for key, value in node.attrs.items() if key != "auto_pad"},
        "pads": pads,
        # the padding at the end is what the last window reads, so rounding down gives all windows
        "ceil_mode": None,
    }
    if node.op == "AveragePool":
        attrs["count_include_pad"] = 1
    new.node(node.op, [pad.inputs[0]], output=node.outputs[0], **attrs)


def _border(graph: RewriteGraph, pad: Node) -> _Padding | None:
    source = pad.inputs[0]
    rank = graph.rank(source)
    if pad.attrs.get("mode", "constant") != "constant" or rank != 4:
        return None
    given = graph.ints(pad.input(1))
    axes = graph.ints(pad.input(3)) if pad.input(3) else list(range(rank))
    value = graph.scalar(pad.input(2)) if pad.input(2) else 0.0
    if given is None or axes is None or value is None or min(given) < 0:
        return None
    around = dict.fromkeys(range(2 * rank), 0)
    for position, axis in enumerate(axes):
        around[axis % rank] = given[position]
        around[axis % rank + rank] = given[position + len(axes)]
    # pools pad H and W only
    if any(around[axis] for axis in (0, 1, rank, rank + 1)):
        return None
    return _Padding((around[2], around[3], around[rank + 2], around[rank + 3]), value)


def _lowest(graph: RewriteGraph, source: Node) -> float | None:
    if source.op == "Clip":
        return graph.scalar(source.input(1))
    return None if source.domain else _LOWEST.get(source.op)


def _pads(
    axes: tuple[PoolAxis, PoolAxis], border: tuple[int, int, int, int], sizes: tuple[int, ...]
) -> list[int] | None:
    """Returns the pool's padding; None if a window would be entirely in the padding."""
    first, last = [], []
    for axis, around, size in zip(axes, border[:2], sizes, strict=True):
        span = (axis.size - 1) * axis.dilation + 1
        before = axis.before + around
        after = max((axis.count - 1) * axis.stride + span - before - size, 0)
        if before >= span or after >= span:
            return None
        first.append(before)
        last.append(after)
    return [*first, *last]


def _windows(
    graph: RewriteGraph, node: Node, parts_of: Callable[[Reduction], list[RowNode] | None]
) -> Replacement:
    """Replaces a reduction by windows."""
    found = read_reduction(graph, node)
    return _replaced(node, found and parts_of(found))


def _replaced(node: Node, parts: Sequence[RowNode] | None) -> Replacement:
    """Replaces a node by a row of nodes; does not apply if ``parts`` is None."""
    if parts:
        new = yield (node,)
        in_row(new, node.inputs[0], parts, node)


@rewrite(
    "global-average-pool",
    operators=("GlobalAveragePool",),
    reason="TensorRT makes it an average Reduce, which the DLA lacks; average pools and depthwise "
    "convolutions replace it",
)
def global_average_pool(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes the mean over the image as windows that the DLA supports.

    At every GlobalAveragePool over a 4-D tensor that can be written as windows.
    """
    return _windows(graph, node, mean_parts)


@rewrite(
    "large-max-pool",
    operators=("MaxPool",),
    reason="the DLA lacks maximum pools of this window or stride; several smaller ones in a row "
    "replace it",
)
def large_max_pool(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a maximum over a large window as a maximum of maxima.

    At every 2-D MaxPool beyond the limits without indices as output.
    """
    found = read_pool(graph, node)
    beyond = found is not None and not found.within
    return _replaced(node, maximum_parts(found.height, found.width) if found and beyond else None)


@rewrite(
    "average-pool-inclusive",
    operators=("AveragePool",),
    reason="Xavier's DLA cannot exclude padding from an average; a pool that counts it and a scale "
    "by position replace it",
)
def average_pool_inclusive(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes an average without padding as an average with padding, times a map of positions.

    At every padded 2-D AveragePool with count_include_pad = 0 within the limits.
    """
    found = read_pool(graph, node)
    counted = node.attrs.get("count_include_pad", 0)
    leaves_out = found is not None and found.within and found.padded and not counted
    return _replaced(node, inclusive_parts(graph, node, found) if found and leaves_out else None)


@rewrite(
    "reduce-mean",
    operators=("ReduceMean",),
    reason="the DLA lacks average Reduce; average pools or depthwise convolutions over H and W and "
    "a 1x1 convolution over C replace it",
)
def reduce_mean(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a mean as windows over the image and a 1x1 convolution over the channels.

    At every ReduceMean of a 4-D tensor that keeps its batch.
    """
    return _windows(graph, node, mean_parts)


@rewrite(
    "reduce-sum",
    operators=("ReduceSum",),
    reason="the DLA lacks sum Reduce; depthwise convolutions of ones over H and W and a 1x1 "
    "convolution over C replace it",
)
def reduce_sum(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a sum as depthwise convolutions over the image and a 1x1 convolution over channels.

    At every ReduceSum of a 4-D tensor that keeps its batch.
    """
    return _windows(graph, node, total_parts)


@rewrite(
    "l2-norm",
    operators=("ReduceL2", "LpNormalization"),
    reason="the DLA has no square root, so that a norm stays on the GPU as a whole; as a product, "
    "a sum and a root only the root of the sums stays there",
    enabling=True,
)
def l2_norm(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a norm as the root of the sum of x * x; LpNormalization divides by it, or by 1 if 0.

    At every ReduceL2 of an image and every LpNormalization of an image with p = 2.
    """
    source = node.inputs[0]
    divides = node.op == "LpNormalization"
    if not is_image(graph, source) or node.attrs.get("p", 2) != 2:
        return
    axes = [node.attrs.get("axis", -1)] if divides else node.attrs.get("axes")
    axes = axes or graph.ints(node.input(1))
    if not axes:
        return
    new = yield (node,)
    square = new.node("Mul", [source, source], role="square")
    along = new.constant(axes, role="axes")
    keep = 1 if divides else node.attrs.get("keepdims", 1)
    total = new.node("ReduceSum", [square, along], keepdims=keep)
    if not divides:
        new.node("Sqrt", [total], output=node.outputs[0])
        return
    norm = new.node("Sqrt", [total])
    # in the form of TensorRT's parser
    zero = new.node("Equal", [norm, new.constant(0.0, role="zero")])
    is_zero = new.node("Cast", [zero], to=np_dtype_to_tensor_dtype(np.dtype(graph.dtype(source))))
    divisor = new.node("Add", [norm, is_zero], role="divisor")
    new.node("Div", [source, divisor], output=node.outputs[0])
