"""What the rewrites of this subject share: scales, scalars, neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


LARGEST_FP16 = 65504.0
_RANK = 4


def image(graph: RewriteGraph, tensor: str) -> bool:
    """Whether a tensor is a floating-point activation N x C x H x W, as DLA layers read it."""
    if not tensor or graph.constant(tensor) or not graph.floats(tensor):
        return False
    return graph.rank(tensor) == _RANK


def channels(graph: RewriteGraph, tensor: str) -> int:
    """Returns C of a tensor N x C x H x W."""
    return graph.shape(tensor)[1]


def scaled(
    new: Writer,
    source: str,
    factor: float | str,
    shift: float | str,
    count: int,
    *,
    output: str = "",
    role: str = "scale",
) -> str:
    """Writes ``source * factor + shift`` as one BatchNormalization and returns its output.

    TensorRT's parser makes a SCALE layer of it at once; a Mul or Add becomes one only where the
    builder fuses its constant, which it does not when others read that constant too.

    Args:
        new: The replacement.
        source: Tensor N x C x H x W.
        factor: A number, or the name of a vector of C elements.
        shift: The same.
        count: C.
        output: Tensor to write; a new one when empty.
        role: What the node is for, in a word.
    """
    import numpy as np

    given = [
        item if isinstance(item, str) else new.constant(np.full(count, item), role=f"{role}:{part}")
        for item, part in ((factor, "factor"), (shift, "shift"))
    ]
    mean = new.constant(np.zeros(count), role=f"{role}:mean")
    variance = new.constant(np.ones(count), role=f"{role}:variance")
    # no epsilon: the factor is exactly the one that is meant
    return new.node(
        "BatchNormalization",
        [source, *given, mean, variance],
        output=output,
        role=role,
        epsilon=0.0,
    )


def number(graph: RewriteGraph, tensor: str) -> float | None:
    """Returns the value of a constant of one floating-point element; None for all others."""
    if not tensor or not graph.constant(tensor) or math.prod(graph.shape(tensor)) != 1:
        return None
    return graph.scalar(tensor)


def other_input(node: Node, tensor: str) -> str:
    """Returns what a node of two inputs reads besides ``tensor``; "" when it does not fit."""
    if len(node.inputs) != 2 or tensor not in node.inputs:
        return ""
    return node.inputs[1] if node.inputs[0] == tensor else node.inputs[0]


def by_constant(graph: RewriteGraph, node: Node | None, op: str) -> tuple[str, float] | None:
    """Returns (activation, number) of a node that combines an activation with a number.

    A Div, Sub or Pow must have the number on the right, others may have it on either side.
    """
    if node is None or node.domain or node.op != op or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    value = number(graph, right)
    if value is None and op in {"Add", "Mul"}:
        left, value = right, number(graph, left)
    if value is None or graph.constant(left):
        return None
    return left, value


def factor_of(graph: RewriteGraph, node: Node | None, tensor: str) -> float | None:
    """Returns the number other than 0 that a Mul or Div multiplies ``tensor`` by; None if none."""
    for op in ("Mul", "Div"):
        found = by_constant(graph, node, op)
        if found is not None and found[0] == tensor and found[1] != 0:
            return found[1] if op == "Mul" else 1 / found[1]
    return None


def form(part: Sequence[int], whole: Sequence[int]) -> str:
    """Returns how a constant of shape ``part`` fits a tensor N x C x H x W of shape ``whole``.

    "uniform", "channel" and "element" are what a SCALE layer takes, "other" can be repeated to
    "element", and "" makes the result larger than the tensor.
    """
    if len(part) > len(whole):
        return ""
    part = (1,) * (len(whole) - len(part)) + tuple(part)
    if any(p not in {1, w} for p, w in zip(part, whole, strict=True)):
        return ""
    if all(size == 1 for size in part):
        return "uniform"
    if part == (1, whole[1], 1, 1):
        return "channel"
    return "element" if part[1:] == tuple(whole[1:]) else "other"


def vector(graph: RewriteGraph, new: Writer, tensor: str, count: int) -> str:
    """Returns a constant of form "uniform" or "channel" as a vector of C elements of its own."""
    size = math.prod(graph.shape(tensor))
    flat = new.node("Reshape", [tensor, new.constant([size])], role="vector")
    if size == count:
        return flat
    return new.node("Expand", [flat, new.constant([count])], role="per_channel")


def to_shape(graph: RewriteGraph, new: Writer, tensor: str, whole: Sequence[int]) -> str:
    """Returns a constant repeated to "element" where a SCALE layer would not take it as it is."""
    fits = form(graph.shape(tensor), whole)
    if fits != "other":
        return tensor
    rank = len(graph.shape(tensor))
    keeps_batch = rank == len(whole) and graph.shape(tensor)[0] != 1
    shape = [whole[0] if keeps_batch else 1, *whole[1:]]
    return new.node("Expand", [tensor, new.constant(shape)], role="repeated")
