"""Deconvolutions.

Padding only: groups, dilation, and kernels and strides beyond the limits stay on the GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, rewrite


class Geometry(NamedTuple):
    """What a ConvTranspose does over height and width.

    Attributes:
        groups: Groups.
        kernel: Kernel.
        stride: Stride.
        dilation: Dilation.
        size: Of the input.
        target: Size of the output.
        begin: What is cropped at the beginning.
        end: What is cropped at the end.
        extra: Rows and columns that output_padding appends before that.
        bias: Its tensor; "" without one.
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
        """Size of the result before anything is cropped or appended."""
        spans = zip(self.stride, self.size, self.dilation, self.kernel, strict=True)
        return tuple(s * (i - 1) + d * (k - 1) + 1 for s, i, d, k in spans)

    @property
    def padded(self) -> bool:
        """Whether the result is cropped or appended to."""
        return any((*self.begin, *self.end, *self.extra))


def geometry(graph: RewriteGraph, node: Node) -> Geometry | None:
    """Returns the sizes of a ConvTranspose with constant weights.

    None if an activation holds its weights or its bias, where it has other spatial axes than
    height and width, negative padding, or an output beyond what the kernel and the stride reach
    (ONNX Runtime refuses the latter, so nothing could be proved).
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
    """Padding of a deconvolution only crops its result, so a Slice does the same.

    ``output_padding`` crops less at the end. Where it requires more rows or columns than the
    kernel reaches (they hold the bias alone), zeros after the kernel reach them.

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
