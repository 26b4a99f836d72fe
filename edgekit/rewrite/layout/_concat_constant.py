"""Constant channels beside computed ones."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from edgekit.rewrite._select import selection
from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["ConcatConstant"]


class ConcatConstant:
    """Concat along C of activations and constants (coordinates, positions, channels of zeros).

    The activations are joined, a 1x1 convolution of 0 and 1 spreads them over the whole, leaving
    zeros where the constants go, and the constants are added as a scale of every element.
    """

    name = "concat-constant"
    reason = (
        "A constant that is concatenated is a layer on the GPU; "
        "added to channels of zeros it is a Scale layer of the DLA"
    )
    operators: tuple[str, ...] = ("Concat",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Concat along C of 4-D tensors, some of them constant and some not."""
        output = node.outputs[0]
        if graph.rank(output) != 4 or node.attrs["axis"] % 4 != 1 or not graph.floats(output):
            return None
        fixed = [graph.constant(name) for name in node.inputs]
        return Match((node,), fixed) if any(fixed) and not all(fixed) else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the Concat of the activations, the convolution and the sum."""
        import numpy as np

        (node,), fixed = match.nodes, match.facts
        batch, _, height, width = graph.shape(node.outputs[0])
        taps: list[int] = []
        constants: list[str] = []
        count = 0
        parts = zip(node.inputs, fixed, strict=True)
        for is_fixed, run in groupby(parts, key=lambda part: part[1]):
            names = [name for name, _ in run]
            channels = sum(graph.shape(name)[1] for name in names)
            if is_fixed:
                taps += [-1] * channels
                constants += names
                continue
            taps += range(count, count + channels)
            count += channels
            new.room(batch, channels, height, width)
            zeros = np.zeros((batch, channels, height, width))
            constants.append(new.constant(zeros, role="zeros"))
        computed = [name for name, known in zip(node.inputs, fixed, strict=True) if not known]
        source = computed[0]
        if len(computed) > 1:
            source = new.node("Concat", computed, axis=1)
        spread = selection(new, source, count, [(channel, 0, 0) for channel in taps])
        shift = new.node("Concat", constants, axis=1)
        new.node("Add", [spread, shift], output=node.outputs[0])
