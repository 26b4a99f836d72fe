"""resize-to-convolution: any Resize as products by constant matrices along H and W."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._resizing import Axis, Resizing, resizing, rows, steady

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ResizeToConvolution"]

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

    def match(self, graph: Graph, node: Node) -> Match | None:
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

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
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
    from edgekit.dla import limit

    factors = [axis.factor for axis in made.axes[2:]]
    words = (made.coordinates, made.rounding)
    nearest = made.mode == "nearest" and words in _NEAREST
    linear = made.mode == "linear" and made.coordinates in _LINEAR
    _, most = limit("resize.nearest_scale" if nearest else "resize.linear_scale")
    return (nearest or linear) and min(factors) >= 1 and max(factors) <= most


def _same(axis: Axis) -> bool:
    return axis.scale == 1 and axis.out == axis.size


def _matrix(made: Resizing, axis: Axis) -> np.ndarray:
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
