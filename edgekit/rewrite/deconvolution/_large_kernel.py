"""deconv-large-kernel: kernels that the DLA refuses, widened or in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._geometry import crop, cropped, deconvolve, geometry, kernel_fits

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer
    from edgekit.rewrite.deconvolution._geometry import Geometry

__all__ = ["DeconvLargeKernel"]


@dataclass(frozen=True, slots=True)
class _Parts:
    """How the kernel is cut along one axis.

    Attributes:
        count: Parts.
        step: By how many rows of the input one part lies after another.
        size: Rows of the kernel in a part.
    """

    count: int
    step: int
    size: int

    @property
    def reach(self) -> int:
        """Rows from the first part's input to the last one's, both included."""
        return self.step * (self.count - 1) + 1


class DeconvLargeKernel:
    """A large kernel is cut into parts that lie whole steps of the stride apart.

    Part j of stride * t rows adds to the result what a deconvolution with that part makes of the
    input moved down by j * t rows. A convolution with weights of zeros and ones puts the moved
    inputs behind each other as channels, and one deconvolution with the parts as channels sums
    them all: no larger sums, no larger values than before. A square kernel that TensorRT
    disables (23 to 32) gets one column of zeros instead where that fits, and a Slice.

    A part has at least the stride's rows, so a stride over the kernel's limit is left.
    """

    name = "deconv-large-kernel"
    reason = (
        "The DLA lacks deconvolutions with square kernels of 23 to 32 and kernels over 32; parts "
        "of the kernel see the input moved by whole rows, as channels of one deconvolution"
    )
    operators: tuple[str, ...] = ("ConvTranspose",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a plain ConvTranspose whose kernel the DLA refuses and parts of it do not."""
        found = geometry(graph, node)
        if found is None or not found.plain or kernel_fits(found.kernel):
            return None
        end = cropped(graph, node.outputs[0])
        nodes, begin = ((node, end[0]), end[1]) if end else ((node,), (0, 0))
        wider = (found.kernel[0], found.kernel[1] + 1)
        if kernel_fits(wider):
            return Match(nodes, (found, None, begin))
        parts = _parts(found)
        return None if parts is None else Match(nodes, (found, parts, begin))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolution that moves, the deconvolution of the parts, and a Slice."""
        node, last = match.nodes[0], match.nodes[-1]
        found, parts, begin = match.facts
        source, weight, output = node.inputs[0], node.inputs[1], last.outputs[0]
        if parts is None:
            weight = new.node("Pad", [weight, new.constant([0] * 7 + [1], role="pads")])
            size = (found.full[0], found.full[1] + 1)
        else:
            source = _moved(new, node, found, parts)
            weight = _cut(new, weight, found, parts)
            spans = zip(found.stride, found.size, parts, strict=True)
            size = tuple(s * (i - 1) + p.count * p.size for s, i, p in spans)
        target = tuple(graph.shape(output)[2:])
        whole = output if size == target else ""
        made = deconvolve(
            new, source, weight, found.bias, found.stride, output=whole, name=node.name
        )
        if not whole:
            name = last.name if last is not node else f"{node.name}:slice"
            crop(new, made, size, begin, target, output=output, name=name)


def _parts(found: Geometry) -> tuple[_Parts, ...] | None:
    """Parts of each axis; None where the DLA lacks the kernel that they would have."""
    from edgekit.dla import limit

    _, most = limit("deconvolution.kernel")
    _, moves = limit("convolution.kernel")
    down = _along(found.kernel[0], found.stride[0], most)
    across = _along(found.kernel[1], found.stride[1], most)
    if down and across and not kernel_fits((down.size, across.size)):
        # a square again: shorter parts along the width
        across = _along(found.kernel[1], found.stride[1], across.size - 1)
    if down is None or across is None or not kernel_fits((down.size, across.size)):
        return None
    return (down, across) if max(down.reach, across.reach) <= moves else None


def _along(kernel: int, stride: int, most: int) -> _Parts | None:
    if kernel <= most:
        return _Parts(1, 1, kernel)
    if stride > most:
        return None
    count = -(-kernel // (most // stride * stride))
    step = -(-kernel // (stride * count))
    return _Parts(-(-kernel // (stride * step)), step, stride * step)


def _moved(new: Writer, node: Node, found: Geometry, parts: tuple[_Parts, ...]) -> str:
    """The input once for each part, moved by the part's place; C-major."""
    import numpy as np

    down, across = parts
    one = np.zeros((down.count, across.count, 1, down.reach, across.reach))
    for j in range(down.count):
        for k in range(across.count):
            # the padded input begins with reach - 1 zeros: this tap is j * step rows before it
            one[j, k, 0, down.reach - 1 - j * down.step, across.reach - 1 - k * across.step] = 1
    each = one.reshape(-1, 1, down.reach, across.reach)
    moves = np.tile(each, (found.channels, 1, 1, 1))
    pads = [down.reach - 1, across.reach - 1] * 2
    return new.node(
        "Conv",
        [node.inputs[0], new.constant(moves, like=node.inputs[0], role="moves")],
        name=f"{node.name}:moved",
        pads=pads,
        group=found.channels,
    )


def _cut(new: Writer, weight: str, found: Geometry, parts: tuple[_Parts, ...]) -> str:
    """The kernel's parts as further input channels: recipe of the weights."""
    down, across = parts
    sizes = [down.count * down.size, across.count * across.size]
    lack = [size - kernel for size, kernel in zip(sizes, found.kernel, strict=True)]
    if any(lack):
        weight = new.node("Pad", [weight, new.constant([0] * 6 + lack, role="pads")])
    apart = [found.channels, found.maps, down.count, down.size, across.count, across.size]
    split = new.node("Reshape", [weight, new.constant(apart, role="shape")])
    turned = new.node("Transpose", [split], perm=[0, 2, 4, 1, 3, 5])
    channels = found.channels * down.count * across.count
    shape = [channels, found.maps, down.size, across.size]
    return new.node("Reshape", [turned, new.constant(shape, role="shape")])
