"""What the rewrites of this group know about a convolution, and how they write one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from edgekit.dla import limit, memory_facts
from edgekit.network._window import Window, cropped_by_same, window
from edgekit.rewrite._forms import form

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = [
    "Conv",
    "banks_available",
    "conv_of",
    "keep",
    "product",
    "vector",
    "within",
    "write_conv",
]

_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Conv:
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
    size: Window
    groups: int

    @property
    def bias(self) -> str:
        """The bias; "" when there is none."""
        return self.node.input(2)


def conv_of(graph: Graph, node: Node | None, spatial: int = 2) -> Conv | None:
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
def _known() -> dict[Hashable, Window | None]:
    return {}


def write_conv(
    new: Writer,
    inputs: Sequence[str],
    size: Window,
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


def vector(graph: Graph, new: Writer, tensor: str, size: int) -> str:
    """Returns a constant of one element or ``size`` elements as [size], by a recipe."""
    shape = graph.shape(tensor)
    if shape == (size,):
        return tensor
    if product(shape) == size:
        return new.node("Reshape", [tensor, new.constant([size])])
    single = new.node("Reshape", [tensor, new.constant([1])])
    return new.node("Expand", [single, new.constant([size])])
