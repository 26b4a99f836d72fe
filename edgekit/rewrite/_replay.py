"""Known steps once more, without any decision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.rewrite._all import rewrites
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._step import step_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.network import Model
    from edgekit.rewrite._types import Step

__all__ = ["replay", "steps_again"]


def replay(model: Model, steps: Iterable[tuple[str, str]]) -> Graph:
    """Returns the graph of ``model`` after the named steps.

    Args:
        model: The model in the opset in which the steps were found.
        steps: Rewrite and anchor node of each, in order.

    Raises:
        ModelError: "rewrite.replay": a rewrite is unknown, or does not match there.
    """
    graph = Graph(model)
    for step in steps_again(graph, steps):
        graph.apply(step)
    return graph


def steps_again(graph: Graph, steps: Iterable[tuple[str, str]]) -> Iterator[Step]:
    """Yields each named step as it matches now; the caller applies it before asking for the next.

    Raises:
        ModelError: As :func:`replay`.
    """
    known = {item.name: item for item in rewrites()}
    for name, anchor in steps:
        step = None
        if name in known and graph.has(anchor):
            step = step_at(graph, known[name], graph.node(anchor))
        if step is None:
            raise ModelError(
                f"rewrite {name!r} does not apply at node {anchor!r}",
                code="rewrite.replay",
                where=anchor,
                hint="the model is not the one that was rewritten, or by another edgekit release",
            )
        yield step
