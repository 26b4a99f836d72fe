"""A tensor's readers read another tensor that is the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again
from edgekit.rewrite.layout._operators import normal

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["a_reader", "forward", "read_instead", "without"]

# whichever neighbour is written again is proved again: rather the one with few weights
_HEAVY = 1 << 20


def forward(graph: Graph, node: Node, source: str) -> Match | None:
    """Matches the removal of a node whose only used result equals ``source``, which it reads.

    What writes ``source`` writes the result instead when nothing else reads ``source``; else one
    of the readers reads ``source``, the others in further applications. None when both is
    impossible: a result that is returned, of a source that others need.
    """
    output = node.outputs[0]
    if any(name and (graph.readers(name) or graph.returned(name)) for name in node.outputs[1:]):
        return None
    producer = graph.producer(source)
    reader = a_reader(graph, node)
    if (
        producer is not None
        and normal(producer)
        and graph.inner(source, (node,))
        and (reader is None or _weight(graph, producer) <= max(_HEAVY, _weight(graph, reader)))
    ):
        return Match((node, producer), (source, output))
    if reader is None or graph.returned(output):
        return None
    return Match((node, reader), (output, source))


def a_reader(graph: Graph, node: Node) -> Node | None:
    """Returns the first node that reads a node's first result and can be written again."""
    return next((item for item in graph.readers(node.outputs[0]) if normal(item)), None)


def without(graph: Graph, match: Match, new: Writer) -> None:
    """Writes what a match of :func:`forward` asks for."""
    node, other = match.nodes
    was, now = match.facts
    if was in other.outputs:
        outputs = [now if name == was else name for name in other.outputs]
        new.many(other.op, other.inputs, outputs, name=other.name, **other.attrs)
        return
    again(graph, new, (node,), (other,))
    read_instead(new, other, was, now)


def read_instead(new: Writer, reader: Node, was: str, now: str) -> None:
    """Writes a node again, reading ``now`` where it read ``was``."""
    inputs = [now if name == was else name for name in reader.inputs]
    new.many(reader.op, inputs, reader.outputs, name=reader.name, **reader.attrs)


def _weight(graph: Graph, node: Node) -> int:
    return sum(math.prod(graph.shape(n)) for n in node.inputs if n and graph.constant(n))
