"""Deconvolutions.

Left out, and why: deconvolutions of more channels than the limit (their tensors are too large for a
DLA themselves), over three axes (it has two), with weights computed while running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgekit.dla.rules import exceptions, limit
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import reshape

# A DLA multiplies 32 (INT8) or 16 (FP16) channels at once, so that zeros between fewer channels
# cost next to nothing; from twice as many on, parts save more than their slices cost ...
_FULL = 64
# ... unless they are too many: each is a slice and a deconvolution
_MOST_PARTS = 8


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


def kernel_fits(kernel: tuple[int, ...]) -> bool:
    """Whether the DLA's deconvolution takes a kernel."""
    return _fits(kernel, "kernel")


def stride_fits(stride: tuple[int, ...]) -> bool:
    """Whether the DLA's deconvolution takes a stride."""
    return _fits(stride, "stride")


def _fits(pair: tuple[int, ...], what: str) -> bool:
    low, high = limit(f"deconvolution.{what}")
    first, last = limit(f"deconvolution.square_{what}")
    if tuple(pair) in exceptions(f"deconvolution.{what}"):
        return True
    square = len(set(pair)) == 1 and first <= pair[0] <= last
    return not square and all(low <= side <= high for side in pair)


@rewrite(
    "deconv-1d",
    operators=("ConvTranspose",),
    reason=(
        "The DLA runs deconvolutions over height and width only; a one-dimensional one has a "
        "width of 1"
    ),
    enabling=True,
)
def deconv_1d(graph: RewriteGraph, node: Node) -> Replacement:
    """[N, C, L] is [N, C, L, 1] between Reshapes, which meet others on their way and vanish.

    At a ConvTranspose of a tensor [N, C, L] with constant weights.
    """
    found = geometry(graph, node)
    if found is None or len(found.kernel) != 1:
        return
    new = yield (node,)
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


@rewrite(
    "deconv-dilation",
    operators=("ConvTranspose",),
    reason="The DLA runs deconvolutions without dilation only; zeros between the weights have the "
    "same effect",
    enabling=True,
)
def deconv_dilation(graph: RewriteGraph, node: Node) -> Replacement:
    """A dilated kernel is a larger kernel with zeros.

    A kernel that would be larger than the DLA's limit stays as it is: split into parts it would
    cost more than the GPU needs for it.

    At a dilated ConvTranspose over H and W whose kernel may become that large.
    """
    found = geometry(graph, node)
    if found is None or len(found.kernel) != 2 or set(found.dilation) == {1}:
        return
    _, most = limit("deconvolution.kernel")
    spread = tuple(d * (k - 1) + 1 for d, k in zip(found.dilation, found.kernel, strict=True))
    if max(spread) > most:
        return
    new = yield (node,)
    (height, width), (down, across) = found.kernel, found.dilation
    outer = list(graph.shape(node.inputs[1])[:2])
    # after every row and every column as many zeros as the dilation skips
    apart = reshape(new, node.inputs[1], [*outer, height, 1, width, 1])
    zeros = [0] * 6 + [0, 0, 0, down - 1, 0, across - 1]
    padded = new.node("Pad", [apart, new.constant(zeros, role="pads")])
    whole = reshape(new, padded, [*outer, height * down, width * across])
    numbers = [[0, 0], list(spread), [2, 3]]
    ends = [new.constant(part, role="slice") for part in numbers]
    weight = new.node("Slice", [whole, *ends])
    gone = {"dilations", "kernel_shape"}
    attrs = {key: value for key, value in node.attrs.items() if key not in gone}
    read = [node.inputs[0], weight, *([found.bias] if found.bias else [])]
    new.node("ConvTranspose", read, output=node.outputs[0], **attrs)


