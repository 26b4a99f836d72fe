"""An operation on the other side of a reshape or a transposition, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Carried", "Operand", "again", "put", "reshaped", "write"]


@dataclass(frozen=True, slots=True)
class Operand:
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
    graph: Graph,
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
