"""Where a sequence comes from: often from an image, by transpositions and reshapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Origin", "origin"]

# nodes between an image and a sequence: exporters write two or three
_FAR = 5
_RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Origin:
    """A tensor that holds a sequence's elements.

    Attributes:
        tensor: Its name.
        order: Which of its dimensions over 1 are which: "n" (batch), "c" (features), "t" (steps).
        shape: Its shape.
        nodes: Nodes between it and the sequence, nearest first.
        needed: How many of them, the last ones, are there for others too.
    """

    tensor: str
    order: str
    shape: tuple[int, ...]
    nodes: tuple[Node, ...] = ()
    needed: int = 0

    def image(self, sizes: dict[str, int]) -> bool:
        """Whether it is [N, C, 1, T] or [N, C, T, 1] already."""
        n, c, t = (sizes[name] for name in "nct")
        wanted = "".join(name for name in "nct" if sizes[name] > 1)
        return self.order == wanted and self.shape in {(n, c, 1, t), (n, c, t, 1)}

    def write(self, new: Writer, sizes: dict[str, int]) -> tuple[str, int]:
        """Writes what makes an image of it; returns that image and the axis of the steps.

        Nodes that others need are written again as they were.
        """
        for node in self.nodes[::-1][: self.needed]:
            new.many(node.op, node.inputs, node.outputs, name=node.name, **node.attrs)
        n, c, t = (sizes[name] for name in "nct")
        if self.image(sizes):
            return self.tensor, 3 if self.shape[2] == 1 else 2
        if n == 1 and self.order in {"ct", "c", "t", ""}:
            shape = new.constant([1, c, 1, t], role="shape")
            return new.node("Reshape", [self.tensor, shape], role="image"), 3
        if n == 1:
            # the transposition has four dimensions and leaves the batch where it is
            shape = new.constant([1, t, c, 1], role="shape")
            rows = new.node("Reshape", [self.tensor, shape], role="rows")
            return new.node("Transpose", [rows], role="image", perm=[0, 2, 1, 3]), 2
        shape = new.constant([n, c, 1, t], role="shape")
        order = [self.places()[name] for name in "nct"]
        x = new.node("Transpose", [self.tensor], role="channels", perm=order)
        return new.node("Reshape", [x, shape], role="image"), 3

    def places(self) -> dict[str, int]:
        """Where the three dimensions of the sequence itself stand; it has rank 3."""
        return {name: index for index, name in enumerate(self.order)}


def origin(graph: Graph, node: Node, order: str, sizes: dict[str, int]) -> Origin:
    """Returns the tensor that a recurrence is best computed from.

    An image where there is one behind a few transpositions and reshapes; otherwise, for a single
    sample, the tensor farthest back; otherwise the sequence itself.

    Args:
        graph: The graph.
        node: The recurrence.
        order: The dimensions of the sequence: "tnc" or "ntc".
        sizes: Their sizes.
    """
    x = node.inputs[0]
    long = "".join(name for name in order if sizes[name] > 1)
    found = [Origin(x, long, graph.shape(x))]
    labels: list[str] = [name if sizes[name] > 1 else "" for name in order]
    nodes: list[Node] = []
    reader, apart = node, 0
    for _ in range(_FAR):
        last = found[-1]
        made = graph.producer(last.tensor)
        before = None if made is None else _before(graph, made, labels)
        if made is None or before is None:
            break
        labels = before
        if len(nodes) == apart and graph.only_reader(last.tensor) is reader:
            apart += 1
        nodes.append(made)
        source, shape = made.inputs[0], graph.shape(made.inputs[0])
        needed = len(nodes) - apart
        found.append(Origin(source, "".join(labels), shape, tuple(nodes), needed))
        reader = made
    for item in found:
        if item.image(sizes):
            return item
    return found[-1] if sizes["n"] == 1 else Origin(x, order, graph.shape(x))


def _before(graph: Graph, node: Node, labels: Sequence[str]) -> list[str] | None:
    """The labels of a node's input, from those of its output; None for other operators."""
    if node.domain or graph.constant(node.inputs[0]):
        return None
    source = graph.shape(node.inputs[0])
    if node.op == "Transpose":
        made = [""] * len(source)
        order = node.attrs.get("perm") or range(len(source))[::-1]
        for label, axis in zip(labels, order, strict=True):
            made[axis] = label
        return made
    target = graph.shape(node.outputs[0])
    if node.op not in _RESHAPES or [s for s in source if s > 1] != [s for s in target if s > 1]:
        return None
    # dimensions over 1 keep their order and their sizes
    left = iter([label for label in labels if label])
    return [next(left) if size > 1 else "" for size in source]
