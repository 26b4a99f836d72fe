"""GRU, written out step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.sequence._recurrence import recurrence
from edgekit.rewrite.sequence._unroll import Direction, unroll

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Gru"]

_GATES = 3  # update, reset, hidden


class Gru:
    """GRU(x) = per step: h' = n - z (n - h), with gates z and r and the new state n.

    The usual (1 - z) n + z h in a form without the constant 1.
    """

    name = "gru-unroll"
    reason = (
        "a DLA has no loops; a GRU over a short sequence is 1x1 convolutions, sigmoids, "
        "hyperbolic tangents, products and sums"
    )
    operators: tuple[str, ...] = ("GRU",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Matches constant weights, static short sequences, functions that a DLA has."""
        what = recurrence(graph, node, _GATES, ("Sigmoid", "Tanh"))
        return None if what is None else Match((node, *what.origin.nodes), what)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the steps."""
        node = match.nodes[0]
        late = bool(node.attrs.get("linear_before_reset", 0))
        hidden, biased = match.facts.hidden, bool(node.input(3))

        def cell(at: Direction, step: int, state: list[str]) -> list[str]:
            (h,) = state
            # without a state the reset gate has only a bias to work on
            gates = 2 if h or (late and biased) else 1
            opened = at.function(0, step, at.sum(step, 0, gates, h))
            update, *reset = at.split(step, opened, gates)
            made = at.fed(step, 2)
            if h and late:
                turned = at.turned(step, h, 2, bias=True)
                made = at.op("Add", step, made, at.op("Mul", step, reset[0], turned))
            elif h:
                kept = at.op("Mul", step, reset[0], h)
                made = at.op("Add", step, made, at.turned(step, kept, 2))
            elif reset:
                bias = at.state_bias(2, (1, hidden, 1, 1))
                made = at.op("Add", step, made, at.op("Mul", step, reset[0], bias))
            fresh = at.function(1, step, made)
            away = at.op("Sub", step, fresh, h) if h else fresh
            return [at.op("Sub", step, fresh, at.op("Mul", step, update, away))]

        unroll(new, node, match.facts, cell, (5,), apart=1 if late else 0)
