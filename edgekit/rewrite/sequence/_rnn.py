"""RNN, written out step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.sequence._recurrence import recurrence
from edgekit.rewrite.sequence._unroll import Direction, unroll

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Rnn"]


class Rnn:
    """RNN(x) = per step: h' = tanh(W x + R h + b), or another activation."""

    name = "rnn-unroll"
    reason = (
        "a DLA has no loops; an RNN over a short sequence is 1x1 convolutions, sums and activations"
    )
    operators: tuple[str, ...] = ("RNN",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Matches constant weights, static short sequences, functions that a DLA has."""
        what = recurrence(graph, node, 1, ("Tanh",))
        return None if what is None else Match((node, *what.origin.nodes), what)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the steps."""

        def cell(at: Direction, step: int, state: list[str]) -> list[str]:
            return [at.function(0, step, at.sum(step, 0, 1, state[0]))]

        unroll(new, match.nodes[0], match.facts, cell, (5,))
