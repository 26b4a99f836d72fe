"""Pad before a pool to the padding of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._types import Match
from edgekit.rewrite.pooling._common import pool_of

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer
    from edgekit.rewrite.pooling._cascade import Axis

__all__ = ["PadPool"]

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


@dataclass(frozen=True, slots=True)
class _Border:
    """What surrounds the image: elements (top, left, bottom, right) of one value."""

    pads: tuple[int, int, int, int]
    value: float


class PadPool:
    """The border of a Pad as the padding of the pool that reads it."""

    name = "pad-pool"
    reason = "the DLA lacks a sure form of Pad; the padding of the pool stands there instead"
    operators: tuple[str, ...] = ("MaxPool", "AveragePool")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
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

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
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


def _border(graph: Graph, pad: Node) -> _Border | None:
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


def _lowest(graph: Graph, source: Node) -> float | None:
    if source.op == "Clip":
        return graph.scalar(source.input(1))
    return None if source.domain else _LOWEST.get(source.op)


def _pads(
    axes: tuple[Axis, Axis], border: tuple[int, int, int, int], sizes: tuple[int, ...]
) -> list[int] | None:
    """Returns the pool's padding; None where a window would lie in it altogether."""
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
