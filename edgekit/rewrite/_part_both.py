"""When two steps are the same to a judge, so that both their sides are put together once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from edgekit.rewrite._forms import form
from edgekit.rewrite._part import Around, Part

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Step

__all__ = ["both_key"]


def both_key(graph: Graph, step: Step, beside: Around) -> Hashable:
    """Returns what steps have in common whose parts, old and new, have equal keys.

    It stands for the nodes of both sides and those beside them, how they are connected, what
    their verdicts depend on, and which tensors are needed elsewhere.
    """
    before, after = beside
    made = [node for node in step.new if node.name not in step.recipes]
    shared = (*before, *after)
    names = {node.name for node in shared}
    own_old = names.union(node.name for node in step.old)
    own_new = names.union(node.name for node in made)
    number = {"": -1}
    rows: list[Hashable] = [len(before), len(after), len(step.old)]
    sides = (
        (Part(graph, (*shared, *step.old), (), None), (*shared, *step.old)),
        (Part(graph, (*shared, *made), (), step), made),
    )
    for part, nodes in sides:
        # a name of an old tensor may come again for another one
        again = step.shapes.keys() & number.keys() if nodes is made else ()
        for node in nodes:
            rows += (form(node), len(node.inputs), len(node.outputs))
            for name in (*node.inputs, *node.outputs):
                known = number.get(name)
                if known is None:
                    known = number[name] = len(number)
                    rows.append(part.facts(name))
                elif name in again:
                    rows.append(part.facts(name))
                rows.append(known)
            for name in node.outputs:
                rows += (
                    graph.returned(name),
                    graph.read_within(name, own_old),
                    graph.read_within(name, own_new),
                )
    # what was computed may be a constant from now on
    rows += (part.facts(name) for name in step.outputs)
    rows += (number.get(name) for name in step.outputs)
    return tuple(rows)
