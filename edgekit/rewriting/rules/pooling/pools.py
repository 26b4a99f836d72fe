"""Pooling nodes in forms within the limits of the DLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.network.windows import window
from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pooling.windows import (
    greatest_parts,
    in_row,
    inclusive_parts,
    maximum_parts,
    mean_parts,
    pool_of,
    reduction_of,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node
    from edgekit.rewriting.rules.pooling.cascades import PoolAxis


_DROPPED = {"auto_pad", "storage_order"}


class Pool1d:
    """A one-dimensional pool between two reshapes."""

    name = "pool-1d"
    reason = (
        "the DLA pools in two dimensions only; a pool over [N, C, L, 1] stands there instead, "
        "between reshapes that can go where the layers around have four dimensions too"
    )
    operators: tuple[str, ...] = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every pool of floats in three dimensions that writes no indices."""
        source = node.inputs[0]
        if any(node.outputs[1:]) or graph.rank(source) != 3 or not graph.floats(source):
            return None
        return Match((node,))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a reshape, the pool with a second side of 1, and a reshape."""
        (node,) = match.nodes
        source, target = node.inputs[0], node.outputs[0]
        before, after = graph.shape(source), graph.shape(target)
        wide = new.node("Reshape", [source, new.constant([*before, 1], role="shape")], role="in4d")
        attrs = _wide(node, before[2:], after[2:])
        result = new.node(node.op, [wide], name=node.name, **attrs)
        shape = new.constant(list(after), role="shape")
        new.node("Reshape", [result, shape], output=target, name=f"{node.name}:out3d")


def _wide(node: Node, source: tuple[int, ...], target: tuple[int, ...]) -> dict[str, Any]:
    attrs = {key: value for key, value in node.attrs.items() if key not in _DROPPED}
    if node.op.startswith("Global"):
        return attrs
    given = window(node.attrs, node.attrs["kernel_shape"], source, target).params()
    attrs |= {"kernel_shape": given["kernel"], "strides": given["stride"], "pads": given["pads"]}
    if "dilations" in attrs:
        attrs["dilations"] = given["dilation"]
    return attrs


# the smallest value that these return
_LOWEST = {
    "Abs": 0.0,
    "Exp": 0.0,
    "HardSigmoid": 0.0,
    "Relu": 0.0,
    "Sigmoid": 0.0,
    "Softplus": 0.0,
    "Tanh": -1.0,
}


class _Border(NamedTuple):
    """What surrounds the image: elements (top, left, bottom, right) of one value."""

    pads: tuple[int, int, int, int]
    value: float


class PadPool:
    """The border of a Pad as the padding of the pool that reads it."""

    name = "pad-pool"
    reason = "the DLA lacks a sure form of Pad; the padding of the pool stands there instead"
    operators: tuple[str, ...] = ("MaxPool", "AveragePool")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a pool that alone reads a Pad of H and W whose value changes no result.

        In an AveragePool that is zero, which then counts. In a MaxPool it must never win: it is
        minus infinity, or no more than what the operator before the Pad can return.
        """
        pad = graph.producer(node.inputs[0])
        if pad is None or pad.op != "Pad" or graph.only_reader(pad.outputs[0]) is not node:
            return None
        pool, border = pool_of(graph, node), _border(graph, pad)
        if pool is None or border is None:
            return None
        axes = (pool.height, pool.width)
        nodes: tuple[Node, ...] = (node, pad)
        if node.op == "AveragePool":
            counts = node.attrs.get("count_include_pad", 0)
            own = any(axis.before or axis.after for axis in axes)
            if border.value != 0 or (own and not counts) or any(axis.beyond for axis in axes):
                return None
        elif border.value > _least(graph.dtype(pad.inputs[0])):
            source = graph.producer(pad.inputs[0])
            lowest = None if source is None else _lowest(graph, source)
            if source is None or lowest is None or border.value > lowest:
                return None
            # its own values are needed for the two forms to be equal
            nodes = (node, pad, source)
        sizes = graph.shape(pad.inputs[0])[2:]
        pads = _pads(axes, border.pads, sizes)
        return None if pads is None else Match(nodes, pads)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the pool with more padding, and again what was needed to see that it fits."""
        node, pad, *before = match.nodes
        for item in before:
            new.node(item.op, item.inputs, output=item.outputs[0], name=item.name, **item.attrs)
        attrs: dict[str, Any] = {
            **{key: value for key, value in node.attrs.items() if key != "auto_pad"},
            "pads": match.facts,
            "ceil_mode": None,
        }
        if node.op == "AveragePool":
            attrs["count_include_pad"] = 1
        new.node(node.op, [pad.inputs[0]], output=node.outputs[0], **attrs)


def _border(graph: RewriteGraph, pad: Node) -> _Border | None:
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
    if any(around[axis] for axis in (0, 1, rank, rank + 1)):
        return None
    return _Border((around[2], around[3], around[rank + 2], around[rank + 3]), value)


def _least(dtype: str) -> float:
    import numpy as np

    return float(np.finfo(dtype).min)


def _lowest(graph: RewriteGraph, source: Node) -> float | None:
    if source.op == "Clip":
        return graph.scalar(source.input(1))
    return None if source.domain else _LOWEST.get(source.op)


def _pads(
    axes: tuple[PoolAxis, PoolAxis], border: tuple[int, int, int, int], sizes: tuple[int, ...]
) -> list[int] | None:
    """Returns the pool's padding; None if a window would lie in it altogether."""
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


