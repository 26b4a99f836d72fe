"""Resizes as picks, as means of two, or as products by constant matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.deconvolution.resizing import (
    ResizeAxis,
    Resizing,
    resizing,
    rows,
    steady,
)
from edgekit.rewriting.rules.selection import factors, stepped

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize of H and W that picks elements, or means of two, at equal distances."""
        from edgekit.dla.rules import limit

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

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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


def _picks(made: Resizing, axis: ResizeAxis) -> _Picks | None:
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


# the combinations that the rules allow, in ONNX's words
_NEAREST = frozenset(
    {
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
    }
)
_LINEAR = frozenset({"half_pixel", "pytorch_half_pixel"})
# elements of a matrix: 2048 to 2048, far more than pays
_MOST = 1 << 22
# Transposes that lead to H as channels, from there (or from the start) to W, and back to C
_TO_H, _TO_W, _H_TO_W, _W_TO_END = [0, 2, 1, 3], [0, 3, 2, 1], [0, 3, 2, 1], [0, 2, 3, 1]


class ResizeToConvolution:
    """Each row of the result is a sum of rows of the input with fixed weights.

    With H as channels that is a 1x1 convolution, with W another. It is exact for every mode, the
    borders with them: cubic (clamped or with ``exclude_outside``), aligned corners, fractional
    scales. A fixed deconvolution with a position map would do for whole factors alone, and of
    cubic ones for ``exclude_outside`` alone: clamping moves the weight of what lies outside to
    the border's elements, which no factor of the result can do. It would also need dense weights
    between all channels, for the DLA has no grouped deconvolution.
    """

    name = "resize-to-convolution"
    reason = (
        "The DLA resizes by whole factors only, nearest or linear; with height or width as "
        "channels any resizing is a 1x1 convolution with fixed weights"
    )
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize of H and W that no layer of the DLA does."""
        made = resizing(graph, node)
        if made is None or not made.image or _native(made):
            return None
        sides = [axis for axis in made.axes[2:] if not _same(axis)]
        if not sides or max(axis.size * axis.out for axis in sides) > _MOST:
            return None
        if not all(steady(made, axis) for axis in sides):
            return None
        return Match((node,), made)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes Transposes around one or two 1x1 convolutions."""
        node, made = match.nodes[0], match.facts
        source, output = node.inputs[0], node.outputs[0]
        down, across = (not _same(axis) for axis in made.axes[2:])
        if down:
            turned = new.node("Transpose", [source], perm=_TO_H)
            source = _product(new, node, turned, _matrix(made, made.axes[2]), node.name)
            if not across:
                new.node("Transpose", [source], output=output, name=_end(node), perm=_TO_H)
                return
        turned = new.node("Transpose", [source], perm=_H_TO_W if down else _TO_W)
        name = f"{node.name}:width" if down else node.name
        source = _product(new, node, turned, _matrix(made, made.axes[3]), name)
        perm = _W_TO_END if down else _TO_W
        new.node("Transpose", [source], output=output, name=_end(node), perm=perm)


def _native(made: Resizing) -> bool:
    """Whether a DLA takes it by itself: whole factors within the limits, in its combinations."""
    from edgekit.dla.rules import limit

    factors = [axis.factor for axis in made.axes[2:]]
    words = (made.coordinates, made.rounding)
    nearest = made.mode == "nearest" and words in _NEAREST
    linear = made.mode == "linear" and made.coordinates in _LINEAR
    _, most = limit("resize.nearest_scale" if nearest else "resize.linear_scale")
    return (nearest or linear) and min(factors) >= 1 and max(factors) <= most


def _same(axis: ResizeAxis) -> bool:
    return axis.scale == 1 and axis.out == axis.size


def _matrix(made: Resizing, axis: ResizeAxis) -> np.ndarray:
    import numpy as np

    index, weight = rows(made, axis)
    matrix = np.zeros((axis.out, axis.size))
    np.add.at(matrix, (np.arange(axis.out)[:, None], index), weight)
    return matrix


def _product(new: Writer, node: Node, source: str, matrix: np.ndarray, name: str) -> str:
    weight = new.constant(matrix[:, :, None, None], like=node.inputs[0], role="interpolation")
    return new.node("Conv", [source, weight], name=name)


def _end(node: Node) -> str:
    return f"{node.name}:back"