@rewrite(
    "deconv-groups",
    operators=("ConvTranspose",),
    reason="The DLA runs deconvolutions of one group only; zeros between the groups' weights merge "
    "all groups into one",
    enabling=True,
)
def deconv_groups(graph: RewriteGraph, node: Node) -> Replacement:
    """Weights between channels of different groups are zero in a deconvolution of one group.

    So many groups become one deconvolution that its channels fill the hardware; what is left are
    parts, cut by Slice along C and put together by Concat.

    At a grouped ConvTranspose over H and W.
    """
    found = geometry(graph, node)
    if found is None or len(found.kernel) != 2 or found.groups == 1:
        return
    new = yield (node,)
    weight, bias = node.inputs[1], found.bias
    merged = _merged(found.groups, found.channels // found.groups)
    parts = found.groups // merged
    before, after = found.channels // parts, found.maps // parts
    attrs = {key: value for key, value in node.attrs.items() if key != "group"}
    mask = _mask(new, merged, before, after, weight)
    if parts == 1:
        dense = _dense(new, weight, merged, mask)
        read = [node.inputs[0], dense, *([bias] if bias else [])]
        new.node("ConvTranspose", read, output=node.outputs[0], **attrs)
        return
    made = []
    for part in range(parts):
        source = _slice(new, node.inputs[0], 1, part * before, before)
        own = _dense(new, _slice(new, weight, 0, part * before, before), merged, mask)
        read = [source, own]
        if bias:
            read.append(_slice(new, bias, 0, part * after, after))
        name = node.name if part == 0 else f"{node.name}:{part}"
        made.append(new.node("ConvTranspose", read, name=name, **attrs))
    name = f"{node.name}:concat"
    new.node("Concat", made, output=node.outputs[0], name=name, axis=1)


def _merged(groups: int, channels: int) -> int:
    """How many groups, of so many input channels each, become one."""
    for merged in range(1, groups):
        fits = groups % merged == 0 and groups // merged <= _MOST_PARTS
        if fits and merged * channels >= _FULL:
            return merged
    return groups


def _mask(new: Writer, merged: int, before: int, after: int, like: str) -> str:
    """Ones where an input channel and an output map are of the same group."""
    if merged == 1:
        return ""
    new.check_size(before, after)
    ones = np.ones((before // merged, after // merged))
    blocks = np.kron(np.eye(merged), ones)
    return new.constant(blocks.reshape(before, after, 1, 1), like=like, role="blocks")


def _dense(new: Writer, weight: str, merged: int, mask: str) -> str:
    if not mask:
        return weight
    tiled = new.node("Tile", [weight, new.constant([1, merged, 1, 1], role="repeats")])
    return new.node("Mul", [tiled, mask])


def _slice(new: Writer, source: str, axis: int, start: int, count: int) -> str:
    numbers = [new.constant([value], role="slice") for value in (start, start + count, axis)]
    return new.node("Slice", [source, *numbers])


@rewrite(
    "deconv-large-stride",
    operators=("ConvTranspose",),
    reason="The DLA has no deconvolutions with square strides of 23 to 32 or strides over 32; "
    "zeros between the input's rows and columns replace a factor of the stride",
    enabling=True,
)
def deconv_large_stride(graph: RewriteGraph, node: Node) -> Replacement:
    """A stride of a * b is a deconvolution with stride a of the input with b - 1 zeros between.

    The zeros come from a deconvolution with a 1x1 kernel of ones (the identity) and stride b. A
    square stride that TensorRT disables needs it along the width only. What is multiplied grows
    by b, so b is the smallest factor that helps; a stride over the limit with no such factor
    stays as it is.

    At a plain ConvTranspose whose stride the DLA refuses but for a factor.
    """
    found = geometry(graph, node)
    if found is None or not found.plain or stride_fits(found.stride):
        return
    factors = _factors(found.stride)
    if factors is None:
        return
    new = yield (node,)
    new.check_size(found.channels, found.channels)
    eye = np.eye(found.channels).reshape(found.channels, found.channels, 1, 1)
    same = new.constant(eye, like=node.inputs[0], role="same")
    name = f"{node.name}:spread"
    spread = deconvolve(new, node.inputs[0], same, "", factors, name=name)
    rest = tuple(s // f for s, f in zip(found.stride, factors, strict=True))
    output = node.outputs[0]
    deconvolve(new, spread, node.inputs[1], found.bias, rest, output=output)


def _factors(stride: tuple[int, ...]) -> tuple[int, ...] | None:
    _, most = limit("deconvolution.stride")
    found = [
        next((f for f in range(1, most + 1) if s % f == 0 and s // f <= most), 0) for s in stride
    ]
    if 0 in found:
        return None
    rest = tuple(s // f for s, f in zip(stride, found, strict=True))
    if not stride_fits(rest) or not stride_fits(tuple(found)):
        # a square: the width takes one factor more
        more = next(f for f in range(2, rest[1] + 1) if rest[1] % f == 0)
        found[1] *= more
        rest = (rest[0], rest[1] // more)
    return tuple(found) if stride_fits(rest) and stride_fits(tuple(found)) else None


@dataclass(frozen=True, slots=True)
class _Parts:
    """How the kernel is cut along one axis.

    Attributes:
        count: Parts.
        step: By how many rows of the input one part lies after another.
        size: Rows of the kernel in a part.
    """

    count: int
    step: int
    size: int

    @property
    def reach(self) -> int:
        """Rows from the first part's input to the last one's, both included."""
        return self.step * (self.count - 1) + 1


@rewrite(
    "deconv-large-kernel",
    operators=("ConvTranspose",),
    reason="The DLA has no deconvolutions with square kernels of 23 to 32 or kernels over 32; "
    "parts of the kernel read the input shifted by whole rows, as channels of one deconvolution",
)
def deconv_large_kernel(graph: RewriteGraph, node: Node) -> Replacement:
    """A large kernel is cut into parts that lie whole steps of the stride apart.

    Part j of stride * t rows adds to the result what a deconvolution with that part makes of the
    input moved down by j * t rows. A convolution with weights of zeros and ones puts the moved
    inputs one after the other as channels, and one deconvolution with the parts as channels sums
    them all: no larger sums, no larger values than before. A square kernel that TensorRT
    disables (23 to 32) gets one column of zeros instead where that fits, and a Slice.

    A part has at least the stride's rows, so a stride over the kernel's limit is left.

    At a plain ConvTranspose whose kernel the DLA refuses and parts of it do not.
    """
    found = geometry(graph, node)
    if found is None or not found.plain or kernel_fits(found.kernel):
        return
    end = cropped(graph, node.outputs[0])
    nodes, begin = ((node, end[0]), end[1]) if end else ((node,), (0, 0))
    wider = (found.kernel[0], found.kernel[1] + 1)
    widens = kernel_fits(wider)
    parts = None if widens else _parts(found)
    if not widens and parts is None:
        return
    new = yield nodes
    last = nodes[-1]
    source, weight, output = node.inputs[0], node.inputs[1], last.outputs[0]
    if parts is None:
        weight = new.node("Pad", [weight, new.constant([0] * 7 + [1], role="pads")])
        size: tuple[int, ...] = (found.full[0], found.full[1] + 1)
    else:
        source = _moved(new, node, found, parts)
        weight = _cut_kernel(new, weight, found, parts)
        spans = zip(found.stride, found.size, parts, strict=True)
        size = tuple(s * (i - 1) + p.count * p.size for s, i, p in spans)
    target = tuple(graph.shape(output)[2:])
    whole = output if size == target else ""
    made = deconvolve(new, source, weight, found.bias, found.stride, output=whole, name=node.name)
    if not whole:
        name = last.name if last is not node else f"{node.name}:slice"
        crop(new, made, size, begin, target, output=output, name=name)


def _parts(found: Geometry) -> tuple[_Parts, ...] | None:
    """Parts of each axis; None if the DLA lacks the kernel that they would have."""
    _, most = limit("deconvolution.kernel")
    _, moves = limit("convolution.kernel")
    down = _along(found.kernel[0], found.stride[0], most)
    across = _along(found.kernel[1], found.stride[1], most)
    if down and across and not kernel_fits((down.size, across.size)):
        # a square again: shorter parts along the width
        across = _along(found.kernel[1], found.stride[1], across.size - 1)
    if down is None or across is None or not kernel_fits((down.size, across.size)):
        return None
    return (down, across) if max(down.reach, across.reach) <= moves else None


def _along(kernel: int, stride: int, most: int) -> _Parts | None:
    if kernel <= most:
        return _Parts(1, 1, kernel)
    if stride > most:
        return None
    count = -(-kernel // (most // stride * stride))
    step = -(-kernel // (stride * count))
    return _Parts(-(-kernel // (stride * step)), step, stride * step)


def _moved(new: Writer, node: Node, found: Geometry, parts: tuple[_Parts, ...]) -> str:
    """The input once for each part, moved by the part's place; C-major."""
    down, across = parts
    one = np.zeros((down.count, across.count, 1, down.reach, across.reach))
    for j in range(down.count):
        for k in range(across.count):
            # the padded input begins with reach - 1 zeros: this tap is j * step rows before it
            one[j, k, 0, down.reach - 1 - j * down.step, across.reach - 1 - k * across.step] = 1
    each = one.reshape(-1, 1, down.reach, across.reach)
    moves = np.tile(each, (found.channels, 1, 1, 1))
    pads = [down.reach - 1, across.reach - 1] * 2
    return new.node(
        "Conv",
        [node.inputs[0], new.constant(moves, like=node.inputs[0], role="moves")],
        name=f"{node.name}:moved",
        pads=pads,
        group=found.channels,
    )


def _cut_kernel(new: Writer, weight: str, found: Geometry, parts: tuple[_Parts, ...]) -> str:
    """The kernel's parts as further input channels: recipe of the weights."""
    down, across = parts
    sizes = [down.count * down.size, across.count * across.size]
    lack = [size - kernel for size, kernel in zip(sizes, found.kernel, strict=True)]
    if any(lack):
        weight = new.node("Pad", [weight, new.constant([0] * 6 + lack, role="pads")])
    apart = [found.channels, found.maps, down.count, down.size, across.count, across.size]
    split = new.node("Reshape", [weight, new.constant(apart, role="shape")])
    turned = new.node("Transpose", [split], perm=[0, 2, 4, 1, 3, 5])
    channels = found.channels * down.count * across.count
    shape = [channels, found.maps, down.size, across.size]
    return new.node("Reshape", [turned, new.constant(shape, role="shape")])
