"""Applies rewrites to a fixed point: judges, proves and records each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.network.graph import Node
from edgekit.rewriting.graph import Rewrite, RewriteGraph, RewriteStep
from edgekit.rewriting.proof.prove import RUNS, SEED, Proof, constants_finite, prove
from edgekit.rewriting.step import find_step
from edgekit_device.protocol.codec import document

if TYPE_CHECKING:
    from edgekit.rewriting.engine.scoring import Judge


# more steps mean that rewrites undo each other: a bug, which must not become an endless loop
_MOST_STEPS_PER_NODE = 20
_MOST_PASSES = 50


class Unchanged:
    """The nodes at which no rewrite applied; a step removes the nodes that it may have changed.

    Rewrites, and the judging of a step, read the rest of the graph only through the writers and
    readers of tensors. A tensor's shape, type and value never change, and names are not reused;
    an activation that becomes a constant is the exception, and clears all nodes.
    """

    def __init__(self, graph: RewriteGraph) -> None:
        self._graph = graph
        self._nodes: set[Node] = set()
        self._by_writer: dict[str, list[Node]] = {}
        self._by_readers: dict[str, list[Node]] = {}

    def __contains__(self, node: Node) -> bool:
        """Returns True if no step changed the surroundings of ``node`` since it was added."""
        return node in self._nodes

    def begin(self) -> None:
        """Starts a trial of rewrites at another node."""
        self._graph.queried_writers.clear()
        self._graph.queried_readers.clear()

    def add(self, node: Node) -> None:
        """Records that no rewrite applied at ``node``."""
        self._nodes.add(node)
        for name in self._graph.queried_writers:
            self._by_writer.setdefault(name, []).append(node)
        for name in self._graph.queried_readers:
            self._by_readers.setdefault(name, []).append(node)

    def touch(self, step: RewriteStep) -> None:
        """Records that ``step`` was applied."""
        for node in (*step.old, *step.new):
            for name in node.outputs:
                self._nodes.difference_update(self._by_writer.pop(name, ()))
            for name in node.inputs:
                self._nodes.difference_update(self._by_readers.pop(name, ()))
        # lookups of constants are not recorded, so after a new constant any rewrite may apply
        made = {name for node in step.new if node.name in step.recipes for name in node.outputs}
        if not made.isdisjoint(step.outputs):
            self._nodes.clear()


@document(frozen=True, eq=False)
class Taken:
    """A step that was applied.

    Attributes:
        step: The step.
        proof: None if none was requested.
        better: True if it is an improvement by itself, not only a preparation.
    """

    step: RewriteStep
    proof: Proof | None
    better: bool


@dataclass
class RewriteSearch:
    """Rewrites a graph in place.

    Attributes:
        graph: The graph; changed in place.
        items: Rewrites to try.
        judge: Scores steps.
        proved: True if every step is proved before it is applied.
        progress: Called with the number of steps so far.
        near: Names of the model's nodes to start from; None for all.
        taken: The steps, in the order in which they were applied.
        notes: Notes for the user: failed proofs.
    """

    graph: RewriteGraph
    items: Sequence[Rewrite]
    judge: Judge
    proved: bool = True
    progress: Callable[[int], None] | None = None
    near: Collection[str] | None = None
    taken: list[Taken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._by_operator: dict[str, list[Rewrite]] = {}
        for item in self.items:
            for operator in item.operators:
                self._by_operator.setdefault(operator, []).append(item)
        # rewrite and node of failed proofs: each proof is an inference of both sides, and fails
        # again
        self._refused: set[tuple[str, str]] = set()
        self._done = Unchanged(self.graph)
        self._most_steps = _MOST_STEPS_PER_NODE * (10 + sum(1 for _ in self.graph.nodes()))

    def run(self) -> None:
        """Applies helpful rewrites until none is left."""
        for _ in range(_MOST_PASSES):
            before = len(self.taken)
            self._run_pass()
            # a step revisits its own nodes and their readers only; the next pass tries all others
            # that it may have changed
            if len(self.taken) == before:
                return
        self.notes.append("rewriting stopped at its limit of steps; please report this")

    def _run_pass(self) -> None:
        todo = deque(
            node
            for node in self.graph.nodes()
            if node.op in self._by_operator
            # a node without a proto was written by a step, near a node of interest
            and (self.near is None or node.proto is None or node.name in self.near)
        )
        while todo:
            node = todo.popleft()
            # a name may be written again by another node, hence the test for the same object
            while self._is_present(node) and node not in self._done:
                # the queries of this trial alone decide when the node is tried again
                self._done.begin()
                taken = self._try_rewrites(node)
                if taken is None:
                    self._done.add(node)
                    break
                self._done.touch(taken)
                # next: the written nodes, and their readers, which have a new neighbour
                todo.extendleft(reversed(self._revisited(taken)))
                if len(self.taken) >= self._most_steps:
                    return

    def _is_present(self, node: Node) -> bool:
        return self.graph.has(node.name) and self.graph.node(node.name) is node

    def _revisited(self, step: RewriteStep) -> list[Node]:
        found = {node.name: node for node in step.new if self._is_present(node)}
        for name in step.outputs:
            found.update((reader.name, reader) for reader in self.graph.readers(name))
        return list(found.values())

    def _try_rewrites(self, node: Node) -> RewriteStep | None:
        if node.domain:
            return None
        for item in self._by_operator.get(node.op, ()):
            if self._refused and (item.name, node.name) in self._refused:
                continue
            try:
                step = find_step(self.graph, item, node)
                if step is None:
                    continue
                old, new = self.judge.both(self.graph, step)
                better = new.better(old)
                # cheapest test first: a proof is computed only for steps that will be applied
                if not better and (not item.enabling or new.worse(old)):
                    continue
                proof = prove(self.graph, step) if self.proved else None
            except Exception as error:
                # a bug of one rewrite must not prevent the others
                self._report(item, node, f"failed ({type(error).__name__}: {error})")
                continue
            if proof is not None and not proof.holds():
                self._refused.add((item.name, node.name))
                if constants_finite(self.graph, step):
                    self._report(item, node, f"differs {proof}, with seed {SEED} in {RUNS} runs")
                # 0 times an infinite constant is not 0: not a bug, but not equal either
                continue
            self.graph.apply(step)
            self.taken.append(Taken(step, proof, better))
            if self.progress is not None:
                self.progress(len(self.taken))
            return step
        return None

    def _report(self, item: Rewrite, node: Node, what: str) -> None:
        self._refused.add((item.name, node.name))
        self.notes.append(
            f"rewrite {item.name} at {node.name} {what} and was skipped; please report this"
        )
