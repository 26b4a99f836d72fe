"""Steps that hang together: they are kept together or taken back together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Step

__all__ = ["Region", "region_of", "regions"]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Steps of which each takes away, or reads, what another brought.

    Attributes:
        steps: Positions of the steps.
        old: Names of the model's nodes that are gone.
        new: Names of the nodes that stand there now.
    """

    steps: tuple[int, ...]
    old: frozenset[str]
    new: frozenset[str]


def regions(graph: Graph, steps: Sequence[Step]) -> tuple[Region, ...]:
    """Returns the regions of a search, in the order of their first steps.

    Args:
        graph: The graph after all ``steps``.
        steps: The steps, in the order in which they were applied.
    """
    parent = list(range(len(steps)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    node_maker: dict[int, int] = {}
    tensor_maker: dict[str, int] = {}
    for index, step in enumerate(steps):
        needs = [node_maker[id(node)] for node in step.old if id(node) in node_maker]
        read = {name for node in (*step.old, *step.new) for name in node.inputs}
        needs += [tensor_maker[name] for name in read if name in tensor_maker]
        for other in needs:
            a, b = root(index), root(other)
            parent[max(a, b)] = min(a, b)
        kept = {name for node in step.old for name in node.outputs}
        for node in step.new:
            node_maker[id(node)] = index
            # a tensor that was there before is there without the step, too
            tensor_maker.update((n, index) for n in node.outputs if n not in kept)
        tensor_maker.update((item.name, index) for item in step.fixed)
    members: dict[int, list[int]] = {}
    for index in range(len(steps)):
        members.setdefault(root(index), []).append(index)
    steps_by = dict(enumerate(steps))
    return tuple(region_of(graph, steps_by, found) for found in members.values())


def region_of(graph: Graph, steps: Mapping[int, Step], found: Sequence[int]) -> Region:
    """Returns the region of the steps at ``found``.

    Args:
        graph: The graph after the steps.
        steps: By position.
        found: Positions, in order.
    """
    old = {node.name for i in found for node in steps[i].old if node.proto is not None}
    new = {
        node.name
        for i in found
        for node in steps[i].new
        if graph.has(node.name) and graph.node(node.name) is node
    }
    return Region(tuple(found), frozenset(old), frozenset(new))
