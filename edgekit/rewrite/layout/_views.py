"""Reshapes as views: which dimensions of one shape stand for which of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["RESHAPES", "View", "is_reshape", "lowered", "moves_ones", "permutation", "view"]

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_DLA_RANK = 4


@dataclass(frozen=True, slots=True)
class View:
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
        stands behind is repeated as it is.
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


def is_reshape(graph: Graph, node: Node | None) -> bool:
    """Whether a node only gives an activation another shape."""
    if node is None or node.op not in RESHAPES or node.domain:
        return False
    return not node.input(1) or graph.constant(node.input(1))


def lowered(graph: Graph, tensor: str) -> Node | None:
    """Returns the reshape that makes ``tensor`` of a 4-D tensor, itself of another rank."""
    node = graph.producer(tensor)
    if node is None or not is_reshape(graph, node) or graph.rank(tensor) == _DLA_RANK:
        return None
    return node if graph.rank(node.inputs[0]) == _DLA_RANK else None


def permutation(graph: Graph, node: Node) -> tuple[int, ...]:
    """Returns the permutation of a Transpose."""
    rank = graph.rank(node.inputs[0])
    return tuple(node.attrs.get("perm") or reversed(range(rank)))


def moves_ones(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether a transposition of ``shape`` leaves all elements in their order."""
    kept = [i for i in perm if shape[i] != 1]
    return kept == sorted(kept)
