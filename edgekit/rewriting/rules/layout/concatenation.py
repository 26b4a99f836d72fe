"""Concatenation along H or W, and constant channels next to computed ones."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.selection import selection, to_channels

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer


def joined_axis(graph: RewriteGraph, node: Node) -> int:
    """Returns H or W when a Concat of 4-D activations runs along it, else 0."""
    axis = int(node.attrs["axis"]) % graph.rank(node.outputs[0])
    plain = graph.rank(node.outputs[0]) == 4 and graph.floats(node.outputs[0])
    if not plain or axis not in {2, 3} or len(node.inputs) < 2:
        return 0
    return 0 if all(graph.constant(name) for name in node.inputs) else axis


# a sum of more parts than these reads and writes the whole too often
_MOST_PARTS = 4


class ConcatSum:
    """Concat of a few parts along H or W: each padded with zeros to the whole, and their sum.

    The padding is that of a depthwise convolution with a single 1 in its kernel, so the rest of
    the whole must be within the padding that a convolution may have. No transposition is needed,
    which no source allows on Xavier.
    """

    name = "concat-sum"
    reason = (
        "The DLA concatenates along C only; "
        "padded by depthwise convolutions of 0 and 1 the parts are added instead"
    )
    operators: tuple[str, ...] = ("Concat",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Concat of a few 4-D activations along H or W, none of them too small."""
        from edgekit.dla.rules import limit

        axis = joined_axis(graph, node)
        if not axis or len(node.inputs) > _MOST_PARTS or any(map(graph.constant, node.inputs)):
            return None
        whole = graph.shape(node.outputs[0])[axis]
        rest = whole - min(graph.shape(name)[axis] for name in node.inputs)
        return Match((node,), axis) if rest <= limit("convolution.padding")[1] else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolutions and the sum."""
        import numpy as np

        (node,), axis = match.nodes, match.facts
        shape = graph.shape(node.outputs[0])
        channels, whole = shape[1], shape[axis]
        total, begin = "", 0
        for index, name in enumerate(node.inputs):
            # pads of `rest` on both sides; the place of the 1 in the kernel moves the part
            rest = whole - graph.shape(name)[axis]
            kernel = np.zeros((channels, 1, rest + 1))
            kernel[:, :, rest - begin] = 1.0
            sides = [1, 1]
            sides[axis - 2] = rest + 1
            pads = [0, 0, 0, 0]
            pads[axis - 2] = pads[axis] = rest
            weight = new.constant(kernel.reshape(channels, 1, *sides), role="place")
            part = new.node(
                "Conv",
                [name, weight],
                role=f"part_{index}",
                kernel_shape=sides,
                pads=pads,
                group=channels,
            )
            last = index == len(node.inputs) - 1
            output = node.outputs[0] if last else ""
            total = new.node("Add", [total, part], output=output, role="sum") if total else part
            begin += graph.shape(name)[axis]


class ConcatAxis:
    """Concat along H or W: along C between transpositions that swap C with that axis."""

    name = "concat-axis"
    reason = "The DLA concatenates along C only; transpositions around it make H or W the channels"
    operators: tuple[str, ...] = ("Concat",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Concat of 4-D activations along H or W."""
        axis = joined_axis(graph, node)
        return Match((node,), axis) if axis else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the transpositions and the Concat."""
        (node,) = match.nodes
        parts = dict.fromkeys(node.inputs)
        turned = {name: to_channels(new, name, match.facts) for name in parts}
        joined = new.node("Concat", [turned[name] for name in node.inputs], name=node.name, axis=1)
        to_channels(new, joined, match.facts, output=node.outputs[0])


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Concat along C of 4-D tensors, some of them constant and some not."""
        output = node.outputs[0]
        if graph.rank(output) != 4 or node.attrs["axis"] % 4 != 1 or not graph.floats(output):
            return None
        fixed = [graph.constant(name) for name in node.inputs]
        return Match((node,), fixed) if any(fixed) and not all(fixed) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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
            new.check_size(batch, channels, height, width)
            zeros = np.zeros((batch, channels, height, width))
            constants.append(new.constant(zeros, role="zeros"))
        computed = [name for name, known in zip(node.inputs, fixed, strict=True) if not known]
        source = computed[0]
        if len(computed) > 1:
            source = new.node("Concat", computed, axis=1)
        spread = selection(new, source, count, [(channel, 0, 0) for channel in taps])
        shift = new.node("Concat", constants, axis=1)
        new.node("Add", [spread, shift], output=node.outputs[0])
