"""A convolution as a sum of convolutions over parts of its kernel and its input channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING

from edgekit.dla import cbuf_banks
from edgekit.network._window import Window
from edgekit.rewrite.convolution._axis import Part, axes_of, ways
from edgekit.rewrite.convolution._common import Conv, banks_available, write_conv
from edgekit.rewrite.convolution._zeros import write_zeros

if TYPE_CHECKING:
    from edgekit.rewrite._writer import Writer

__all__ = ["Plan", "banks", "plan_of", "write_plan"]

# parts along the channels that are tried
_MOST_CHANNEL_PARTS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """How a convolution is split.

    Attributes:
        zeros: Rows and columns of zeros that other layers put around the input before: (before,
            after) of the height, then of the width.
        rows: Parts of the kernel's height.
        columns: Parts of its width.
        channels: Bounds of the parts of the input channels.
    """

    zeros: tuple[tuple[int, int], tuple[int, int]]
    rows: list[Part]
    columns: list[Part]
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


def plan_of(conv: Conv) -> Plan | None:
    """Returns the split of the fewest layers that keeps to every limit of the DLA; None if none."""
    size = conv.size
    height, width = axes_of(
        conv.shape, conv.target, (size.kernel, size.stride, size.pads, size.dilation)
    )
    best: Plan | None = None
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
                plan = Plan((zeros_h, zeros_w), rows, columns, bounds)
                if best is None or plan.layers(conv.shape) < best.layers(conv.shape):
                    best = plan
    return best


def _fits(part: Part, *, channels: int, kernel: int, width: int, groups: int) -> bool:
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
    plan: Plan, shape: tuple[int, ...]
) -> Iterator[tuple[Part, Part, tuple[int, int], _Key]]:
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


def write_plan(new: Writer, conv: Conv, plan: Plan, data: str) -> None:
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
        size = Window(
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
    new: Writer, conv: Conv, row: Part, column: Part, channels: tuple[int, int] | None
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
