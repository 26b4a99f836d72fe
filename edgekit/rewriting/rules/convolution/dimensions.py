"""Convolutions of one and three dimensions as two-dimensional ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgekit.network.windows import KernelWindow
from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.convolution.geometry import Conv, conv_of, write_conv

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


class Conv1d:
    """Conv on [N, C, L] -> Conv of [k, 1] on [N, C, L, 1], between reshapes.

    TensorRT does the same inside; in the model the reshapes can move away.
    """

    name = "conv-1d"
    reason = (
        "DLA layers read four dimensions: a sequence [N, C, L] is taken as an image [N, C, L, 1], "
        "so that the reshapes around each convolution can go"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Conv of one spatial axis with constant weights."""
        conv = conv_of(graph, node, spatial=1)
        return None if conv is None else Match((node,), conv)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Reshape, Conv, Reshape."""
        conv, node = match.facts, match.nodes[0]
        wide = new.constant([*conv.shape, 1])
        data = new.node("Reshape", [node.inputs[0], wide], name=f"{node.name}:image")
        weight = new.node("Reshape", [node.inputs[1], new.constant([*conv.weight, 1])])
        size = conv.size
        window = KernelWindow(
            (*size.kernel, 1),
            (*size.stride, 1),
            (size.pads[0], 0, size.pads[1], 0),
            (*size.dilation, 1),
        )
        inputs = [data, weight, conv.bias]
        made = write_conv(new, inputs, window, groups=conv.groups, name=node.name)
        narrow = new.constant(list(conv.target))
        new.node("Reshape", [made, narrow], output=node.outputs[0], name=f"{node.name}:sequence")


class _Flat(NamedTuple):
    """The same convolution over images: shapes of input and weights, and its window."""

    conv: Conv
    shape: tuple[int, ...]
    weight: tuple[int, ...]
    size: KernelWindow


class Conv3d:
    """Conv on [N, C, D, H, W] -> a 2-D Conv between reshapes, where that is the same.

    It is where the kernel spans the whole depth (depth 1 among them): depth becomes channels; and
    where two neighbouring axes have a kernel of 1, stride 1 and no padding: they become one. Other
    kernels would need a two-dimensional convolution of depth times the channels, with most weights
    zero, and stay.
    """

    name = "conv-3d"
    reason = (
        "the DLA has only two-dimensional convolutions; one whose kernel spans the whole depth, "
        "or has size 1 along two axes, is two-dimensional in effect"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Conv of three spatial axes that has a two-dimensional form."""
        conv = conv_of(graph, node, spatial=3)
        flat = None if conv is None else _whole_depth(conv) or _joined(conv)
        return None if flat is None else Match((node,), flat)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Reshape, Conv, Reshape."""
        flat, node = match.facts, match.nodes[0]
        shape = new.constant(list(flat.shape))
        data = new.node("Reshape", [node.inputs[0], shape], name=f"{node.name}:image")
        weight = new.node("Reshape", [node.inputs[1], new.constant(list(flat.weight))])
        inputs = [data, weight, flat.conv.bias]
        made = write_conv(new, inputs, flat.size, groups=flat.conv.groups, name=node.name)
        volume = new.constant(list(flat.conv.target))
        new.node("Reshape", [made, volume], output=node.outputs[0], name=f"{node.name}:volume")


def _axes(size: KernelWindow, *axes: int) -> KernelWindow:
    """The window over some of the three axes."""
    pads = (*(size.pads[a] for a in axes), *(size.pads[a + 3] for a in axes))
    chosen = [tuple(of[a] for a in axes) for of in (size.kernel, size.stride, size.dilation)]
    return KernelWindow(chosen[0], chosen[1], pads, chosen[2])


def _whole_depth(conv: Conv) -> _Flat | None:
    batch, channels, depth, height, width = conv.shape
    size = conv.size
    if size.kernel[0] != depth or size.pads[0] or size.pads[3] or size.dilation[0] != 1:
        return None
    weight = (conv.weight[0], conv.weight[1] * depth, *conv.weight[3:])
    return _Flat(conv, (batch, channels * depth, height, width), weight, _axes(size, 1, 2))


def _joined(conv: Conv) -> _Flat | None:
    batch, channels, depth, height, width = conv.shape
    plain = [
        conv.size.kernel[a] == 1
        and conv.size.stride[a] == 1
        and not (conv.size.pads[a] or conv.size.pads[a + 3])
        for a in range(3)
    ]
    if plain[0] and plain[1]:
        shape, axes = (batch, channels, depth * height, width), (1, 2)
    elif plain[1] and plain[2]:
        shape, axes = (batch, channels, depth, height * width), (0, 1)
    else:
        return None
    size = _axes(conv.size, *axes)
    return _Flat(conv, shape, (*conv.weight[:2], *size.kernel), size)
