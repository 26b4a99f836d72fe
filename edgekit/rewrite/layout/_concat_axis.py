"""Concatenation along H or W by way of the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._select import to_channels
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._joined import joined_axis

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ConcatAxis"]


class ConcatAxis:
    """Concat along H or W: along C between transpositions that swap C with that axis."""

    name = "concat-axis"
    reason = "The DLA concatenates along C only; transpositions around it make H or W the channels"
    operators: tuple[str, ...] = ("Concat",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Concat of 4-D activations along H or W."""
        axis = joined_axis(graph, node)
        return Match((node,), axis) if axis else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the transpositions and the Concat."""
        (node,) = match.nodes
        parts = dict.fromkeys(node.inputs)
        turned = {name: to_channels(new, name, match.facts) for name in parts}
        joined = new.node("Concat", [turned[name] for name in node.inputs], name=node.name, axis=1)
        to_channels(new, joined, match.facts, output=node.outputs[0])
