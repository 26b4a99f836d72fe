"""A transposition moves behind the operation that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again, write
from edgekit.rewrite.layout._operators import BROADCASTING
from edgekit.rewrite.layout._transposed import TURNED, turned
from edgekit.rewrite.layout._views import permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["SinkTranspose"]


class SinkTranspose:
    """Transpose, operation -> operation, Transpose.

    The operation is element-wise, or works along axes, which are mapped; constants that it reads
    are transposed by recipes. Operations of several tensors need them all transposed in the same
    way, or with only dimensions of size 1 to be moved; a graph input may be read where it is
    transposed back already. The number of ways from transpositions to operations gets smaller
    with every application, and nothing moves a transposition towards the inputs, so it ends. (A
    graph input that is read behind its transposition is one way more; that happens when another
    operand loses a transposition, of which what stands before has a limited number.) A Resize
    changes height and width on the other side, or the transposition stays where it is: what
    resize-channels-last turned is never turned back, and its matches get fewer.
    """

    name = "sink-transpose"
    reason = (
        "networks exported in N, H, W, C transpose around every convolution: behind the "
        "operations these meet, cancel, and leave one at the network's end"
    )
    operators: tuple[str, ...] = TURNED
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks for an operand that a transposition wrote."""
        several = node.op in BROADCASTING or node.op == "Concat"
        for name in dict.fromkeys(node.inputs if several else node.inputs[:1]):
            made = graph.producer(name)
            if made is None or made.op != "Transpose" or made.domain:
                continue
            there = turned(graph, node, permutation(graph, made))
            if there is not None:
                return Match((node, *there.passed), there)
        return None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the operation and a Transpose behind each of its results."""
        node, *passed = match.nodes
        again(graph, new, tuple(passed), (node,), match.facts)
        perm = match.facts.perm
        if perm == tuple(range(len(perm))):
            write(new, node, match.facts, list(node.outputs))
            return
        made = write(new, node, match.facts, [""] * len(node.outputs))
        gone = [item.name for item in passed if graph.inner(item.outputs[0], (node,))]
        for plain, old in zip(made, node.outputs, strict=True):
            name = gone.pop() if gone else f"{node.name}:transpose"
            new.node("Transpose", [plain], output=old, name=name, perm=list(perm))
