"""Common functions of the recognisers: walks from a tensor back to the maps that it is computed
from, the constants on the way, and the maps by level.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.network.graph import Node, OnnxGraph
from edgekit.network.model import Model

#: Operators that move values without change.
MOVES = frozenset(
    {
        "Cast",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
#: Operators of the boxes' arithmetic.
ARITHMETIC = frozenset({"Add", "Div", "Exp", "Mul", "Neg", "Pow", "Sub"})


@dataclass(frozen=True)
class Region:
    """The nodes between a tensor and its sources.

    Attributes:
        nodes: The nodes, from the tensor back.
        sources: The activations that the nodes read and do not write, in the order of a Concat's
            inputs; the tensor itself if no node was passed.
    """

    nodes: tuple[Node, ...]
    sources: tuple[str, ...]

    def constants(self, graph: OnnxGraph) -> Iterator[np.ndarray]:
        """Yields the values of the constants that the nodes read, from the tensor back."""
        for node in self.nodes:
            for name in node.inputs:
                value = graph.value(name) if name else None
                if value is not None:
                    yield value

    def scalars(self, graph: OnnxGraph) -> list[float]:
        """Returns the float constants with one element, without axes and indices."""
        values = [value for value in self.constants(graph) if value.size == 1]
        return [float(value.item()) for value in values if value.dtype.kind == "f"]

    def node(self, operator: str) -> Node | None:
        """Returns the first node of an operator; None if there is none."""
        return next((node for node in self.nodes if node.op == operator), None)


def region(
    graph: OnnxGraph, tensor: str, through: Collection[str] | Callable[[Node], bool]
) -> Region:
    """Returns the nodes between a tensor and its sources.

    Args:
        graph: The network.
        tensor: The start of the walk.
        through: The operators that are passed, or a function that returns True for such a node.
    """
    passes = through if callable(through) else lambda node: node.op in through
    nodes: dict[str, Node] = {}
    sources: dict[str, None] = {}
    left = [tensor]
    while left:
        name = left.pop()
        if not name or graph.constant(name):
            continue
        node = graph.producer(name)
        if node is None or not passes(node):
            sources[name] = None
        elif node.name not in nodes:
            nodes[node.name] = node
            # a stack: reversed, so that the first input is visited next
            left.extend(reversed(node.inputs))
    return Region(tuple(nodes.values()), tuple(sources))


def joined(graph: OnnxGraph, tensor: str, axis: int) -> tuple[str, ...]:
    """Returns the tensors that are joined along ``axis``, also by a chain of Concats; the tensor
    itself if no Concat writes it.
    """
    node = graph.producer(tensor)
    if node is None or node.op != "Concat":
        return (tensor,)
    if int(node.attrs["axis"]) % len(graph.shape(tensor)) != axis:
        return (tensor,)
    return tuple(part for name in node.inputs for part in joined(graph, name, axis))


def by_level(graph: OnnxGraph, maps: Collection[str]) -> dict[tuple[int, int], list[str]]:
    """Returns maps [batch, channels, height, width] by height and width, in the given order; empty
    if a tensor is no such map.
    """
    found: dict[tuple[int, int], list[str]] = {}
    for name in maps:
        shape = graph.shape(name)
        if len(shape) != 4:
            return {}
        found.setdefault((shape[2], shape[3]), []).append(name)
    return found


def picture(model: Model) -> tuple[int, int] | None:
    """Returns height and width of the only input with four axes; None if none or several."""
    shapes = [model.graph.shape(name) for name in model.graph.inputs]
    found = [shape for shape in shapes if len(shape) == 4]
    if len(found) != 1 or 0 in found[0]:
        return None
    # channels last, as in TensorFlow's files
    height, width = found[0][1:3] if found[0][3] in (1, 3) else found[0][2:4]
    return height, width


def picture_stride(model: Model, size: tuple[int, int]) -> int:
    """Returns the pixels of the input for a place of a map of this size; 0 if that is no integer,
    or not the same in height and width.
    """
    whole = picture(model)
    if whole is None or 0 in size or whole[0] % size[0] or whole[1] % size[1]:
        return 0
    step = whole[0] // size[0]
    return step if whole[1] // size[1] == step else 0


def level_values(
    graph: OnnxGraph, way: Region, sizes: Sequence[tuple[int, int]]
) -> tuple[float, ...]:
    """Returns the value of each level from a constant [..., places] that has the same value for
    all places of a level, such as strides; empty if the nodes read no such constant.

    Args:
        graph: The network.
        way: The nodes.
        sizes: Height and width of the levels' maps, in the order of their places.
    """
    ends = np.cumsum([height * width for height, width in sizes])
    for value in way.constants(graph):
        if value.size == ends[-1] and value.dtype.kind == "f":
            levels = np.split(value.reshape(-1), ends[:-1])
            if all((level == level[0]).all() for level in levels):
                return tuple(float(level[0]) for level in levels)
    return ()


def later(graph: OnnxGraph, tensors: Collection[str]) -> list[Node]:
    """Returns the nodes that depend on one of the tensors."""
    # nodes are in topological order, so one pass finds all
    reached, found = set(tensors), []
    for node in graph.nodes():
        if not reached.isdisjoint(node.reads()):
            reached.update(node.outputs)
            found.append(node)
    return found


def unexplained(graph: OnnxGraph, core: Collection[str]) -> str:
    """Returns an output of the network that neither depends on ``core`` nor is needed for
    ``core``, and is therefore lost by a cut before ``core``; "" if there is none.
    """
    known = {*graph.inputs, *core}
    for node in later(graph, core):
        known.update(node.outputs)
    for tensor in core:
        for node in region(graph, tensor, lambda node: True).nodes:
            known.update(node.outputs)
    return next((name for name in graph.outputs if name not in known), "")


def all_rows(graph: OnnxGraph, tensor: str, count: int) -> np.ndarray:
    """Returns the indices of all rows, in order, in the form of a tensor that picks rows."""
    ones = [1] * (len(graph.shape(tensor)) - 1)
    return np.arange(count, dtype=graph.dtype(tensor)).reshape(-1, *ones)


def class_names(metadata: Mapping[str, str], classes: int) -> tuple[str, ...]:
    """Returns the classes' names of the file's metadata in Ultralytics' form: a list, or a mapping
    by number; empty if their number is not ``classes``.
    """
    found = numbered(literal(metadata.get("names", "")))
    return tuple(map(str, found)) if len(found) == classes and None not in found else ()


def numbered(found: object) -> Sequence[object]:
    """Returns the entries of a list, or of a mapping from 0, 1, ..., in this order; empty if
    ``found`` is neither.
    """
    if isinstance(found, dict):
        numbers = range(len(found))
        return [found[number] for number in numbers] if set(found) == set(numbers) else []
    return found if isinstance(found, list | tuple) else []


def shown(node: Node | None) -> str:
    """Returns a node's operator and name for a message; None is the network's input."""
    return "the network's input" if node is None else f"{node.op} {node.name!r}"


def before(graph: OnnxGraph, node: Node) -> Node | None:
    """Returns the node that writes the first input that is no constant; None if there is none."""
    return graph.producer(next((x for x in node.inputs if not graph.constant(x)), ""))


def literal(text: str) -> object:
    """Returns the value of a Python literal of the file's metadata; None for any other text."""
    try:
        return ast.literal_eval(text.strip())
    # the last two come from deeply nested text, which is not ours
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
