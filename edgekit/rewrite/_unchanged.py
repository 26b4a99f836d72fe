"""Nodes at which nothing applied, as long as nothing changes of what was looked at there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node, Step

__all__ = ["Unchanged"]


class Unchanged:
    """Remembers where rewrites were tried in vain, and forgets what a step may have changed.

    A rewrite, and the judging of a step, see the rest of the graph through the writers and the
    readers of tensors alone. Shapes, types and values of a tensor never change, nor is a name used
    twice; the exception, an activation that becomes a constant, forgets everything.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: set[Node] = set()
        self._by_writer: dict[str, list[Node]] = {}
        self._by_readers: dict[str, list[Node]] = {}

    def __contains__(self, node: Node) -> bool:
        """Whether nothing has changed for ``node`` since it was added."""
        return node in self._nodes

    def begin(self) -> None:
        """Says that rewrites are tried at another node from here on."""
        self._graph.asked_writers.clear()
        self._graph.asked_readers.clear()

    def add(self, node: Node) -> None:
        """Says that none applied at ``node``."""
        self._nodes.add(node)
        for name in self._graph.asked_writers:
            self._by_writer.setdefault(name, []).append(node)
        for name in self._graph.asked_readers:
            self._by_readers.setdefault(name, []).append(node)

    def touch(self, step: Step) -> None:
        """Says that ``step`` was applied."""
        for node in (*step.old, *step.new):
            for name in node.outputs:
                self._nodes.difference_update(self._by_writer.pop(name, ()))
            for name in node.inputs:
                self._nodes.difference_update(self._by_readers.pop(name, ()))
        made = {name for node in step.new if node.name in step.recipes for name in node.outputs}
        if not made.isdisjoint(step.outputs):
            self._nodes.clear()
