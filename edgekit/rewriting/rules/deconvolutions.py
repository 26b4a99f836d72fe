"""Deconvolutions.

Left out, and why: deconvolutions of more channels than the limit (their tensors are too large for a
DLA themselves), over three axes (it has two), with weights computed while running.
"""

from __future__ import annotations

from typing import NamedTuple

from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite


class Geometry(NamedTuple):
    """What a ConvTranspose does, by its spatial axes (one or two).

    Attributes:
        channels: Of the input.
        maps: Of the output.
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

    channels: int
    maps: int
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

    @property
    def plain(self) -> bool:
        """Whether it has one group, no padding and no dilation, over two axes."""
        return (
            len(self.kernel) == 2
            and not self.padded
            and self.groups == 1
            and set(self.dilation) == {1}
        )


def geometry(graph: RewriteGraph, node: Node) -> Geometry | None:
    """Returns the sizes of a ConvTranspose with constant weights.

    None if an activation holds its weights or its bias, where it has more than two spatial
    axes, negative padding, or an output beyond what the kernel and the stride reach (ONNX Runtime
    refuses the latter, so nothing could be proved).
    """
    source, weight, bias = node.input(0), node.input(1), node.input(2)
    if not graph.floats(source) or graph.rank(source) not in {3, 4}:
        return None
    if not graph.constant(weight) or (bias and not graph.constant(bias)):
        return None
    rank = graph.rank(source) - 2
    given = node.attrs
    groups = int(given.get("group", 1))
    size, target = graph.shape(source)[2:], graph.shape(node.outputs[0])[2:]
    kernel = tuple(graph.shape(weight)[2:])
    stride = tuple(given.get("strides") or (1,) * rank)
    dilation = tuple(given.get("dilations") or (1,) * rank)
    extra = tuple(given.get("output_padding") or (0,) * rank)
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
        pads = tuple(given.get("pads") or (0,) * (2 * rank)) if auto != "VALID" else (0,) * 2 * rank
        begin, end = pads[:rank], pads[rank:]
    left = [r - b - e for r, b, e in zip(reach, begin, end, strict=True)]
    if min(*begin, *end, *extra) < 0 or left != list(target):
        return None
    if any(e >= s for e, s in zip(extra, stride, strict=True)):
        return None
    channels, maps = graph.shape(source)[1], graph.shape(weight)[1] * groups
    return Geometry(
        channels, maps, groups, kernel, stride, dilation, tuple(size), tuple(target),
        begin, end, extra, bias,
    )  # fmt: skip


def deconvolve(
    new: Writer,
    source: str,
    weight: str,
    bias: str,
    stride: tuple[int, ...],
    *,
    dilation: tuple[int, ...] = (),
    groups: int = 1,
    output: str = "",
    name: str = "",
    role: str = "",
) -> str:
    """Writes a ConvTranspose without padding and returns its output; kernels go by the weights."""
    return new.node(
        "ConvTranspose",
        [source, weight, bias] if bias else [source, weight],
        output=output,
        name=name,
        role=role,
        strides=list(stride),
        dilations=list(dilation) if any(d != 1 for d in dilation) else None,
        group=groups if groups != 1 else None,
    )


def crop(
    new: Writer,
    source: str,
    size: tuple[int, ...],
    begin: tuple[int, ...],
    target: tuple[int, ...],
    *,
    output: str,
    name: str,
) -> str:
    """Writes a Slice of the spatial axes that it shortens and returns its output.

    Args:
        new: Where to.
        source: Tensor [N, C, *size].
        size: Its spatial size, another than ``target``.
        begin: First row, first column.
        target: Rows, columns that stay.
        output: Tensor to write.
        name: The node's name.
    """
    axes = [a for a in range(len(size)) if size[a] != target[a]]
    numbers = [
        [begin[a] for a in axes],
        [begin[a] + target[a] for a in axes],
        [a + 2 for a in axes],
    ]
    read = [new.constant(part, role="slice") for part in numbers]
    return new.node("Slice", [source, *read], output=output, name=name)


def cropped(graph: RewriteGraph, tensor: str) -> tuple[Node, tuple[int, int]] | None:
    """Returns the Slice of H and W that alone reads a tensor [N, C, H, W], and where it begins."""
    reader = graph.only_reader(tensor)
    if reader is None or reader.op != "Slice" or reader.inputs[0] != tensor:
        return None
    starts, axes, steps = (graph.ints(reader.input(index)) for index in (1, 3, 4))
    if starts is None or axes is None or min(*starts, *axes) < 0 or not set(axes) <= {2, 3}:
        return None
    if reader.input(4) and (steps is None or set(steps) != {1}):
        return None
    begin = dict(zip(axes, starts, strict=True))
    return reader, (begin.get(2, 0), begin.get(3, 0))


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
    if found is None or len(found.kernel) != 2 or not found.padded:
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


