"""One application of a rewrite: what it would replace by what, with the shapes of it all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._half import fits_half
from edgekit.rewrite._shapes import infer
from edgekit.rewrite._types import (
    MalformedError,
    Match,
    Node,
    Rewrite,
    Step,
    TooLargeError,
    proto_of,
)
from edgekit.rewrite._writer import LARGEST, Writer

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["MalformedError", "in_order", "proto_of", "step_at", "step_of"]


def step_at(graph: Graph, rewrite: Rewrite, node: Node) -> Step | None:
    """Returns what ``rewrite`` would do at ``node``; None where it does not match.

    Nor does it where it would bring numbers that FP16, in which the DLA computes, cannot hold, or
    constants so large that reading them takes longer than what they replace.

    Raises:
        MalformedError: An output is missing, or changes its shape or type.
    """
    if node.op not in rewrite.operators or node.domain:
        return None
    match = rewrite.match(graph, node)
    return None if match is None else step_of(graph, rewrite, match)


def step_of(graph: Graph, rewrite: Rewrite, match: Match) -> Step | None:
    """Returns what ``rewrite`` would do where it matches; the rest as :func:`step_at`."""
    new = Writer(graph, match)
    try:
        rewrite.replace(graph, match, new)
    except TooLargeError:
        return None
    step = _step(graph, rewrite, match, new)
    return step if _added(graph, step) <= LARGEST and fits_half(graph, step) else None


def _added(graph: Graph, step: Step) -> int:
    """Returns the elements of the constants that the new nodes read, less those of the old ones."""
    sizes = {item.name: item.value.size for item in step.fixed}
    sizes |= {
        name: math.prod(step.shapes[name])
        for node in step.new
        if node.name in step.recipes
        for name in node.outputs
        if name
    }
    made = [node for node in step.new if node.name not in step.recipes]
    return _size(graph, made, sizes) - _size(graph, step.old, {})


def _size(graph: Graph, nodes: Sequence[Node], sizes: Mapping[str, int]) -> int:
    total = 0
    for name in {name for node in nodes for name in node.inputs if name}:
        if name in sizes:
            total += sizes[name]
        elif graph.constant(name):
            total += math.prod(graph.shape(name))
    return total


def _step(graph: Graph, rewrite: Rewrite, match: Match, new: Writer) -> Step:
    written = {name for node in match.nodes for name in node.outputs if name}
    read = dict.fromkeys(name for node in match.nodes for name in node.inputs if name)
    inputs = tuple(n for n in read if n not in written and not graph.constant(n))
    outputs = tuple(sorted(n for n in written if not graph.inner(n, match.nodes)))
    shapes, dtypes = infer(graph, rewrite.name, new.nodes, new.fixed)
    for name in outputs:
        if name not in shapes:
            raise MalformedError(f"{rewrite.name} at {match.nodes[0].name} does not write {name!r}")
        was, made = (graph.dtype(name), graph.shape(name)), (dtypes[name], shapes[name])
        if was != made:
            raise MalformedError(
                f"{rewrite.name} at {match.nodes[0].name} makes {name!r} {made}, it was {was}"
            )
    return Step(
        rewrite,
        match.nodes[0].name,
        in_order(match.nodes),
        tuple(new.nodes),
        frozenset(new.recipes),
        tuple(new.fixed),
        shapes,
        dtypes,
        inputs,
        outputs,
    )


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Puts producers before readers; a match names its anchor first, wherever that stands."""
    writer = {name: node for node in nodes for name in node.outputs if name}
    found: dict[str, Node] = {}

    def visit(node: Node) -> None:
        for name in node.inputs:
            if name in writer and writer[name].name not in found:
                visit(writer[name])
        found.setdefault(node.name, node)

    for node in nodes:
        visit(node)
    return tuple(found.values())
