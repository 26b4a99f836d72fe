"""What a Slice takes, whatever way it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import pick
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Span", "float_spans", "slice_along", "slice_of", "write_slice"]

# start, count and step along one axis
Span = tuple[int, int, int]


def slice_of(graph: Graph, node: Node) -> list[Span] | None:
    """Returns what a Slice of an activation takes along each axis.

    None for other nodes, computed bounds, and results without elements.
    """
    if node.op != "Slice" or node.domain or graph.constant(node.inputs[0]):
        return None
    shape, result = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    starts = graph.ints(node.input(1))
    if starts is None or 0 in result:
        return None
    axes = graph.ints(node.input(3)) if node.input(3) else list(range(len(starts)))
    steps = graph.ints(node.input(4)) if node.input(4) else [1] * len(starts)
    if axes is None or steps is None:
        return None
    spans = [(0, size, 1) for size in shape]
    for start, axis, step in zip(starts, axes, steps, strict=True):
        size = shape[axis]
        inside = start + size if start < 0 else start
        first = min(max(inside, 0), size if step > 0 else size - 1)
        # a single element has no step
        count = result[axis]
        spans[axis % len(shape)] = (first, count, step if count > 1 else 1)
    return spans


def write_slice(new: Writer, source: str, spans: dict[int, Span], *, output: str = "") -> str:
    """Writes a Slice of ``spans`` by axis and returns its output."""
    starts = [start for start, _, _ in spans.values()]
    # a backward slice that ends at the first element ends before it: far enough below zero
    ends = [start + (count - 1) * step for start, count, step in spans.values()]
    steps = [step for _, _, step in spans.values()]
    outside = -(2**31)
    ends = [
        end + 1 if step > 0 else (end - 1 if end else outside)
        for end, step in zip(ends, steps, strict=True)
    ]
    inputs = [source]
    for part in (starts, ends, list(spans), steps):
        inputs.append(new.constant(part, role="slice"))
    return new.node("Slice", inputs, output=output)


def float_spans(graph: Graph, node: Node) -> list[Span] | None:
    """Returns what a Slice of a 4-D activation of floats takes; None for others."""
    if not graph.floats(node.inputs[0]) or graph.rank(node.inputs[0]) != 4:
        return None
    return slice_of(graph, node)


def slice_along(graph: Graph, match: Match, new: Writer, axis: int) -> None:
    """Writes the Slice of ``match`` with ``axis`` picked and everything else sliced."""
    (node,) = match.nodes
    source, output = node.inputs[0], node.outputs[0]
    shape = list(graph.shape(source))
    spans: list[Span] = match.facts
    rest = {
        other: span
        for other, span in enumerate(spans)
        if other != axis and span != (0, shape[other], 1)
    }
    # the rest first, while it is all the DLA's own: fewer elements are moved then
    if rest:
        source = write_slice(new, source, rest)
        for other, (_, count, _) in rest.items():
            shape[other] = count
    start, count, step = spans[axis]
    picks = range(start, start + count * step, step)
    pick(new, source, shape, axis, picks, output=output)