class GlobalAveragePool:
    """The mean over the image as windows that the DLA has."""

    name = "global-average-pool"
    reason = (
        "TensorRT makes an average Reduce of it, which the DLA lacks; average pools and "
        "depthwise convolutions stand there instead"
    )
    operators: tuple[str, ...] = ("GlobalAveragePool",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every GlobalAveragePool over a 4-D tensor that windows can make."""
        found = reduction_of(graph, node)
        parts = found and mean_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the pools or convolutions."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class GlobalMaxPool:
    """The maximum of the image as a maximum of maxima."""

    name = "global-max-pool"
    reason = (
        "TensorRT makes a maximum Reduce of it, which the DLA lacks with most releases; "
        "maximum pools stand there instead"
    )
    operators: tuple[str, ...] = ("GlobalMaxPool",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every GlobalMaxPool over a 4-D tensor."""
        found = reduction_of(graph, node)
        parts = found and greatest_parts(found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the maximum pools."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class LargeMaxPool:
    """A maximum over a large window as a maximum of maxima."""

    name = "large-max-pool"
    reason = (
        "the DLA lacks maximum pools of this window or stride; smaller ones, one after the "
        "other, stand there instead"
    )
    operators: tuple[str, ...] = ("MaxPool",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every 2-D MaxPool beyond the limits that writes no indices."""
        found = pool_of(graph, node)
        if found is None or found.within:
            return None
        parts = maximum_parts(found.height, found.width)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the maximum pools."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class LargeAveragePool:
    """An average over a large window as averages of averages or a depthwise convolution."""

    name = "large-average-pool"
    reason = (
        "the DLA lacks average pools of this window or stride; smaller ones or a depthwise "
        "convolution stand there instead"
    )
    operators: tuple[str, ...] = ("AveragePool",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every 2-D AveragePool whose window, stride or dilation the DLA lacks."""
        found = pool_of(graph, node)
        if found is None or found.within:
            return None
        parts = inclusive_parts(graph, node, found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the pools or convolutions, and a position map where padding is not counted."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])


class AveragePoolInclusive:
    """An average of real elements as one with padding, times a map of positions."""

    name = "average-pool-inclusive"
    reason = (
        "Xavier's DLA cannot leave padding out of an average; a pool that counts it and a "
        "scale by position stand there instead"
    )
    operators: tuple[str, ...] = ("AveragePool",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns every padded 2-D AveragePool with count_include_pad = 0 within the limits."""
        found = pool_of(graph, node)
        if found is None or not (found.within and found.padded):
            return None
        if node.attrs.get("count_include_pad", 0):
            return None
        parts = inclusive_parts(graph, node, found)
        return Match((node,), parts) if parts else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the pool and the scale."""
        in_row(new, match.nodes[0].inputs[0], match.facts, match.nodes[0])
