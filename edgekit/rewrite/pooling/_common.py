"""What the rewrites of this group share: pooling layers as axes, reductions, nodes in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.dla import limit
from edgekit.network._window import window
from edgekit.rewrite.pooling._cascade import Axis

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = [
    "AXES_INPUT",
    "AXES_INPUT_OTHERS",
    "Part",
    "Pool",
    "Reduction",
    "in_row",
    "pool_of",
    "reduction_of",
    "whole",
]

_IMAGE = (2, 3)
_ROLES = {"Conv": "weights", "Mul": "factor", "Reshape": "shape"}
# the opset since which the axes are an input
AXES_INPUT = {"ReduceSum": 13}
AXES_INPUT_OTHERS = 18


@dataclass(frozen=True, slots=True)
class Part:
    """One node of a row: it reads the node before it, and ``constants``."""

    op: str
    constants: tuple[Any, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


def in_row(new: Writer, source: str, parts: Sequence[Part], node: Node, output: str = "") -> str:
    """Writes nodes one after the other in place of ``node`` and returns what the last one writes.

    The last one that computes keeps the node's name; a reshape after it does not.

    Args:
        new: Where to write.
        source: What the first node reads.
        parts: The nodes; at least one.
        node: What they replace.
        output: What the last one writes; the node's output when empty.
    """
    output = output or node.outputs[0]
    last = max((i for i, part in enumerate(parts) if part.op != "Reshape"), default=len(parts) - 1)
    for index, part in enumerate(parts):
        read = [source, *(new.constant(value, role=_ROLES[part.op]) for value in part.constants)]
        final = index == len(parts) - 1
        name = node.name if index == last else f"{node.name}:{part.op.lower()}"
        source = new.node(part.op, read, output=output if final else "", name=name, **part.attrs)
    return source


@dataclass(frozen=True, slots=True)
class Pool:
    """A MaxPool or AveragePool over H and W.

    Attributes:
        height: Along H.
        width: Along W.
        padded: The node declares padding.
        within: The DLA takes its window, stride, padding and dilation.
    """

    height: Axis
    width: Axis
    padded: bool
    within: bool


def pool_of(graph: Graph, node: Node) -> Pool | None:
    """Returns what a MaxPool or AveragePool does, None where it is not floats in N, C, H and W.

    Only the first output may be written. A window that lies in the padding altogether is refused.
    """
    source, target = node.inputs[0], node.outputs[0]
    kernel = node.attrs.get("kernel_shape", ())
    if any(node.outputs[1:]) or len(kernel) != len(_IMAGE) or not graph.floats(source):
        return None
    if graph.rank(source) != len(_IMAGE) + 2:
        return None
    sizes, counts = graph.shape(source)[2:], graph.shape(target)[2:]
    given = window(node.attrs, kernel, sizes, counts)
    axes = []
    for at in (0, 1):
        size, stride, dilation = given.kernel[at], given.stride[at], given.dilation[at]
        before, declared = given.pads[at], given.pads[at + 2]
        span = (size - 1) * dilation + 1
        after = (counts[at] - 1) * stride + span - before - sizes[at]
        if not (0 <= before < span and declared >= 0 and after < span):
            return None
        if counts[at] == 1 and after >= 0:
            stride = 0
        elif counts[at] == 1 and stride % size and 1 - after <= limit("convolution.stride")[1]:
            # the least stride at which no second window fits
            stride = 1 - after
        axes.append(
            Axis(
                sizes[at], counts[at], size, stride, before, max(after, 0), dilation,
                beyond=after > declared,
            )
        )  # fmt: skip
    within = (
        max(given.kernel) <= limit("pooling.window")[1]
        and max(given.stride) <= limit("pooling.stride")[1]
        and max(given.pads) <= limit("pooling.padding")[1]
        and max(given.dilation) == 1
    )
    return Pool(axes[0], axes[1], any(given.pads), within)


def whole(length: int) -> Axis:
    """Returns a window over all of an axis."""
    return Axis(length, 1, length)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of a tensor [N, C, H, W].

    Attributes:
        shape: Of the input.
        axes: Axes that it reduces and that have more than one element: 1, 2, 3.
        target: Shape of the output.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def height(self) -> Axis:
        """The part along H: all of it, or nothing."""
        return self._axis(2)

    @property
    def width(self) -> Axis:
        """The part along W."""
        return self._axis(3)

    def _axis(self, axis: int) -> Axis:
        length = self.shape[axis]
        return whole(length) if axis in self.axes else Axis(length, length, 1, 1)

    def reshape(self) -> list[Part]:
        """Returns the reshape that drops reduced dimensions, where the node drops them."""
        import numpy as np

        kept = tuple(1 if axis in self.axes else size for axis, size in enumerate(self.shape))
        return [] if kept == self.target else [Part("Reshape", (np.array(self.target, np.int64),))]


def reduction_of(graph: Graph, node: Node, rank: int = 4) -> Reduction | None:
    """Returns what a Reduce* or a global pool reduces; None where no such form is known.

    That is: floats in N, C, H and W (or of another ``rank``), known axes, and no sum over batches.
    """
    source = node.inputs[0]
    if not graph.floats(source) or graph.rank(source) != rank:
        return None
    shape = graph.shape(source)
    axes = _axes(graph, node, rank)
    if axes is None or 0 in shape or (0 in axes and shape[0] != 1):
        return None
    wide = tuple(axis for axis in axes if shape[axis] != 1)
    return Reduction(shape, wide, graph.shape(node.outputs[0]))


def _axes(graph: Graph, node: Node, rank: int) -> list[int] | None:
    if node.op.startswith("Global"):
        return list(range(2, rank))
    axes: list[int] | None = list(node.attrs.get("axes", ()))
    if graph.opset >= AXES_INPUT.get(node.op, AXES_INPUT_OTHERS):
        axes = graph.ints(node.input(1)) if node.input(1) else []
    if axes is None or (not axes and node.attrs.get("noop_with_empty_axes", 0)):
        return None
    return sorted({axis % rank for axis in axes}) if axes else list(range(rank))
