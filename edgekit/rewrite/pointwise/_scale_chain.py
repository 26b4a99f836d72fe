"""Scales in a row to one BatchNormalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import form, image, scaled, vector

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ScaleChain"]

_LONGEST = 8
_OPERATORS = ("Add", "Mul", "Sub", "Div", "Neg", "BatchNormalization")


class ScaleChain:
    """Frozen batch normalisation (Mul, Add), normalised inputs (Sub, Div) and the like.

    FP32 models only: what is derived in FP16 would be less exact than the nodes it stands for.
    """

    name = "scale-chain"
    reason = "multiplications and additions of constants in a row are one SCALE layer, not several"
    operators: tuple[str, ...] = _OPERATORS
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """The last of two or more scales, with those before it."""
        source = _scaled_by(graph, node)
        if not source or graph.dtype(source) != "float32":
            return None
        reader = graph.only_reader(node.outputs[0])
        if reader is not None and _scaled_by(graph, reader) == node.outputs[0]:
            return None
        chain = [node]
        while len(chain) < _LONGEST:
            before = graph.producer(source)
            further = _scaled_by(graph, before) if before is not None else ""
            if before is None or not further or graph.only_reader(source) is None:
                break
            chain.append(before)
            source = further
        return Match(tuple(chain), source) if len(chain) > 1 else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes one BatchNormalization, its factor and shift derived from all constants."""
        source = match.facts
        count = graph.shape(source)[1]
        line = _Line(graph, new, count)
        current = source
        for node in reversed(match.nodes):
            line.then(node, current)
            current = node.outputs[0]
        scaled(new, source, line.factor, line.shift, count, output=match.nodes[0].outputs[0])


def _scaled_by(graph: Graph, node: Node) -> str:
    """Returns the image that a node scales, by numbers or one for each channel; "" if none."""
    if node.domain or node.op not in _OPERATORS:
        return ""
    if node.op in {"Neg", "BatchNormalization"}:
        rest = node.inputs[1:]
        plain = len(node.outputs) == 1 and not node.attrs.get("training_mode", 0)
        fits = plain and all(graph.constant(name) and graph.floats(name) for name in rest)
        return node.inputs[0] if fits and image(graph, node.inputs[0]) else ""
    left, right = node.inputs
    if graph.constant(left) == graph.constant(right):
        return ""
    source, constant = (right, left) if graph.constant(left) else (left, right)
    if node.op == "Div" and source == right:
        return ""
    if not image(graph, source) or graph.dtype(constant) != graph.dtype(source):
        return ""
    fits = form(graph.shape(constant), graph.shape(source)) in {"uniform", "channel"}
    return source if fits else ""


class _Line:
    """factor * x + shift, as vectors of C elements derived from constants."""

    def __init__(self, graph: Graph, new: Writer, count: int) -> None:
        import numpy as np

        self._graph, self._new, self._count = graph, new, count
        self.factor = new.constant(np.ones(count), role="one")
        self.shift = new.constant(np.zeros(count), role="zero")

    def then(self, node: Node, source: str) -> None:
        """Lets a node follow."""
        if node.op == "Neg":
            self._turn()
            return
        if node.op == "BatchNormalization":
            self._normalise(node)
            return
        first = node.inputs[0] != source
        constant = node.inputs[0] if first else node.inputs[1]
        value = vector(self._graph, self._new, constant, self._count)
        if node.op in {"Mul", "Div"}:
            self.factor = self._new.node(node.op, [self.factor, value], role="factor")
            self.shift = self._new.node(node.op, [self.shift, value], role="shift")
            return
        if node.op == "Sub" and first:
            self._turn()
        op = "Sub" if node.op == "Sub" and not first else "Add"
        self.shift = self._new.node(op, [self.shift, value], role="shift")

    def _turn(self) -> None:
        self.factor = self._new.node("Neg", [self.factor], role="factor")
        self.shift = self._new.node("Neg", [self.shift], role="shift")

    def _normalise(self, node: Node) -> None:
        new = self._new
        _, scale, bias, mean, variance = node.inputs
        epsilon = new.constant(float(node.attrs.get("epsilon", 1e-5)), like=variance)
        deviation = new.node("Sqrt", [new.node("Add", [variance, epsilon])])
        gain = new.node("Div", [scale, deviation], role="gain")
        self.factor = new.node("Mul", [self.factor, gain], role="factor")
        moved = new.node("Mul", [new.node("Sub", [self.shift, mean]), gain], role="moved")
        self.shift = new.node("Add", [moved, bias], role="shift")
