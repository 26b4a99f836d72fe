"""Max and Min with constants to clips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._clipped import bound, clippable, clipped
from edgekit.rewrite.pointwise._common import channels, form, image, scaled, to_shape, vector

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["MaxMinConstant"]

_OTHER = {"Max": "Min", "Min": "Max"}


class MaxMinConstant:
    """Min(Max(x, a), b) and Min(Relu(x), b) are one clip."""

    name = "max-min-constant"
    reason = (
        "a constant operand of Max or Min stays on the GPU; ReLU or a clipped ReLU between scales "
        "holds the bound itself"
    )
    operators: tuple[str, ...] = ("Max", "Min")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Max or Min of an image and a constant, with the one before it if there is one."""
        found = _bounded(graph, node)
        if found is None:
            return None
        source, value = found
        reader = graph.only_reader(node.outputs[0])
        if value is not None and reader is not None and reader.op == _OTHER[node.op]:
            after = _bounded(graph, reader)
            if after is not None and after[1] is not None:
                # that one takes this one along
                return None
        if value is None:
            return Match((node,), (source, None, None))
        nodes = [node]
        bounds: dict[str, float | None] = {node.op: value, _OTHER[node.op]: None}
        before = graph.producer(source)
        if before is not None and graph.only_reader(source) is node:
            inner = _bounded(graph, before) if before.op == _OTHER[node.op] else None
            if inner is not None and inner[1] is not None:
                nodes.append(before)
                source, bounds[before.op] = inner
            elif before.op == "Relu" and node.op == "Min" and not before.domain:
                nodes.append(before)
                source, bounds["Max"] = before.inputs[0], 0.0
        low, high = bounds["Max"], bounds["Min"]
        if not clippable(low, high):
            return None
        return Match(tuple(nodes), (source, low, high))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a clip; for a constant of several elements a shift to zero, ReLU, and back."""
        node = match.nodes[0]
        source, low, high = match.facts
        count = channels(graph, source)
        if low is None and high is None:
            _by_tensor(graph, new, node, source)
        else:
            clipped(new, source, low, high, count, output=node.outputs[0])


def _bounded(graph: Graph, node: Node) -> tuple[str, float | None] | None:
    """Returns the activation and the bound; None for the bound when it has several elements."""
    if node.domain or len(node.inputs) != 2:
        return None
    fixed = [graph.constant(name) for name in node.inputs]
    if fixed not in ([True, False], [False, True]):
        return None
    source, constant = node.inputs if fixed[1] else reversed(node.inputs)
    if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
        return None
    fits = form(graph.shape(constant), graph.shape(source))
    if fits == "uniform":
        known, value = bound(graph, constant, graph.dtype(source))
        return (source, value) if known and value is not None else None
    return (source, None) if fits else None


def _by_tensor(graph: Graph, new: Writer, node: Node, source: str) -> None:
    constant = next(name for name in node.inputs if name != source)
    shape = graph.shape(source)
    sign = 1.0 if node.op == "Max" else -1.0
    count = shape[1]
    if form(graph.shape(constant), shape) == "channel":
        shift = vector(graph, new, constant, count)
        first = new.node("Neg", [shift]) if sign > 0 else shift
        moved = scaled(new, source, sign, first, count, role="to_zero")
        kept = new.node("Relu", [moved], role="relu")
        again = vector(graph, new, constant, count)
        scaled(new, kept, sign, again, count, output=node.outputs[0], role="back")
        return
    shift = to_shape(graph, new, constant, shape)
    # a copy: a constant that two layers read would stay a layer of its own
    again = new.node("Neg", [new.node("Neg", [shift])], role="copy")
    if sign > 0:
        moved = new.node("Add", [source, new.node("Neg", [shift])], role="to_zero")
        kept = new.node("Relu", [moved], role="relu")
    else:
        turned = scaled(new, source, -1.0, 0.0, count, role="turned")
        moved = new.node("Add", [turned, shift], role="to_zero")
        kept = scaled(new, new.node("Relu", [moved], role="relu"), -1.0, 0.0, count)
    new.node("Add", [kept, again], output=node.outputs[0])
