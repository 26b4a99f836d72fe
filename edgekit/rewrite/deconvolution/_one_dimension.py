"""deconv-1d: a ConvTranspose over one axis as one over H and W."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._geometry import geometry

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["DeconvOneDimension"]


class DeconvOneDimension:
    """[N, C, L] is [N, C, L, 1] between Reshapes, which meet others on their way and vanish."""

    name = "deconv-1d"
    reason = (
        "The DLA runs deconvolutions over height and width only; a one-dimensional one has a "
        "width of 1"
    )
    operators: tuple[str, ...] = ("ConvTranspose",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a ConvTranspose of a tensor [N, C, L] with constant weights."""
        found = geometry(graph, node)
        return Match((node,), found) if found is not None and len(found.kernel) == 1 else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a Reshape, the ConvTranspose with a kernel of width 1, and a Reshape."""
        node, found = match.nodes[0], match.facts
        shape = [new.constant([*graph.shape(t), 1], role="shape") for t in node.inputs[:2]]
        source = new.node("Reshape", [node.inputs[0], shape[0]], name=f"{node.name}:before")
        weight = new.node("Reshape", [node.inputs[1], shape[1]])
        made = new.node(
            "ConvTranspose",
            [source, weight, *([found.bias] if found.bias else [])],
            name=node.name,
            kernel_shape=[*found.kernel, 1],
            strides=[*found.stride, 1],
            dilations=[*found.dilation, 1],
            pads=[*found.begin, 0, *found.end, 0],
            output_padding=[*found.extra, 0] if any(found.extra) else None,
            group=found.groups,
        )
        target = new.constant(list(graph.shape(node.outputs[0])), role="shape")
        new.node("Reshape", [made, target], output=node.outputs[0], name=f"{node.name}:after")
