"""Convolutions beyond a limit of the DLA as sums of convolutions within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

from edgekit.dla.memory import cbuf_banks
from edgekit.dla.rules import limit
from edgekit.network.windows import KernelWindow
from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.convolution.geometry import (
    Conv,
    banks_available,
    conv_of,
    within,
    write_conv,
    write_zeros,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


# Parts of a kernel along one axis, each a convolution of its own on some of the rows.
#
# A tap ``j`` of a kernel reads, for output ``o``, row ``o s + j d - p`` (stride s, dilation d,
# padding p before the first row). Taps ``first`` to ``stop`` alone are a convolution that reads
# rows from ``first d - p`` on: what is negative is padding, what is positive need not be read.
# Their sum over all parts is the whole convolution.


# parts along one axis that are tried
_MOST_PARTS = 16
# taps of a part for which one tap of zero instead of a slice may be added
_TAPS_PER_ZERO = 8


class KernelAxis(NamedTuple):
    """One axis of a convolution.

    Attributes:
        size: Rows of the input.
        out: Rows of the output.
        kernel: Taps.
        stride: Rows from one output to the next.
        dilation: Rows from one tap to the next.
        before: Padding before the first row.
        after: Padding after the last row.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def padded(self, before: int, after: int) -> KernelAxis:
        """The axis after rows of zeros were put there by another layer."""
        size = self.size + before + after
        return self._replace(size=size, before=self.before - before, after=self.after - after)


class KernelPart(NamedTuple):
    """Some taps of a kernel as a convolution of their own.

    Attributes:
        first: First tap.
        stop: One beyond the last tap.
        lead: Taps of zero in front of them.
        tail: Taps of zero after them.
        start: First row that it reads.
        end: One beyond the last row that it reads.
        before: Padding before these rows.
        after: Padding after them.
        stride: Of the convolution.
        dilation: Of the convolution; 1 where it has one tap.
    """

    first: int
    stop: int
    lead: int
    tail: int
    start: int
    end: int
    before: int
    after: int
    stride: int
    dilation: int

    @property
    def kernel(self) -> int:
        """Taps, those of zero among them."""
        return self.stop - self.first + self.lead + self.tail

    def fits(self) -> bool:
        """Whether the DLA takes kernel, padding and dilation."""
        return (
            within("convolution.kernel", self.kernel)
            and within("convolution.padding", self.before, self.after)
            and within("convolution.dilation", self.dilation)
            and max(self.before, self.after) <= (self.kernel - 1) * self.dilation
        )


def axes_of(
    shape: tuple[int, ...], target: tuple[int, ...], window: tuple[tuple[int, ...], ...]
) -> tuple[KernelAxis, KernelAxis]:
    """Returns both axes of a convolution; ``window`` is (kernel, stride, pads, dilation)."""
    kernel, stride, pads, dilation = window
    made = [
        KernelAxis(
            shape[a + 2], target[a + 2], kernel[a], stride[a], dilation[a], pads[a], pads[a + 2]
        )
        for a in range(2)
    ]
    return made[0], made[1]


