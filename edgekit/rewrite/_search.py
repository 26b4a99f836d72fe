"""Applies rewrites to a fixed point: each step judged, proved, and remembered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.rewrite._prove import RUNS, SEED, prove
from edgekit.rewrite._prove_reach import constants_finite
from edgekit.rewrite._step import step_of
from edgekit.rewrite._unchanged import Unchanged

if TYPE_CHECKING:
    from edgekit.rewrite._decide import Judge
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._prove import Proof
    from edgekit.rewrite._types import Node, Rewrite, Step

__all__ = ["Search", "Taken"]

# a net that needs more has rewrites that undo each other: a bug, not a reason to hang
_MOST_STEPS_PER_NODE = 20
_MOST_PASSES = 50


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A step that was applied.

    Attributes:
        step: The step.
        proof: None where nobody asked for one.
        better: It is an improvement by itself, not only the way to one.
    """

    step: Step
    proof: Proof | None
    better: bool


@dataclass
class Search:
    """Rewrites a graph in place.

    Attributes:
        graph: The graph; changes.
        items: Rewrites to try.
        judge: Says what helps.
        proved: Whether every step is proved before it is taken.
        progress: Called with the number of steps so far.
        near: Names of the model's nodes to begin at, and to follow from there; all when None.
        taken: The steps, in the order in which they were applied.
        notes: What a user should know: proofs that failed.
    """

    graph: Graph
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
        self._refused: set[tuple[str, str]] = set()
        self._done = Unchanged(self.graph)
        self._room = _MOST_STEPS_PER_NODE * (10 + sum(1 for _ in self.graph.nodes()))

    def run(self) -> None:
        """Applies what helps until nothing does."""
        for _ in range(_MOST_PASSES):
            before = len(self.taken)
            self._pass()
            if len(self.taken) == before:
                return
        self.notes.append("rewriting was stopped before its end: please report it")

    def _pass(self) -> None:
        todo = deque(
            node
            for node in self.graph.nodes()
            if node.op in self._by_operator
            and (self.near is None or node.proto is None or node.name in self.near)
        )
        while todo:
            node = todo.popleft()
            while self._alive(node) and node not in self._done:
                self._done.begin()
                taken = self._at(node)
                if taken is None:
                    self._done.add(node)
                    break
                self._done.touch(taken)
                # what it wrote comes next, and its readers have a new neighbour
                todo.extendleft(reversed(self._beside(taken)))
                if len(self.taken) >= self._room:
                    return

    def _alive(self, node: Node) -> bool:
        return self.graph.has(node.name) and self.graph.node(node.name) is node

    def _beside(self, step: Step) -> list[Node]:
        found = {node.name: node for node in step.new if self._alive(node)}
        for name in step.outputs:
            found.update((reader.name, reader) for reader in self.graph.readers(name))
        return list(found.values())

    def _at(self, node: Node) -> Step | None:
        if node.domain:
            return None
        for item in self._by_operator.get(node.op, ()):
            if self._refused and (item.name, node.name) in self._refused:
                continue
            try:
                match = item.match(self.graph, node)
                step = step_of(self.graph, item, match) if match is not None else None
                if step is None:
                    continue
                old, new = self.judge.both(self.graph, step)
                better = new.better(old)
                if not better and (not item.enabling or new.worse(old)):
                    continue
                proof = prove(self.graph, step) if self.proved else None
            except Exception as error:
                # a bug of one rewrite must not cost the user the others
                self._report(item, node, f"failed ({type(error).__name__}: {error})")
                continue
            if proof is not None and not proof.holds():
                self._refused.add((item.name, node.name))
                if constants_finite(self.graph, step):
                    self._report(item, node, f"differs ({proof}) with seed {SEED} in {RUNS} runs")
                # a constant times 0 is only 0 where it is finite: no bug, but not equal
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
            f"rewrite {item.name} at {node.name} {what} and was left out: please report it"
        )
