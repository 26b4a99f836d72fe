"""Running sums: convolutions with ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.selection import four, reshape, to_channels

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewriting.graph import RewriteGraph, Writer


class CumSum:
    """CumSum along C: a 1x1 convolution with a triangle of ones.

    Along H and W it is a depthwise convolution whose kernel of ones reaches over the whole side,
    padded at one end; a side beyond the largest kernel or padding goes through the channels
    between transpositions. Other ranks are reshaped to four dimensions. Along the batch no layer
    of a DLA sums. Equal for finite values: an infinity or NaN reaches the sums before it too, as 0
    times it.
    """

    name = "cumsum"
    reason = (
        "The DLA has no running sums; a convolution with a triangle of ones adds the same terms"
    )
    operators: tuple[str, ...] = ("CumSum",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a CumSum along a constant axis other than the batch."""
        shape = graph.shape(node.inputs[0])
        axes = graph.ints(node.inputs[1])
        if axes is None or len(shape) < 2 or 0 in shape or not graph.floats(node.inputs[0]):
            return None
        axis = axes[0] % len(shape)
        return Match((node,), axis) if axis and not graph.constant(node.inputs[0]) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolution."""
        (node,) = match.nodes
        source, output = node.inputs[0], node.outputs[0]
        shape = graph.shape(source)
        wide, axis = four(shape, match.facts)
        if wide == shape:
            _sum(node, source, wide, axis, new, output)
            return
        made = _sum(node, reshape(new, source, wide), wide, axis, new, "")
        reshape(new, made, shape, output=output)


def _sum(
    node: Node, source: str, shape: tuple[int, ...], axis: int, new: Writer, output: str
) -> str:
    import numpy as np

    from edgekit.dla.rules import limit

    size, channels = shape[axis], shape[1]
    exclusive = bool(node.attrs.get("exclusive", 0))
    backward = bool(node.attrs.get("reverse", 0))
    most = min(limit("convolution.kernel")[1], limit("convolution.padding")[1] + 1)
    if axis > 1 and size <= most:
        line = np.ones(size)
        if exclusive:
            line[0 if backward else -1] = 0.0
        sides = [1, 1]
        sides[axis - 2] = size
        pads = [0, 0, 0, 0]
        pads[axis if backward else axis - 2] = size - 1
        kernel = np.tile(line, (channels, 1)).reshape(channels, 1, *sides)
        return _convolution(new, source, kernel, output, pads=pads, group=channels)
    new.check_size(size, size)
    triangle = np.tri(size, k=-1 if exclusive else 0)
    kernel = (triangle.T if backward else triangle).reshape(size, size, 1, 1)
    if axis == 1:
        return _convolution(new, source, kernel, output)
    made = _convolution(new, to_channels(new, source, axis), kernel, "")
    return to_channels(new, made, axis, output=output)


def _convolution(
    new: Writer,
    source: str,
    kernel: np.ndarray,
    output: str,
    pads: list[int] | None = None,
    group: int | None = None,
) -> str:
    weight = new.constant(kernel, role="ones")
    sides = list(kernel.shape[2:])
    return new.node(
        "Conv",
        [source, weight],
        output=output,
        role="sum",
        kernel_shape=sides,
        pads=pads,
        group=group,
    )
