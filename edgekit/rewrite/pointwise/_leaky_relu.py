"""Max(x, a x) to LeakyRelu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import by_constant, image, other_input

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["LeakyRelu"]


class LeakyRelu:
    """As TensorFlow and Keras models write it."""

    name = "leaky-relu"
    reason = "max(x, a x) with a from 0 to 1 is a leaky ReLU, which is one layer on the DLA"
    operators: tuple[str, ...] = ("Max",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Max of an image and a multiple of it."""
        for scaled in node.inputs:
            source = other_input(node, scaled)
            found = by_constant(graph, graph.producer(scaled), "Mul")
            if found is None or not image(graph, source) or found[0] != source:
                continue
            if 0 <= found[1] <= 1 and graph.only_reader(scaled) is node:
                before = graph.producer(scaled)
                assert before is not None
                return Match((node, before), (source, found[1]))
        return None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the LeakyRelu."""
        source, slope = match.facts
        new.node("LeakyRelu", [source], output=match.nodes[0].outputs[0], alpha=slope)
