"""deconv-large-stride: part of the stride as zeros between the input's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._geometry import deconvolve, geometry, stride_fits

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["DeconvLargeStride"]


class DeconvLargeStride:
    """A stride of a * b is a deconvolution with stride a of the input with b - 1 zeros between.

    The zeros come from a deconvolution with a 1x1 kernel of ones (the identity) and stride b. A
    square stride that TensorRT disables needs it along the width only. What is multiplied grows
    by b, so b is the smallest factor that helps; a stride over the limit with no such factor
    stays as it is.
    """

    name = "deconv-large-stride"
    reason = (
        "The DLA lacks deconvolutions with square strides of 23 to 32 and strides over 32; zeros "
        "between the input's rows and columns take a factor of the stride"
    )
    operators: tuple[str, ...] = ("ConvTranspose",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a plain ConvTranspose whose stride the DLA refuses but for a factor."""
        found = geometry(graph, node)
        if found is None or not found.plain or stride_fits(found.stride):
            return None
        factors = _factors(found.stride)
        if factors is None:
            return None
        return Match((node,), (found, factors))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a deconvolution that inserts zeros, and one with the rest of the stride."""
        import numpy as np

        node = match.nodes[0]
        found, factors = match.facts
        new.room(found.channels, found.channels)
        eye = np.eye(found.channels).reshape(found.channels, found.channels, 1, 1)
        same = new.constant(eye, like=node.inputs[0], role="same")
        name = f"{node.name}:spread"
        spread = deconvolve(new, node.inputs[0], same, "", factors, name=name)
        rest = tuple(s // f for s, f in zip(found.stride, factors, strict=True))
        output = node.outputs[0]
        deconvolve(new, spread, node.inputs[1], found.bias, rest, output=output)


def _factors(stride: tuple[int, ...]) -> tuple[int, ...] | None:
    from edgekit.dla import limit

    _, most = limit("deconvolution.stride")
    found = [
        next((f for f in range(1, most + 1) if s % f == 0 and s // f <= most), 0) for s in stride
    ]
    if 0 in found:
        return None
    rest = tuple(s // f for s, f in zip(stride, found, strict=True))
    if not stride_fits(rest) or not stride_fits(tuple(found)):
        # a square: the width takes one factor more
        more = next(f for f in range(2, rest[1] + 1) if rest[1] % f == 0)
        found[1] *= more
        rest = (rest[0], rest[1] // more)
    return tuple(found) if stride_fits(rest) and stride_fits(tuple(found)) else None