def _part(axis: KernelAxis, first: int, stop: int) -> KernelPart | None:
    """Taps first to stop; None when they read nothing but padding."""
    step, taps, lead, tail = axis.dilation, stop - first, 0, 0
    low = first * step - axis.before
    high = (axis.out - 1) * axis.stride + (stop - 1) * step + 1 - axis.before
    if high <= 0 or low >= axis.size:
        return None
    if low > 0 and low % step == 0 and _free(taps, low // step):
        lead, low = low // step, 0
    # the stride of a single output does not matter
    stride = axis.stride if axis.out > 1 or within("convolution.stride", axis.stride) else 1
    # fewer unused rows than a stride make no further output
    spare = -(-(axis.size - high - stride + 1) // step)
    if spare > 0 and _free(taps + lead, spare):
        tail, high = spare, high + spare * step
    while True:
        reach = (taps + lead + tail - 1) * step
        if -low > reach:
            tail, high = tail + 1, high + step
        elif high - axis.size > reach:
            lead, low = lead + 1, low - step
        else:
            break
    end = axis.size if axis.size - high < stride else high
    return KernelPart(
        first,
        stop,
        lead,
        tail,
        max(low, 0),
        end,
        max(-low, 0),
        max(high - end, 0),
        stride,
        step if taps + lead + tail > 1 else 1,
    )


def _free(taps: int, zeros: int) -> bool:
    """Whether taps of zero are better than a slice."""
    return zeros * _TAPS_PER_ZERO <= taps and within("convolution.kernel", taps + zeros)


def parts_of(axis: KernelAxis, count: int) -> list[KernelPart]:
    """Returns the kernel in ``count`` parts as equal as can be, without those that read nothing."""
    bounds = [axis.kernel * index // count for index in range(count + 1)]
    made = [_part(axis, a, b) for a, b in pairwise(bounds)]
    return [part for part in made if part is not None]


def ways(
    axis: KernelAxis, fits: Callable[[KernelPart], bool] = KernelPart.fits
) -> Iterator[tuple[tuple[int, int], list[KernelPart]]]:
    """Yields ways to split an axis: rows of zeros to put there before, and the parts.

    At most one for each amount of zeros: none, as many as make the padding allowed, all of it.
    """
    most = limit("convolution.padding")[1]
    excess = (max(axis.before - most, 0), max(axis.after - most, 0))
    for zeros in dict.fromkeys([(0, 0), excess, (axis.before, axis.after)]):
        padded = axis.padded(*zeros)
        for count in range(1, min(axis.kernel, _MOST_PARTS) + 1):
            parts = parts_of(padded, count)
            if parts and all(fits(part) for part in parts):
                yield zeros, parts
                break


# parts along the channels that are tried
_MOST_CHANNEL_PARTS = 16


class SplitPlan(NamedTuple):
    """How a convolution is split.

    Attributes:
        zeros: Rows and columns of zeros that other layers put around the input before: (before,
            after) of the height, then of the width.
        rows: Parts of the kernel's height.
        columns: Parts of its width.
        channels: Bounds of the parts of the input channels.
    """

    zeros: tuple[tuple[int, int], tuple[int, int]]
    rows: list[KernelPart]
    columns: list[KernelPart]
    channels: list[int]

    def layers(self, shape: tuple[int, ...]) -> int:
        """Layers that it takes: convolutions, sums, slices and layers of zeros."""
        parts = len(self.rows) * len(self.columns) * (len(self.channels) - 1)
        slices = len({key for *_, key in _pieces(self, shape) if key})
        return 2 * parts - 1 + slices + sum(any(pair) for pair in self.zeros)


def banks(conv: Conv) -> int:
    """Banks of the convolution buffer that a convolution takes in FP16."""
    kernel = (conv.size.kernel[0], conv.size.kernel[1])
    shape = conv.shape
    return cbuf_banks(shape[1], kernel, conv.size.dilation[0], shape[3], "fp16", conv.groups)


def plan_of(conv: Conv) -> SplitPlan | None:
    """Returns the split of the fewest layers that keeps to every limit of the DLA; None if none."""
    size = conv.size
    height, width = axes_of(
        conv.shape, conv.target, (size.kernel, size.stride, size.pads, size.dilation)
    )
    best: SplitPlan | None = None
    for zeros_w, columns in ways(width):
        widest = max(part.end - part.start for part in columns)
        kernel_w = max(part.kernel for part in columns)
        for bounds in _channel_bounds(conv):
            parts = len(columns) * (len(bounds) - 1)
            if best is not None and 2 * parts - 1 >= best.layers(conv.shape):
                break
            most = max(b - a for a, b in pairwise(bounds))
            fits = partial(_fits, channels=most, kernel=kernel_w, width=widest, groups=conv.groups)
            for zeros_h, rows in ways(height, fits):
                plan = SplitPlan((zeros_h, zeros_w), rows, columns, bounds)
                if best is None or plan.layers(conv.shape) < best.layers(conv.shape):
                    best = plan
    return best


def _fits(part: KernelPart, *, channels: int, kernel: int, width: int, groups: int) -> bool:
    sides = (part.kernel, kernel)
    used = cbuf_banks(channels, sides, part.dilation, width, "fp16", groups)
    return part.fits() and used < banks_available()


def _channel_bounds(conv: Conv) -> Iterator[list[int]]:
    channels = conv.shape[1]
    most = min(channels, _MOST_CHANNEL_PARTS) if conv.groups == 1 else 1
    for count in range(1, most + 1):
        yield [channels * index // count for index in range(count + 1)]


_Key = tuple[tuple[int, int, int], ...]


def _pieces(
    plan: SplitPlan, shape: tuple[int, ...]
) -> Iterator[tuple[KernelPart, KernelPart, tuple[int, int], _Key]]:
    """Every convolution of a plan with what it slices its input to: (axis, start, end)."""
    sizes = (
        shape[1],
        shape[2] + sum(plan.zeros[0]),
        shape[3] + sum(plan.zeros[1]),
    )
    for channels, row, column in product(pairwise(plan.channels), plan.rows, plan.columns):
        spans = (channels, (row.start, row.end), (column.start, column.end))
        cut = tuple(
            (axis, a, b)
            for axis, ((a, b), size) in enumerate(zip(spans, sizes, strict=True), start=1)
            if (a, b) != (0, size)
        )
        yield row, column, channels, cut


def write_plan(new: Writer, conv: Conv, plan: SplitPlan, data: str) -> None:
    """Writes the parts and their sum in place of a convolution of ``data``."""
    node = conv.node
    data = write_zeros(new, data, conv.shape[1], *plan.zeros, name=node.name)
    pieces = list(_pieces(plan, conv.shape))
    slices: dict[_Key, str] = {(): data}
    total = ""
    for index, (row, column, channels, cut) in enumerate(pieces):
        if cut not in slices:
            slices[cut] = _slice(new, data, cut, f"{node.name}:slice")
        weight = _weight(new, conv, row, column, channels if len(plan.channels) > 2 else None)
        size = KernelWindow(
            (row.kernel, column.kernel),
            (row.stride, column.stride),
            (row.before, column.before, row.after, column.after),
            (row.dilation, column.dilation),
        )
        last = index == len(pieces) - 1
        whole = node.outputs[0] if len(pieces) == 1 else ""
        inputs = [slices[cut], weight, "" if index else conv.bias]
        name = f"{node.name}:part" if index else node.name
        part = write_conv(
            new, inputs, size, groups=conv.groups, output=whole, name=name, role="part"
        )
        if index:
            end = node.outputs[0] if last else ""
            part = new.node("Add", [total, part], output=end, name=f"{node.name}:sum", role="sum")
        total = part


def _slice(new: Writer, data: str, cut: Sequence[tuple[int, int, int]], name: str) -> str:
    axes, starts, ends = zip(*cut, strict=True)
    bounds = [new.constant(list(item)) for item in (starts, ends, axes)]
    return new.node("Slice", [data, *bounds], name=name)


def _weight(
    new: Writer, conv: Conv, row: KernelPart, column: KernelPart, channels: tuple[int, int] | None
) -> str:
    """The weights of a part, as a recipe."""
    weight = conv.node.inputs[1]
    spans = [(1, *channels)] if channels else []
    for axis, part in ((2, row), (3, column)):
        if (part.first, part.stop) != (0, conv.weight[axis]):
            spans.append((axis, part.first, part.stop))
    if spans:
        weight = _slice(new, weight, spans, f"{weight}:slice")
    zeros = [0, 0, row.lead, column.lead, 0, 0, row.tail, column.tail]
    return new.node("Pad", [weight, new.constant(zeros)]) if any(zeros) else weight


class OverLimit:
    """What these rewrites share: the split of the fewest layers that keeps to every limit.

    Each has its own file, which says when it applies; the split itself minds the limits of
    kernel, padding, dilation and convolution buffer together, so that no part breaks another one.
    """

    name = ""
    reason = ""
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def beyond(self, conv: Conv) -> bool:
        """Whether a convolution is beyond the limit."""
        raise NotImplementedError

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A 2-D Conv with constant weights beyond the limit that can be split."""
        conv = conv_of(graph, node)
        if conv is None or not self.beyond(conv):
            return None
        plan = plan_of(conv)
        return None if plan is None else Match((node,), (conv, plan))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """The parts and their sum."""
        conv, plan = match.facts
        write_plan(new, conv, plan, conv.node.inputs[0])


def too_large(conv: Conv) -> bool:
    """Whether the kernel is over its limit."""
    return not within("convolution.kernel", *conv.size.kernel)


def too_far(conv: Conv) -> bool:
    """Whether the dilation is over its limit."""
    return not within("convolution.dilation", *conv.size.dilation)


def too_padded(conv: Conv) -> bool:
    """Whether the padding is over its limit, or not smaller than the dilated kernel."""
    size = conv.size
    reach = [(k - 1) * d for k, d in zip(size.kernel, size.dilation, strict=True)]
    over = not within("convolution.padding", *size.pads)
    return over or any(pad > far for pad, far in zip(size.pads, (*reach, *reach), strict=True))


def too_full(conv: Conv) -> bool:
    """Whether the convolution buffer is full, or too small, in FP16."""
    return banks(conv) >= banks_available()


class LargeKernel(OverLimit):
    """Conv with a kernel side over the limit -> Convs over parts of the kernel, added.

    A part reads the input from its first tap on: by its own padding, by taps of zero, or, where
    neither will do, by a Slice. The bias goes with the first part.
    """

    name = "large-kernel"
    reason = (
        "the DLA's kernels have limited sides; the sum of convolutions over parts of a larger "
        "kernel is the same"
    )

    def beyond(self, conv: Conv) -> bool:
        """A side of the kernel is over the limit."""
        return too_large(conv)


class LargeDilation(OverLimit):
    """Conv with a dilation over the limit -> a Conv for each tap along that axis, added.

    Each reads a Slice of the input; where there is padding, layers of zeros provide it before.
    """

    name = "large-dilation"
    reason = (
        "the DLA's dilation is limited; convolutions with one tap each have none, and their sum "
        "is the same"
    )

    def beyond(self, conv: Conv) -> bool:
        """A dilation is over the limit."""
        return too_far(conv) and not too_large(conv)


class LargePadding(OverLimit):
    """Conv with padding over the limit, or not smaller than the kernel -> a Conv that fits.

    The kernel gets taps of zero, so that it is larger than the padding (a 1x1 convolution with a
    padding of 1 becomes one of 3x3); what is over the limit of the padding itself is put around
    the input before, by depthwise convolutions.
    """

    name = "large-padding"
    reason = (
        "the DLA's padding is limited and must be smaller than the kernel; taps of zero make the "
        "kernel larger and change nothing"
    )

    def beyond(self, conv: Conv) -> bool:
        """A padding is over the limits, and neither kernel nor dilation is."""
        return too_padded(conv) and not too_large(conv) and not too_far(conv)


class ConvCbuf(OverLimit):
    """Conv over the convolution buffer -> Convs over parts of its input channels, added.

    Where fewer channels do not help (long rows), over parts of the kernel's height. Judged in
    FP16; in INT8 it takes half as much, and where it then fits nothing is gained. The channels of
    grouped convolutions are not split.
    """

    name = "conv-cbuf"
    reason = (
        "the DLA's convolution buffer holds one kernel and the rows it reads; convolutions over "
        "parts of the input channels take less, and their sum is the same"
    )

    def beyond(self, conv: Conv) -> bool:
        """The buffer is full or too small, and no other limit of the window is broken."""
        return too_full(conv) and not (too_large(conv) or too_far(conv) or too_padded(conv))


# parts start at multiples of this: the DLA stores channels in such blocks
_BLOCK = 32


class ManyOutputMaps:
    """Conv with more output maps than the limit -> Convs over parts of them, concatenated.

    The concatenation itself has too many channels for the DLA and runs on the GPU. A convolution
    with more groups than the limit would have as many input channels, which the DLA does not
    read at all: nothing is split there.
    """

    name = "many-output-maps"
    reason = (
        "the DLA's convolutions have a limited number of output maps; the parts of a larger one "
        "run there, only putting them together does not"
    )
    operators: tuple[str, ...] = ("Conv",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """A Conv of one group with too many output maps."""
        conv = conv_of(graph, node)
        if conv is None or conv.groups != 1 or within("convolution.output_maps", conv.weight[0]):
            return None
        return Match((node,), conv)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """One Conv for each part, and a Concat."""
        conv, node = match.facts, match.nodes[0]
        maps, most = conv.weight[0], limit("convolution.output_maps")[1]
        count = -(-maps // most)
        size = -(-maps // count)
        size = min(-(-size // _BLOCK) * _BLOCK, most)
        bounds = [*range(0, maps, size), maps]
        parts = []
        for index, (start, end) in enumerate(pairwise(bounds)):
            ends = [new.constant([value]) for value in (start, end, 0)]
            weight = new.node("Slice", [node.inputs[1], *ends])
            bias = new.node("Slice", [conv.bias, *ends]) if conv.bias else ""
            name = f"{node.name}:part" if index else node.name
            inputs = [node.inputs[0], weight, bias]
            parts.append(write_conv(new, inputs, conv.size, name=name, role="part"))
        new.node("Concat", parts, output=node.outputs[0], name=f"{node.name}:all", axis=1)
