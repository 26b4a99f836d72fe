"""Focus: strided slices of one image side by side as channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._select import Tap, selection
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._sliced import Span, slice_of

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["Focus"]

# slices behind each other that one part is made of: exporters write one for each axis
_MOST_SLICES = 4
_MOST_PARTS = 64


class Focus:
    """Concat along C of slices with equal steps along H and W: one strided convolution.

    Its kernel reaches to the furthest start, its stride is the step, its weights are 0 and 1
    (YOLOv5's Focus: 2x2, stride 2). The slices may come one by one for each axis, share one and
    take parts of the channels.
    """

    name = "focus"
    reason = (
        "The DLA slices with stride 1 only; "
        "a strided convolution with weights of 0 and 1 takes all the slices at once"
    )
    # at its slices too: each of them alone is worth a pooling, which would come first
    operators: tuple[str, ...] = ("Concat", "Slice")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Concat of slices of one tensor that a strided convolution can make."""
        for _ in range(_MOST_SLICES):
            if node.op != "Slice":
                break
            readers = graph.readers(node.outputs[0])
            if not readers:
                return None
            node = readers[0]
        parts = node.inputs
        if node.op != "Concat" or node.domain:
            return None
        if graph.rank(node.outputs[0]) != 4 or node.attrs["axis"] % 4 != 1:
            return None
        if not graph.floats(node.outputs[0]) or not 1 < len(parts) <= _MOST_PARTS:
            return None
        walks = [{tensor: (spans, nodes) for tensor, spans, nodes in _up(graph, p)} for p in parts]
        source = next((t for t in walks[0] if all(t in walk for walk in walks)), None)
        if source is None:
            return None
        slices = {item.name: item for walk in walks for item in walk[source][1]}
        nodes = (node, *slices.values())
        if not all(graph.inner(item.outputs[0], nodes) for item in slices.values()):
            return None
        spans = [walk[source][0] for walk in walks]
        return Match(nodes, (source, spans)) if _fits(graph.shape(source), spans) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolution."""
        source, spans = match.facts
        taps: list[Tap] = [
            (first + index * step, part[2][0], part[3][0])
            for part in spans
            for first, count, step in [part[1]]
            for index in range(count)
        ]
        strides = (_step(spans, 2), _step(spans, 3))
        selection(
            new,
            source,
            graph.shape(source)[1],
            taps,
            kernel=_kernel(spans),
            strides=strides,
            output=match.nodes[0].outputs[0],
        )


def _up(graph: Graph, tensor: str) -> Iterator[tuple[str, list[Span], list[Node]]]:
    """Yields what ``tensor`` is a slice of, from near to far: its source, spans and slices."""
    spans, nodes = [(0, size, 1) for size in graph.shape(tensor)], list[Node]()
    for _ in range(_MOST_SLICES):
        node = graph.producer(tensor)
        inner = None if node is None else slice_of(graph, node)
        if node is None or inner is None:
            return
        spans = [
            (first + step * start, count, step * by)
            for (first, _, step), (start, count, by) in zip(inner, spans, strict=True)
        ]
        nodes = [*nodes, node]
        tensor = node.inputs[0]
        yield tensor, spans, nodes


def _step(spans: Sequence[Sequence[Span]], axis: int) -> int:
    return max(part[axis][2] if part[axis][1] > 1 else 1 for part in spans)


def _kernel(spans: Sequence[Sequence[Span]]) -> tuple[int, int]:
    return max(part[2][0] for part in spans) + 1, max(part[3][0] for part in spans) + 1


def _fits(shape: Sequence[int], spans: Sequence[Sequence[Span]]) -> bool:
    from edgekit.dla import limit

    if any(part[0] != (0, shape[0], 1) or min(part[2][2], part[3][2]) < 1 for part in spans):
        return False
    steps = [_step(spans, axis) for axis in (2, 3)]
    if steps == [1, 1] or max(steps) > limit("convolution.stride")[1]:
        return False
    kernel = _kernel(spans)
    for axis, step, side in zip((2, 3), steps, kernel, strict=True):
        made = (shape[axis] - side) // step + 1
        same = all(part[axis][1:] in {(made, step), (1, 1)} for part in spans)
        if side > limit("convolution.kernel")[1] or not same:
            return False
        if any(part[axis][1] != made for part in spans):
            return False
    return True
