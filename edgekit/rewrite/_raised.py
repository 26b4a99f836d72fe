"""What raising the opset changed, proved like a rewrite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.rewrite._graph import Graph
from edgekit.rewrite._prove import RUNS, SEED, Proof, compare, random_feeds
from edgekit.rewrite._types import Applied, MalformedError, Node, names

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["RAISED", "RAISED_REASON", "holds", "raised_entry"]

#: Name of the entry; no rewrite of the list, for it has no anchor.
RAISED = "raise-opset"
RAISED_REASON = (
    "before opset 13 Softmax is one of two dimensions, which no DLA runs, and forms that other "
    "rewrites write do not exist; it comes with whatever is enabled, named or not, unless disabled"
)


def raised_entry(model: Model, raised: Model, *, runs: int = RUNS, seed: int = SEED) -> Applied:
    """Returns the record of raising ``model`` to ``raised``, with the worst of its nodes' proofs.

    Nodes whose operator, attributes and inputs stayed are none of it.
    """
    from edgekit.rewrite._prove_run import Part

    old, new = Graph(model), Graph(raised)
    gone: list[Node] = []
    come: list[Node] = []
    worst = Proof(0.0, 0.0)
    for node in old.nodes():
        made = _makers(node, old, new)
        if len(made) == 1 and _form(made[0]) == _form(node):
            continue
        gone.append(node)
        come += made
        outputs = [name for name in node.outputs if name]
        read = [name for name in dict.fromkeys(node.inputs) if name and not old.constant(name)]
        feeds = random_feeds(old, read, runs, seed)
        try:
            proof = compare(Part(old, [node], ()), Part(new, made, ()), feeds, outputs)
        except MalformedError:  # what cannot be computed is not proved
            proof = Proof(math.inf, math.inf)
        worst = Proof(
            max(worst.float32 or 0.0, proof.float32 or 0.0), max(worst.float64, proof.float64)
        )
    return Applied(
        RAISED,
        RAISED_REASON,
        "",
        names(gone),
        names(come),
        worst.float32,
        worst.float64,
        runs,
        seed,
    )


def holds(entry: Applied) -> bool:
    """Whether raising changed no result."""
    return Proof(entry.max_error, entry.max_error_float64 or 0.0).holds()


def _makers(node: Node, old: Graph, new: Graph) -> list[Node]:
    """The nodes that write in ``new`` what ``node`` wrote, in topological order."""
    found: dict[str, Node] = {}

    def add(tensor: str) -> None:
        maker = new.producer(tensor)
        if maker is None or maker.name in found or tensor in node.inputs:
            return
        if maker.name != node.name and old.has(maker.name):
            return
        for name in maker.inputs:
            add(name)
        found[maker.name] = maker

    for tensor in node.outputs:
        add(tensor)
    return list(found.values())


def _form(node: Node) -> tuple[object, ...]:
    return node.op, node.inputs, node.outputs, sorted(map(str, node.attrs.items()))
