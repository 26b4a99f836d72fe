"""deconv-padding: a ConvTranspose without padding, and a Slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._geometry import crop, deconvolve, geometry

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["DeconvPadding"]


class DeconvPadding:
    """Padding of a deconvolution only crops its result, so a Slice does the same.

    ``output_padding`` crops less at the end. Where it asks for more rows or columns than the
    kernel reaches (they hold the bias alone), zeros behind the kernel reach them.
    """

    name = "deconv-padding"
    reason = (
        "The DLA runs deconvolutions without padding only; padding crops the result, and so does "
        "a slice"
    )
    operators: tuple[str, ...] = ("ConvTranspose",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a ConvTranspose over H and W with padding of any kind."""
        found = geometry(graph, node)
        if found is None or len(found.kernel) != 2 or not found.padded:
            return None
        return Match((node,), found)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the ConvTranspose with its kernel as it is, and a Slice."""
        node, found = match.nodes[0], match.facts
        ends = [b + t for b, t in zip(found.begin, found.target, strict=True)]
        lacks = [max(end - full, 0) for end, full in zip(ends, found.full, strict=True)]
        taps = [-(-lack // d) for lack, d in zip(lacks, found.dilation, strict=True)]
        weight = node.inputs[1]
        if any(taps):
            pads = new.constant([0, 0, 0, 0, 0, 0, *taps], role="pads")
            weight = new.node("Pad", [weight, pads])
        size = tuple(f + d * t for f, d, t in zip(found.full, found.dilation, taps, strict=True))
        exact = size == found.target
        made = deconvolve(
            new,
            node.inputs[0],
            weight,
            found.bias,
            found.stride,
            dilation=found.dilation,
            groups=found.groups,
            output=node.outputs[0] if exact else "",
            name=node.name,
        )
        if not exact:
            name = f"{node.name}:slice"
            crop(new, made, size, found.begin, found.target, output=node.outputs[0], name=name)
