"""Truth values as numbers 0 and 1, worked out by arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite.pointwise._common import image, scaled, to_shape

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["LOGICAL", "NEGATED", "Mask", "Tree", "elem_type", "tree"]

LOGICAL = frozenset({"And", "Or", "Xor", "Not"})
# not (a < b), which only differs for what is not a number
NEGATED = {"GreaterOrEqual": "Less", "LessOrEqual": "Greater"}
_LARGEST_TREE = 16
_RANK = 4


def elem_type(dtype: str) -> int:
    """Returns ONNX's number of a NumPy type name."""
    import numpy as np
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@dataclass(frozen=True, slots=True)
class Tree:
    """The logic behind a truth value.

    Attributes:
        nodes: And, Or, Xor, Not, GreaterOrEqual and LessOrEqual.
        again: Those of them that others read too, with what is behind them, producers first.
    """

    nodes: tuple[Node, ...]
    again: tuple[Node, ...]


def tree(graph: Graph, root: str, reader: Node | None) -> Tree | None:
    """Returns the logic behind the truth value ``root``, down to comparisons and inputs.

    None where one of the tensors is not N x C x H x W, or there is too much of it.

    Args:
        graph: The graph.
        root: A tensor of truth values.
        reader: The node that is to read numbers in its place; None when ``root`` is written anew
            from numbers, for all that read it.
    """
    found: dict[str, Node] = {}
    waiting = [root]
    while waiting:
        tensor = waiting.pop()
        if graph.constant(tensor):
            continue
        node = graph.producer(tensor)
        if graph.rank(tensor) != _RANK:
            return None
        if node is None or node.domain or node.op not in {*LOGICAL, *NEGATED}:
            continue
        if node.name in found:
            continue
        found[node.name] = node
        if len(found) > _LARGEST_TREE:
            return None
        if node.op in NEGATED:
            if not all(image(graph, name) for name in node.inputs):
                return None
            continue
        if all(graph.constant(name) for name in node.inputs):
            return None
        waiting += node.inputs
    return Tree(tuple(found.values()), _shared(graph, found, root, reader))


def _shared(
    graph: Graph, found: Mapping[str, Node], root: str, reader: Node | None
) -> tuple[Node, ...]:
    """Nodes whose truth values others need, in topological order."""
    inside = [*found.values(), *([reader] if reader is not None else [])]
    ordered: dict[str, Node] = {}

    def add(node: Node) -> None:
        for name in node.inputs:
            before = graph.producer(name)
            if before is not None and before.name in found and before.name not in ordered:
                add(before)
        ordered[node.name] = node

    for node in found.values():
        output = node.outputs[0]
        anew = reader is None and output == root
        if not anew and not graph.inner(output, inside):
            add(node)
    return tuple(ordered.values())


class Mask:
    """Writes the numbers of truth values.

    NVIDIA's recipes (github.com/NVIDIA/Deep-Learning-Accelerator-SW, operators/op_reconstruction):
    And is the product, Or the maximum, Not 1 - a, Xor |a - b|.
    """

    def __init__(self, graph: Graph, new: Writer, dtype: str) -> None:
        self._graph, self._new, self._dtype = graph, new, dtype
        self._known: dict[str, str] = {}

    def repeat(self, nodes: Sequence[Node]) -> None:
        """Writes logic again as it was, for those that still read its truth values."""
        for node in nodes:
            self._new.node(node.op, node.inputs, output=node.outputs[0], name=node.name)

    def of(self, tensor: str, output: str = "") -> str:
        """Returns a tensor of the numbers of ``tensor``, in its shape."""
        if tensor in self._known and not output:
            return self._known[tensor]
        node = None if self._graph.constant(tensor) else self._graph.producer(tensor)
        if node is not None and not node.domain and node.op in LOGICAL:
            made = self._logical(node, output)
        elif node is not None and not node.domain and node.op in NEGATED:
            compared = self._new.node(NEGATED[node.op], node.inputs, role="compared")
            made = self._not(self._cast(compared), self._channels(tensor), output)
        else:
            made = self._cast(tensor, output)
        self._known[tensor] = made
        return made

    def _logical(self, node: Node, output: str) -> str:
        new, shape = self._new, self._graph.shape(node.outputs[0])
        if node.op == "Not":
            return self._not(self.of(node.inputs[0]), shape[1], output)
        fixed = [self._graph.constant(name) for name in node.inputs]
        if any(fixed):
            return self._with_constant(node, fixed.index(True), output)
        left, right = (self.of(name) for name in node.inputs)
        if node.op == "Xor":
            apart = new.node("Sub", [left, right], role="difference")
            return new.node("Abs", [apart], output=output)
        return new.node("Mul" if node.op == "And" else "Max", [left, right], output=output)

    def _with_constant(self, node: Node, place: int, output: str) -> str:
        """A constant operand as factor and shift, so that it is no layer of its own."""
        new = self._new
        constant, source = node.inputs[place], node.inputs[1 - place]
        fixed = self._cast(to_shape(self._graph, new, constant, self._graph.shape(source)))
        mask = self.of(source)
        if node.op == "And":
            return new.node("Mul", [mask, fixed], output=output)
        # a or 1 = 1, a xor 1 = 1 - a
        less = new.constant(1.0 if node.op == "Or" else 2.0)
        rest = new.node("Sub", [new.constant(1.0), new.node("Mul", [fixed, less])], role="rest")
        kept = new.node("Mul", [mask, rest], role="kept")
        return new.node("Add", [kept, fixed], output=output)

    def _not(self, mask: str, count: int, output: str) -> str:
        return scaled(self._new, mask, -1.0, 1.0, count, output=output, role="not")

    def _cast(self, tensor: str, output: str = "") -> str:
        to = elem_type(self._dtype)
        return self._new.node("Cast", [tensor], output=output, role="number", to=to)

    def _channels(self, tensor: str) -> int:
        return self._graph.shape(tensor)[1]
