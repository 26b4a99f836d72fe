"""Convolutions with large strides in two steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.network._window import Window
from edgekit.rewrite._types import Match
from edgekit.rewrite.convolution._common import Conv, conv_of, within, write_conv
from edgekit.rewrite.convolution._split import Plan, write_plan
from edgekit.rewrite.convolution._strides import Blocks, Pooled, way_of

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["LargeStride"]


class LargeStride:
    """Conv with a stride over the limit -> two layers whose strides multiply to it.

    The patches of a vision transformer (16 x 16 with a stride of 16) become blocks of 8 x 8
    pixels as channels and a convolution of 2 x 2 on these; where multiplying is cheaper so, a
    convolution and a pooling of window 1. A stride with a prime factor over both limits stays.
    """

    name = "large-stride"
    reason = (
        "the DLA's convolutions have a limited stride; a larger one is two steps, whose strides "
        "multiply"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A 2-D Conv with constant weights and a stride over the limit."""
        conv = conv_of(graph, node)
        if conv is None or within("convolution.stride", *conv.size.stride):
            return None
        way = way_of(conv)
        return None if way is None else Match((node,), (conv, way))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """The way of the fewest multiplications."""
        conv, way = match.facts
        if isinstance(way, Plan):
            write_plan(new, conv, way, conv.node.inputs[0])
            return
        if isinstance(way, Blocks):
            _write_blocks(new, conv, way)
            return
        size = replace(conv.size, stride=way.stride)
        node = conv.node
        data, output = node.inputs[0], node.outputs[0]
        inputs = [node.inputs[1], conv.bias]
        if way.first:
            data = _pool(new, data, way, node.name, "")
            _conv(new, conv, [data, *inputs], size, output)
        else:
            made = _conv(new, conv, [data, *inputs], size, "")
            _pool(new, made, way, node.name, output)


def _conv(new: Writer, conv: Conv, inputs: list[str], size: Window, output: str) -> str:
    name = conv.node.name
    return write_conv(new, inputs, size, groups=conv.groups, output=output, name=name)


def _pool(new: Writer, data: str, way: Pooled, name: str, output: str) -> str:
    return new.node(
        "MaxPool",
        [data],
        output=output,
        name=f"{name}:every",
        kernel_shape=[1, 1],
        strides=list(way.pool),
    )


def _write_blocks(new: Writer, conv: Conv, way: Blocks) -> None:
    import numpy as np

    height, width, channels = way.height, way.width, conv.shape[1]
    area = height.block * width.block
    # channel c, row i, column j of a block become channel (c rows + i) columns + j
    ones = np.tile(np.eye(area).reshape(area, 1, height.block, width.block), (channels, 1, 1, 1))
    size = Window(
        (height.block, width.block),
        (height.block, width.block),
        (height.before, width.before, height.after, width.after),
        (1, 1),
    )
    name = conv.node.name
    inputs = [conv.node.inputs[0], new.constant(ones, role="blocks")]
    data = write_conv(new, inputs, size, groups=channels, name=f"{name}:blocks")
    on_blocks = Window(
        (height.kernel, width.kernel),
        (height.stride, width.stride),
        (height.pad_before, width.pad_before, height.pad_after, width.pad_after),
        (1, 1),
    )
    inputs = [data, _on_blocks(new, conv, way), conv.bias]
    _conv(new, conv, inputs, on_blocks, conv.node.outputs[0])


def _on_blocks(new: Writer, conv: Conv, way: Blocks) -> str:
    """The weights of the convolution on blocks, as a recipe."""
    weight = conv.node.inputs[1]
    maps, channels, rows, columns = conv.weight
    height, width = way.height, way.width
    missing = [height.kernel * height.block - rows, width.kernel * width.block - columns]
    if any(missing):
        weight = new.node("Pad", [weight, new.constant([0, 0, 0, 0, 0, 0, *missing])])
    apart = [maps, channels, height.kernel, height.block, width.kernel, width.block]
    weight = new.node("Reshape", [weight, new.constant(apart)])
    weight = new.node("Transpose", [weight], perm=[0, 1, 3, 5, 2, 4])
    area = height.block * width.block
    joined = new.constant([maps, channels * area, height.kernel, width.kernel])
    return new.node("Reshape", [weight, joined])
