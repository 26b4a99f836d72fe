"""What the rewrites of this subject know about a convolution, how they write one, and zeros
around a tensor.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from edgekit.dla.rules import limit, memory_facts
from edgekit.network.windows import KernelWindow, cropped_by_same, window
from edgekit.rewriting.step import form

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


_REMEMBERED = 4096


class Conv(NamedTuple):
    """A Conv node with constant weights, its attributes resolved.

    Attributes:
        node: The node.
        shape: Of its input.
        target: Of its output.
        weight: Shape of the weights [K, C / groups, *kernel].
        size: Kernel, stride, pads and dilation, ``auto_pad`` resolved.
        groups: Number of groups.
    """

    node: Node
    shape: tuple[int, ...]
    target: tuple[int, ...]
    weight: tuple[int, ...]
    size: KernelWindow
    groups: int

    @property
    def bias(self) -> str:
        """The bias; "" when there is none."""
        return self.node.input(2)


def conv_of(graph: RewriteGraph, node: Node | None, spatial: int = 2) -> Conv | None:
    """Returns a Conv of ``spatial`` axes with constant weights and bias; None for another node."""
    if node is None or node.op != "Conv" or node.domain or not graph.floats(node.outputs[0]):
        return None
    source, weight, bias = node.inputs[0], node.inputs[1], node.input(2)
    if graph.constant(source) or not graph.constant(weight):
        return None
    if (bias and not graph.constant(bias)) or graph.rank(source) != spatial + 2:
        return None
    shape, target = graph.shape(source), graph.shape(node.outputs[0])
    sizes = graph.shape(weight)
    key = (form(node), sizes[2:], shape[2:], target[2:])
    if key not in _known():
        if len(_known()) >= _REMEMBERED:
            _known().clear()
        cropped = cropped_by_same(node.attrs, *key[1:])
        _known()[key] = None if cropped else window(node.attrs, *key[1:])
    size = _known()[key]
    if size is None:
        return None
    return Conv(node, shape, target, sizes, size, int(node.attrs.get("group", 1)))


@lru_cache(1)
def _known() -> dict[Hashable, KernelWindow | None]:
    return {}


def write_conv(
    new: Writer,
    inputs: Sequence[str],
    size: KernelWindow,
    *,
    groups: int = 1,
    output: str = "",
    name: str = "",
    role: str = "",
) -> str:
    """Writes a Conv with all its attributes and returns its output."""
    return new.node(
        "Conv",
        [item for item in inputs if item],
        output=output,
        name=name,
        role=role,
        kernel_shape=list(size.kernel),
        strides=list(size.stride),
        pads=list(size.pads),
        dilations=list(size.dilation),
        group=groups,
    )


def keep(new: Writer, node: Node) -> None:
    """Writes a replaced node once more, for those who still read its output."""
    new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)


def within(rule: str, *values: int) -> bool:
    """Whether values are in the range of a rule of the DLA."""
    low, high = limit(rule)
    return all(low <= value <= high for value in values)


def banks_available() -> int:
    """Banks of the DLA's convolution buffer; a convolution that needs them all was refused."""
    return int(memory_facts()["cbuf"]["banks"])


def product(values: Sequence[int]) -> int:
    """Returns the product of sizes."""
    result = 1
    for value in values:
        result *= value
    return result


def vector(graph: RewriteGraph, new: Writer, tensor: str, size: int) -> str:
    """Returns a constant of one element or ``size`` elements as [size], by a recipe."""
    shape = graph.shape(tensor)
    if shape == (size,):
        return tensor
    if product(shape) == size:
        return new.node("Reshape", [tensor, new.constant([size])])
    single = new.node("Reshape", [tensor, new.constant([1])])
    return new.node("Expand", [single, new.constant([size])])


# Rows, columns and channels of zeros around a tensor, by layers that the DLA has.
#
# A depthwise convolution whose kernel has a single 1 moves its input. With ``a + b + 1`` taps, the
# 1 at tap b, and padding of a + b at either end, its result is the input with a rows of zeros
# before and b after: the padding stays below the kernel, as the DLA wants it.


def write_zeros(
    new: Writer,
    data: str,
    channels: int,
    height: tuple[int, int],
    width: tuple[int, int],
    *,
    name: str,
    output: str = "",
) -> str:
    """Puts zeros around an image: (before, after) of the height and of the width."""
    steps = [(axis, *step) for axis, pair in enumerate((height, width)) for step in _steps(*pair)]
    for index, (axis, before, after) in enumerate(steps):
        end = output if index == len(steps) - 1 else ""
        data = _grown(new, data, channels, (axis, before, after), end, f"{name}:zeros")
    return data


def _steps(before: int, after: int) -> list[tuple[int, int]]:
    """Splits an amount of zeros into steps of what one convolution can do."""
    most = min(limit("convolution.padding")[1], limit("convolution.kernel")[1] - 1)
    steps = []
    while before or after:
        front = min(before, most)
        back = min(after, most - front)
        steps.append((front, back))
        before, after = before - front, after - back
    return steps


def _grown(
    new: Writer, data: str, channels: int, step: tuple[int, int, int], output: str, name: str
) -> str:
    import numpy as np

    axis, before, after = step
    both = before + after
    kernel, pads = [1, 1], [0, 0, 0, 0]
    kernel[axis], pads[axis], pads[axis + 2] = both + 1, both, both
    weight = np.zeros((channels, 1, both + 1))
    weight[:, 0, after] = 1.0
    moved = new.constant(weight.reshape(channels, 1, *kernel), role="zeros")
    window = KernelWindow((kernel[0], kernel[1]), (1, 1), tuple(pads), (1, 1))
    return write_conv(new, [data, moved], window, groups=channels, output=output, name=name)


def write_channels(
    new: Writer, data: str, channels: int, before: int, after: int, *, name: str, output: str = ""
) -> str:
    """Puts channels of zeros before and after those of an image: a 1x1 convolution."""
    import numpy as np

    new.check_size(before + channels + after, channels)
    weight = np.zeros((before + channels + after, channels, 1, 1))
    weight[before : before + channels, :, 0, 0] = np.eye(channels)
    window = KernelWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    moved = new.constant(weight, role="zeros")
    return write_conv(new, [data, moved], window, output=output, name=f"{name}:channels")
