"""deconv-dilation: zeros between the weights instead of a dilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._geometry import geometry

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["DeconvDilation"]


class DeconvDilation:
    """A dilated kernel is a larger kernel with zeros.

    A kernel that would be larger than the DLA's limit stays as it is: split into parts it would
    cost more than the GPU needs for it.
    """

    name = "deconv-dilation"
    reason = "The DLA runs deconvolutions without dilation only; zeros between the weights are one"
    operators: tuple[str, ...] = ("ConvTranspose",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a dilated ConvTranspose over H and W whose kernel may become that large."""
        from edgekit.dla import limit

        found = geometry(graph, node)
        if found is None or len(found.kernel) != 2 or set(found.dilation) == {1}:
            return None
        _, most = limit("deconvolution.kernel")
        spread = tuple(d * (k - 1) + 1 for d, k in zip(found.dilation, found.kernel, strict=True))
        return Match((node,), (found, spread)) if max(spread) <= most else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the same ConvTranspose with the spread weights."""
        node = match.nodes[0]
        found, spread = match.facts
        (height, width), (down, across) = found.kernel, found.dilation
        outer = list(graph.shape(node.inputs[1])[:2])
        # behind every row and every column as many zeros as the dilation skips
        apart = _reshape(new, node.inputs[1], [*outer, height, 1, width, 1])
        zeros = [0] * 6 + [0, 0, 0, down - 1, 0, across - 1]
        padded = new.node("Pad", [apart, new.constant(zeros, role="pads")])
        whole = _reshape(new, padded, [*outer, height * down, width * across])
        numbers = [[0, 0], list(spread), [2, 3]]
        ends = [new.constant(part, role="slice") for part in numbers]
        weight = new.node("Slice", [whole, *ends])
        gone = {"dilations", "kernel_shape"}
        attrs = {key: value for key, value in node.attrs.items() if key not in gone}
        read = [node.inputs[0], weight, *([found.bias] if found.bias else [])]
        new.node("ConvTranspose", read, output=node.outputs[0], **attrs)


def _reshape(new: Writer, source: str, shape: list[int]) -> str:
    return new.node("Reshape", [source, new.constant(shape, role="shape")])
