"""Reshapes as views, operators by what they do with dimensions, and an operation written on
the other side of a move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.network.lowering.pointwise import ACTIVATIONS, ELEMENTWISE
from edgekit.network.lowering.pointwise import UNARY as FUNCTIONS

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


def cut_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Cuts dimensions where another shape of the same elements has its borders.

    Dimensions of size 1 have no parts; None if a border does not divide.
    """
    borders = {math.prod(shape[index:]) for index in range(len(shape) + 1)}
    high, found = math.prod(sizes), []
    for size in sizes:
        low = high // size
        points = [high, *sorted((b for b in borders if low < b < high), reverse=True), low]
        pairs = list(pairwise(points))
        if any(above % below for above, below in pairs):
            return None
        found.append([above // below for above, below in pairs if above != below])
        high = low
    return found


def dimensions_of(sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the dimension of ``shape`` that each atom lies in."""
    found, dim, left = [], 0, shape[0] if shape else 1
    for size in sizes:
        while left == 1:
            dim += 1
            left = shape[dim]
        found.append(dim)
        left //= size
    return tuple(found)


RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_DLA_RANK = 4


class View(NamedTuple):
    """The dimensions of shape ``x`` that hold the elements of those of shape ``y``.

    Attributes:
        x: One shape, usually N, C, H, W.
        y: The other, with the same elements in the same order.
        groups: Pairs of index lists: the dimensions of ``x`` and those of ``y`` with the same
            product, as small as can be, in order.
    """

    x: tuple[int, ...]
    y: tuple[int, ...]
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def operand(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Returns the shape that broadcasts to ``x`` as ``shape`` does to ``y``; None if none."""
        if len(shape) > len(self.y):
            return None
        wide = (*(1,) * (len(self.y) - len(shape)), *shape)
        found = [1] * len(self.x)
        for xs, ys in self.groups:
            part, whole = [wide[i] for i in ys], [self.y[i] for i in ys]
            if part == whole:
                for i in xs:
                    found[i] = self.x[i]
            elif math.prod(part) != 1:
                return None
        return tuple(found)

    def axis(self, y: int) -> int | None:
        """Returns the dimension of ``x`` that is dimension ``y`` of ``y`` and nothing else."""
        for xs, ys in self.groups:
            if y % len(self.y) not in ys:
                continue
            size = self.y[y]
            if not xs or math.prod(self.y[i] for i in ys) != size:
                return None
            return next((i for i in xs if self.x[i] == size), None)
        return None

    def joined(self, y: int) -> frozenset[int]:
        """Returns the dimensions of ``x`` along which joining is joining along ``y``.

        Only where ``y`` has the dimension alone: those up to the first that is not 1, for what
        stands after is repeated as it is.
        """
        for xs, ys in self.groups:
            if ys != (y % len(self.y),):
                continue
            wide = next((k for k, i in enumerate(xs) if self.x[i] != 1), len(xs) - 1)
            return frozenset(xs[: wide + 1])
        return frozenset()


def view(x: Sequence[int], y: Sequence[int]) -> View | None:
    """Returns how a tensor of shape ``x`` is seen as one of shape ``y``; None if it cannot be."""
    if math.prod(x) != math.prod(y) or math.prod(x) == 0:
        return None
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(x) and j < len(y):
        first, second = i, j
        left, right = x[i], y[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * x[i], i + 1
            else:
                right, j = right * y[j], j + 1
        groups.append((tuple(range(first, i)), tuple(range(second, j))))
    # what is left has size 1 and belongs to the last group
    xs, ys = groups.pop() if groups else ((), ())
    groups.append(((*xs, *range(i, len(x))), (*ys, *range(j, len(y)))))
    return View(tuple(x), tuple(y), tuple(groups))


def is_reshape(graph: RewriteGraph, node: Node | None) -> bool:
    """Whether a node only gives an activation another shape."""
    if node is None or node.op not in RESHAPES or node.domain:
        return False
    return not node.input(1) or graph.constant(node.input(1))


def lowered(graph: RewriteGraph, tensor: str) -> Node | None:
    """Returns the reshape that makes ``tensor`` of a 4-D tensor, itself of another rank."""
    node = graph.producer(tensor)
    if node is None or not is_reshape(graph, node) or graph.rank(tensor) == _DLA_RANK:
        return None
    return node if graph.rank(node.inputs[0]) == _DLA_RANK else None


def permutation(graph: RewriteGraph, node: Node) -> tuple[int, ...]:
    """Returns the permutation of a Transpose."""
    rank = graph.rank(node.inputs[0])
    return tuple(node.attrs.get("perm") or reversed(range(rank)))


def moves_ones(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether a transposition of ``shape`` leaves all elements in their order."""
    remaining = [i for i in perm if shape[i] != 1]
    return remaining == sorted(remaining)


# one activation, element by element; what else they read has one element
SINGLE = (
    *ACTIVATIONS,
    *FUNCTIONS,
    "HardSwish",
    "Mish",
    "Swish",
    "Shrink",
    "Cast",
    "QuantizeLinear",
    "DequantizeLinear",
)
# element by element, all operands broadcast
BROADCASTING = (*ELEMENTWISE, "Mean", "Where", "PRelu")
ALONG = ("Softmax", "LogSoftmax", "Hardmax")
REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
_SUM_AXES_INPUT = 13
_AXES_INPUT = 18


def normal(node: Node) -> bool:
    """Whether a node can be written again: of ai.onnx, without graphs inside."""
    return not node.domain and node.op not in {"If", "Loop", "Scan", "SequenceMap"}


def parameters(graph: RewriteGraph, node: Node, first: int) -> bool:
    """Whether the inputs from ``first`` on are left out or constants of one element."""
    return all(
        not name or (graph.constant(name) and all(side == 1 for side in graph.shape(name)))
        for name in node.inputs[first:]
    )


def reduces_by_input(op: str, opset: int) -> bool:
    """Whether a reduction reads its axes as an input."""
    return opset >= (_SUM_AXES_INPUT if op == "ReduceSum" else _AXES_INPUT)


def reduced_axes(graph: RewriteGraph, node: Node) -> tuple[int, ...] | None:
    """Returns the axes of a reduction from 0 on; None if they are computed or there are none."""
    rank = graph.rank(node.inputs[0])
    if node.input(1):
        given = graph.ints(node.inputs[1])
        if given is None:
            return None
    else:
        given = list(node.attrs.get("axes") or ())
    if not given and node.attrs.get("noop_with_empty_axes"):
        return None
    return tuple(sorted(axis % rank for axis in given or range(rank)))


class Operand(NamedTuple):
    """What an operation reads there.

    Attributes:
        tensor: Read as it is, or through what the other attributes say; "" for one left out.
        shape: Shape to be given to it first.
        perm: Permutation to be applied to it then.
        numbers: To be read instead of a tensor; fractions get the type of ``tensor``.
    """

    tensor: str = ""
    shape: tuple[int, ...] | None = None
    perm: tuple[int, ...] | None = None
    numbers: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """An operation on the other side.

    Attributes:
        operands: By input.
        attrs: All attributes.
        passed: Nodes whose results the operation read and no longer reads, or now reads.
        perm: Permutation that makes the old results of the new ones; None for another shape only.
    """

    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    passed: tuple[Node, ...] = field(default=())
    perm: tuple[int, ...] | None = None


def put(new: Writer, operand: Operand) -> str:
    """Writes what makes an operand and returns its tensor."""
    if operand.numbers is not None:
        return new.constant(list(operand.numbers), like=operand.tensor, role="numbers")
    tensor = operand.tensor
    if operand.shape is not None:
        tensor = reshaped(new, tensor, operand.shape)
    if operand.perm is not None:
        tensor = new.node("Transpose", [tensor], perm=list(operand.perm))
    return tensor


def write(new: Writer, node: Node, carried: Carried, outputs: list[str]) -> list[str]:
    """Writes ``node`` on the other side, under its name, and returns what it writes."""
    read = [put(new, operand) for operand in carried.operands]
    return new.many(node.op, read, outputs, name=node.name, **carried.attrs)


def reshaped(
    new: Writer, tensor: str, shape: tuple[int, ...], *, output: str = "", name: str = ""
) -> str:
    """Writes a Reshape and returns its result."""
    import numpy as np

    to = new.constant(np.array(shape, dtype=np.int64), role="shape")
    return new.node("Reshape", [tensor, to], output=output, name=name)


def again(
    graph: RewriteGraph,
    new: Writer,
    nodes: tuple[Node, ...],
    gone: tuple[Node, ...],
    carried: Carried | None = None,
) -> None:
    """Writes those of ``nodes`` again, as they are, whose results are still needed.

    Nodes other than ``gone`` need them, or the operation on the other side does.
    """
    read = {operand.tensor for operand in carried.operands} if carried else set()
    for node in nodes:
        named = [name for name in node.outputs if name]
        if not all(graph.inner(name, gone) and name not in read for name in named):
            new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)
