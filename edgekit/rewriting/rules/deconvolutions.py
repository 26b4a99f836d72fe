"""Deconvolutions with padding or groups.

Dilation, and kernels and strides beyond the limits, stay on the GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, rewrite

# A DLA multiplies 32 (INT8) or 16 (FP16) channels at once, so zeros between fewer channels cost
# little; from twice as many channels on, parts save more than their slices cost ...
_FULL = 64
# ... unless there are too many parts: each is a slice and a deconvolution
_MOST_PARTS = 8


class Geometry(NamedTuple):
    """The parameters of a ConvTranspose over height and width.

    Attributes:
        groups: Groups.
        kernel: Kernel.
        stride: Stride.
        dilation: Dilation.
        size: Size of the input.
        target: Size of the output.
        begin: Rows and columns cropped at the beginning.
        end: Rows and columns cropped at the end.
        extra: Rows and columns that output_padding appends before the crop.
        bias: The bias tensor; "" if there is none.
    """

    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    size: tuple[int, ...]
    target: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    extra: tuple[int, ...]
    bias: str

    @property
    def full(self) -> tuple[int, ...]:
        """Size of the result before cropping and appending."""
        spans = zip(self.stride, self.size, self.dilation, self.kernel, strict=True)
        return tuple(s * (i - 1) + d * (k - 1) + 1 for s, i, d, k in spans)

    @property
    def padded(self) -> bool:
        """True if the result is cropped or appended to."""
        return any((*self.begin, *self.end, *self.extra))


def geometry(graph: RewriteGraph, node: Node) -> Geometry | None:
    """Returns the sizes of a ConvTranspose with constant weights.

    None if its weights or its bias are an activation, and for other spatial axes than height and
    width, negative padding, or an output beyond the reach of kernel and stride (ONNX Runtime
    refuses the latter, so a proof is impossible).
    """
    source, weight, bias = node.input(0), node.input(1), node.input(2)
    if not graph.floats(source) or graph.rank(source) != 4:
        return None
    if not graph.constant(weight) or (bias and not graph.constant(bias)):
        return None
    given = node.attrs
    size, target = graph.shape(source)[2:], graph.shape(node.outputs[0])[2:]
    kernel = tuple(graph.shape(weight)[2:])
    stride = tuple(given.get("strides") or (1, 1))
    dilation = tuple(given.get("dilations") or (1, 1))
    extra = tuple(given.get("output_padding") or (0, 0))
    spans = zip(stride, size, dilation, kernel, extra, strict=True)
    reach = [s * (i - 1) + d * (k - 1) + 1 + e for s, i, d, k, e in spans]
    auto = str(given.get("auto_pad", "NOTSET"))
    # ONNX computes the padding from the output's size
    if "output_shape" in given or auto.startswith("SAME"):
        totals = [r - t for r, t in zip(reach, target, strict=True)]
        less = tuple(total // 2 for total in totals)
        more = tuple(total - half for total, half in zip(totals, less, strict=True))
        # ONNX puts the odd element at the end only for SAME_UPPER
        begin, end = (less, more) if auto == "SAME_UPPER" else (more, less)
    else:
        pads = tuple(given.get("pads") or (0,) * 4) if auto != "VALID" else (0,) * 4
        begin, end = pads[:2], pads[2:]
    left = [r - b - e for r, b, e in zip(reach, begin, end, strict=True)]
    if min(*begin, *end, *extra) < 0 or left != list(target):
        return None
    if any(e >= s for e, s in zip(extra, stride, strict=True)):
        return None
    groups = int(given.get("group", 1))
    return Geometry(
        groups, kernel, stride, dilation, tuple(size), tuple(target), begin, end, extra, bias
    )


@rewrite(
    "deconv-padding",
    operators=("ConvTranspose",),
    reason="The DLA runs deconvolutions without padding only; padding crops the result, and a "
    "slice does the same",
    enabling=True,
)
def deconv_padding(graph: RewriteGraph, node: Node) -> Replacement:
    """Replaces a deconvolution's padding, which only crops its result, by a Slice.

    ``output_padding`` crops less at the end. If it requires more rows or columns than the kernel
    reaches (they contain only the bias), the kernel is extended by zeros.

    At a ConvTranspose over H and W with padding of any kind.
    """
    found = geometry(graph, node)
    if found is None or not found.padded:
        return
    new = yield (node,)
    ends = [b + t for b, t in zip(found.begin, found.target, strict=True)]
    lacks = [max(end - full, 0) for end, full in zip(ends, found.full, strict=True)]
    taps = [-(-lack // d) for lack, d in zip(lacks, found.dilation, strict=True)]
    weight = node.inputs[1]
    if any(taps):
        pads = new.constant([0, 0, 0, 0, 0, 0, *taps], role="pads")
        weight = new.node("Pad", [weight, pads])
    # a tap more reaches a dilation further
    size = tuple(f + d * t for f, d, t in zip(found.full, found.dilation, taps, strict=True))
    exact = size == found.target
    made = new.node(
        "ConvTranspose",
        [node.inputs[0], weight, found.bias] if found.bias else [node.inputs[0], weight],
        output=node.outputs[0] if exact else "",
        name=node.name,
        strides=list(found.stride),
        dilations=list(found.dilation) if any(d != 1 for d in found.dilation) else None,
        group=found.groups if found.groups != 1 else None,
    )
    if exact:
        return
    axes = [a for a in range(2) if size[a] != found.target[a]]
    starts, stops = [found.begin[a] for a in axes], [ends[a] for a in axes]
    bounds = [new.constant(part, role="slice") for part in (starts, stops, [a + 2 for a in axes])]
    new.node("Slice", [made, *bounds], output=node.outputs[0], name=f"{node.name}:slice")


@rewrite(
    "deconv-groups",
    operators=("ConvTranspose",),
    reason="The DLA runs deconvolutions of one group only; zeros between the groups' weights merge "
    "all groups into one",
    enabling=True,
)
def deconv_groups(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a deconvolution of one group, with zero weights between channels of different groups.

    Merges as many groups into a deconvolution as fill the hardware with channels. If groups are
    left, each part reads a Slice along C, and a Concat joins the parts.

    At a grouped ConvTranspose over H and W: the depthwise upsampling of CenterNet and FairMOT, and
    of NVIDIA's YOLOv5 for the DLA, which uses it instead of Resize.
    """
    found = geometry(graph, node)
    if found is None or found.groups == 1:
        return
    new = yield (node,)
    weight, bias = node.inputs[1], found.bias
    channels = graph.shape(node.inputs[0])[1]
    merged = _merged_groups(found.groups, channels // found.groups)
    parts = found.groups // merged
    before, after = channels // parts, graph.shape(node.outputs[0])[1] // parts
    attrs = {key: value for key, value in node.attrs.items() if key != "group"}
    blocks = np.kron(np.eye(merged), np.ones((before // merged, after // merged)))
    if merged > 1:
        new.check_size(before, after)
        mask = new.constant(blocks.reshape(before, after, 1, 1), like=weight, role="blocks")
    made = []
    for part in range(parts):
        read = [node.inputs[0], weight, *([bias] if bias else [])]
        if parts > 1:
            first = part * before
            cuts = ((1, first, before), (0, first, before), (0, part * after, after))
            for place, (axis, start, count) in enumerate(cuts[: len(read)]):
                numbers = (start, start + count, axis)
                bounds = [new.constant([value], role="slice") for value in numbers]
                read[place] = new.node("Slice", [read[place], *bounds])
        if merged > 1:
            # every group's weights at every group's maps; the mask keeps those at their own
            tiled = new.node("Tile", [read[1], new.constant([1, merged, 1, 1], role="repeats")])
            read[1] = new.node("Mul", [tiled, mask])
        name = node.name if part == 0 else f"{node.name}:{part}"
        output = node.outputs[0] if parts == 1 else ""
        made.append(new.node("ConvTranspose", read, output=output, name=name, **attrs))
    if parts > 1:
        new.node("Concat", made, output=node.outputs[0], name=f"{node.name}:concat", axis=1)


def _merged_groups(groups: int, channels: int) -> int:
    """Returns the number of groups, of ``channels`` input channels each, that become one."""
    for merged in range(1, groups):
        fits = groups % merged == 0 and groups // merged <= _MOST_PARTS
        if fits and merged * channels >= _FULL:
            return merged
    return groups
