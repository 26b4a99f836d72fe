"""HardSwish, and the forms that exporters give it and HardSigmoid, to scale, clip, product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._clipped import bound, native
from edgekit.rewrite.pointwise._common import by_constant, channels, image, other_input
from edgekit.rewrite.pointwise._hard_sigmoid import hard_sigmoid

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["HardSwish"]


class HardSwish:
    """Three layers whatever the exporter wrote; the product stays within the result's range.

    The operator; x * Clip(x + 3, 0, 6) / 6 with the factor anywhere behind the clip; and
    Clip(x + 3, 0, 6) / 6 without the product.
    """

    name = "hard-swish"
    reason = (
        "the DLA has no HardSwish; the product of x and a clipped scale of x is the same function, "
        "without exporters' factor behind it"
    )
    operators: tuple[str, ...] = ("HardSwish", "Clip")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A HardSwish of an image, or the Clip(x + a, 0, b) of its other forms."""
        if node.op == "HardSwish":
            # the operator's numbers, as ONNX defines it
            swish = (node.inputs[0], 1 / 6, 0.5, 1.0, node.outputs[0], True)
            return Match((node,), swish) if image(graph, node.inputs[0]) else None
        return _composed(graph, node)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the scale, the clip and the product."""
        source, alpha, beta, high, output, multiplied = match.facts
        last = "" if multiplied else output
        count = channels(graph, source)
        gate = hard_sigmoid(new, source, alpha, beta, high, count, output=last)
        if multiplied:
            new.node("Mul", [source, gate], output=output)


def _composed(graph: Graph, clip: Node) -> Match | None:
    shifted = clip.inputs[0]
    add = graph.producer(shifted)
    found = by_constant(graph, add, "Add")
    if add is None or found is None or graph.only_reader(shifted) is not clip:
        return None
    source, shift = found
    if not image(graph, source):
        return None
    known_low, low = bound(graph, clip.input(1), graph.dtype(source))
    known_high, high = bound(graph, clip.input(2), graph.dtype(source))
    if not (known_low and known_high) or low != 0 or high is None:
        return None
    nodes, factor, multiplied = [clip, add], 1.0, False
    current = clip.outputs[0]
    # one factor and one product with x, in either order
    for _ in range(2):
        reader = graph.only_reader(current)
        if reader is None or reader.domain:
            break
        times = _factor(graph, reader, current)
        if times is not None and factor == 1.0:
            factor = times
        elif reader.op == "Mul" and other_input(reader, current) == source and not multiplied:
            multiplied = True
        else:
            break
        nodes.append(reader)
        current = reader.outputs[0]
    if factor == 1.0 or factor <= 0 or not native(0.0, factor * high):
        return None
    return Match(tuple(nodes), (source, factor, factor * shift, factor * high, current, multiplied))


def _factor(graph: Graph, node: Node, tensor: str) -> float | None:
    for op in ("Mul", "Div"):
        found = by_constant(graph, node, op)
        if found is not None and found[0] == tensor and found[1] != 0:
            return found[1] if op == "Mul" else 1 / found[1]
    return None
