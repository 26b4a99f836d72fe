"""resize-downscale: rows and columns picked, or the means of two, by pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._select import factors, stepped
from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._resizing import Axis, Resizing, resizing, rows, steady

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ResizeDownscale"]


@dataclass(frozen=True, slots=True)
class _Picks:
    """What is left of an axis: from ``start`` on ``count`` means of ``window``, ``step`` apart."""

    start: int
    count: int
    step: int
    window: int


class ResizeDownscale:
    """Shrinking by a whole factor reads one element of each group, or the two in its middle.

    The first is pooling of window 1 with a stride, the second the average of a window of 2, both
    of a Slice where the first element is another than 0. Nearest, asymmetric linear, and
    half_pixel linear resizing are all one of these.
    """

    name = "resize-downscale"
    reason = "The DLA resizes to larger sizes only; pooling with a stride picks what is left"
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Resize of H and W that picks elements, or means of two, at equal distances."""
        from edgekit.dla import limit

        made = resizing(graph, node)
        if made is None or not made.image:
            return None
        sides = [_picks(made, axis) for axis in made.axes[2:]]
        if sides[0] is None or sides[1] is None or sides[0].step * sides[1].step == 1:
            return None
        _, most = limit("pooling.stride")
        averages = max(side.window for side in sides if side) > 1
        if any(
            side.step > most if averages else factors(side.step, most) is None
            for side in sides
            if side
        ):
            return None
        return Match((node,), sides)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a Slice where it needs one, and the pooling."""
        node, sides = match.nodes[0], match.facts
        shape, output = graph.shape(node.inputs[0]), node.outputs[0]
        if all(side.window == 1 for side in sides):
            places = {a: (s.start, s.count, s.step) for a, s in enumerate(sides, start=2)}
            stepped(new, node.inputs[0], shape, places, output=output)
            return
        source = node.inputs[0]
        ends = [s.start + (s.count - 1) * s.step + s.window for s in sides]
        cut = [a for a in (0, 1) if sides[a].start or ends[a] != shape[a + 2]]
        if cut:
            starts = [sides[a].start for a in cut]
            parts = [starts, [ends[a] for a in cut], [a + 2 for a in cut]]
            source = new.node("Slice", [source, *(new.constant(p, role="slice") for p in parts)])
        new.node(
            "AveragePool",
            [source],
            output=output,
            kernel_shape=[side.window for side in sides],
            strides=[side.step for side in sides],
        )


def _picks(made: Resizing, axis: Axis) -> _Picks | None:
    import numpy as np

    if axis.out == axis.size and axis.scale == 1:
        return _Picks(0, axis.size, 1, 1)
    if axis.out >= axis.size or not steady(made, axis):
        return None
    index, weight = rows(made, axis)
    # what each output reads, by the first element that counts: the same for all
    counts = np.abs(weight) > 1e-9
    window = int(counts[0].sum())
    if window not in {1, 2} or (counts.sum(1) != window).any():
        return None
    if np.abs(weight[counts] - 1 / window).max() > 1e-9:
        return None
    read = index[counts].reshape(axis.out, window)
    steps = set(np.diff(read[:, 0]).tolist()) or {axis.size}
    if len(steps) != 1 or (window == 2 and (read[:, 1] - read[:, 0] != 1).any()):
        return None
    step = int(steps.pop())
    return _Picks(int(read[0, 0]), axis.out, step, window) if step > 0 else None
