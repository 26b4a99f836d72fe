"""LSTM, written out step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.sequence._recurrence import recurrence
from edgekit.rewrite.sequence._unroll import Direction, unroll

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Lstm"]

_GATES = 4  # input, output, forget, cell
_INPUT, _OUTPUT, _FORGET, _CELL = range(_GATES)
_PEEPHOLES = 7


class Lstm:
    """LSTM(x) = per step: c' = f c + i g, h' = o tanh(c'), with gates i, o, f and g."""

    name = "lstm-unroll"
    reason = (
        "a DLA has no loops; an LSTM over a short sequence is 1x1 convolutions, sigmoids, "
        "hyperbolic tangents, products and sums"
    )
    operators: tuple[str, ...] = ("LSTM",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Matches constant weights, static short sequences, functions that a DLA has."""
        if node.attrs.get("input_forget", 0):
            return None
        what = recurrence(graph, node, _GATES, ("Sigmoid", "Tanh", "Tanh"), (_PEEPHOLES,))
        return None if what is None else Match((node, *what.origin.nodes), what)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the steps."""
        node = match.nodes[0]
        peeps: dict[Direction, list[str]] = {}

        def looked(at: Direction, step: int, gate: int, total: str, cell: str) -> str:
            """The sum for a gate that sees the cell through its own weights."""
            if at not in peeps:
                peeps[at] = [at.peephole(index) for index in range(3)]
            return at.op("Add", step, total, at.op("Mul", step, cell, peeps[at][gate]))

        def apart(at: Direction, step: int, h: str, c: str) -> list[str]:
            new_ = at.function(1, step, at.sum(step, _CELL, 1, h))
            total = at.sum(step, _INPUT, 1, h)
            total = looked(at, step, _INPUT, total, c) if c else total
            made = at.op("Mul", step, at.function(0, step, total), new_)
            if c:
                total = looked(at, step, _FORGET, at.sum(step, _FORGET, 1, h), c)
                kept = at.op("Mul", step, at.function(0, step, total), c)
                made = at.op("Add", step, kept, made)
            total = looked(at, step, _OUTPUT, at.sum(step, _OUTPUT, 1, h), made)
            opened = at.function(0, step, total)
            return [at.op("Mul", step, opened, at.function(2, step, made)), made]

        def together(at: Direction, step: int, h: str, c: str) -> list[str]:
            # without a cell there is nothing to forget
            gates = 3 if c else 2
            opened = at.function(0, step, at.sum(step, _INPUT, gates, h))
            inward, outward, *forget = at.split(step, opened, gates)
            made = at.op("Mul", step, inward, at.function(1, step, at.sum(step, _CELL, 1, h)))
            if c:
                made = at.op("Add", step, at.op("Mul", step, forget[0], c), made)
            return [at.op("Mul", step, outward, at.function(2, step, made)), made]

        way = apart if node.input(_PEEPHOLES) else together
        unroll(new, node, match.facts, lambda at, step, state: way(at, step, *state), (5, 6))
