"""What a GRU, LSTM or RNN node says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite.sequence._origin import Origin, origin

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["Recurrence", "recurrence"]

# each step is a dozen layers: longer sequences make networks that no builder likes
_MOST_STEPS = 64
# what a DLA has: the others that a node may name would go back to the GPU at every step
_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What a GRU, LSTM or RNN node says, all of it static.

    Attributes:
        steps: Length of the sequence.
        batch: Batch size.
        features: Size of the input at each step.
        hidden: Size of the state.
        gates: Gates per direction: rows of the weights are gates times hidden.
        reverse: For each direction whether it goes from the end to the begin.
        functions: For each direction its activations, as ONNX operators.
        turned: Whether the batch is the first dimension (layout 1).
        origin: What holds the sequence.
    """

    steps: int
    batch: int
    features: int
    hidden: int
    gates: int
    reverse: tuple[bool, ...]
    functions: tuple[tuple[str, ...], ...]
    turned: bool
    origin: Origin

    def sizes(self) -> dict[str, int]:
        """Returns the sizes of the sequence's dimensions."""
        return {"n": self.batch, "c": self.features, "t": self.steps}


def recurrence(
    graph: Graph, node: Node, gates: int, usual: Sequence[str], optional: Sequence[int] = ()
) -> Recurrence | None:
    """Returns what a node says; None where it cannot be unrolled.

    Args:
        graph: The graph.
        node: The node.
        gates: Number of gates of the operator.
        usual: Its activations where the node names none.
        optional: Further inputs that must be constant where they are given.
    """
    attrs = node.attrs
    x, w, r = (node.input(index) for index in range(3))
    if "clip" in attrs or not graph.floats(x) or graph.constant(x):
        return None
    if not all(graph.constant(t) for t in (w, r, *(node.input(i) for i in (3, *optional))) if t):
        return None
    turned = bool(attrs.get("layout", 0))
    shape = graph.shape(x)
    steps, batch = (shape[1], shape[0]) if turned else (shape[0], shape[1])
    if steps > _MOST_STEPS or not _full_length(graph, node.input(4), steps):
        return None
    direction = attrs.get("direction", "forward")
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    count = len(reverse)
    named = [str(name).lower() for name in attrs.get("activations") or list(usual) * count]
    if len(named) != len(usual) * count or not all(name in _FUNCTIONS for name in named):
        return None
    each = [_FUNCTIONS[name] for name in named]
    size = len(usual)
    functions = tuple(tuple(each[i * size : (i + 1) * size]) for i in range(count))
    sizes = {"n": batch, "c": shape[2], "t": steps}
    found = origin(graph, node, "ntc" if turned else "tnc", sizes)
    hidden = graph.shape(r)[2]
    return Recurrence(steps, batch, shape[2], hidden, gates, reverse, functions, turned, found)


def _full_length(graph: Graph, lengths: str, steps: int) -> bool:
    if not lengths:
        return True
    value = graph.ints(lengths)
    return value is not None and all(item == steps for item in value)
