"""Repeats known steps without decisions, and groups connected steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.disjoint_sets import DisjointSets
from edgekit.errors import ModelError
from edgekit.network.graph import Node
from edgekit.network.model import Model
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.graph import Applied, NewConstant, RewriteGraph, RewriteStep
from edgekit.rewriting.proof.prove import RUNS, SEED, Proof, prove
from edgekit.rewriting.rules.order import REWRITES
from edgekit.rewriting.step import step_at
from edgekit_device.protocol.codec import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.rewriting.engine.search import Taken


@document(frozen=True, eq=False)
class Region:
    """Connected steps: each removes or reads a node that another step added.

    Attributes:
        steps: Positions of the steps.
        old: Names of the model's removed nodes.
        new: Names of the nodes that replace them.
    """

    steps: tuple[int, ...]
    old: frozenset[str]
    new: frozenset[str]


def regions(graph: RewriteGraph, steps: Sequence[RewriteStep]) -> tuple[Region, ...]:
    """Returns the regions of a search, in the order of their first steps.

    Args:
        graph: The graph after all ``steps``.
        steps: The steps, in the order in which they were applied.
    """
    together = DisjointSets[int]()
    node_maker: dict[int, int] = {}
    tensor_maker: dict[str, int] = {}
    for index, step in enumerate(steps):
        # by object: a step may write a node again under its old name
        needs = [node_maker[id(node)] for node in step.old if id(node) in node_maker]
        read = {name for node in (*step.old, *step.new) for name in node.inputs}
        needs += [tensor_maker[name] for name in read if name in tensor_maker]
        # a step that needs no other is a region as well
        together.root(index)
        together.join(index, *needs)
        outputs = {name for node in step.old for name in node.outputs}
        for node in step.new:
            node_maker[id(node)] = index
            # a tensor that existed before exists without the step, too
            tensor_maker.update((n, index) for n in node.outputs if n not in outputs)
        tensor_maker.update((item.name, index) for item in step.fixed)
    steps_by = dict(enumerate(steps))
    return tuple(build_region(graph, steps_by, found) for found in together.members())


def build_region(
    graph: RewriteGraph, steps: Mapping[int, RewriteStep], found: Sequence[int]
) -> Region:
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


def make_entry(step: RewriteStep, proof: Proof, *, runs: int = RUNS, seed: int = SEED) -> Applied:
    """Returns the record's entry of a step; approximate steps have no error in float64."""
    exact = not step.rewrite.approximate
    return Applied(
        step.rewrite.name,
        step.rewrite.reason,
        step.anchor,
        tuple(node.name for node in step.old),
        tuple(node.name for node in step.new),
        proof.float32,
        proof.float64 if exact else None,
        runs,
        seed,
    )


@document(frozen=True, eq=False)
class Replayed:
    """The remaining steps of a search.

    Attributes:
        graph: The graph after the steps.
        taken: The steps by their positions in the search, in order.
        regions: The regions of connected steps.
    """

    graph: RewriteGraph
    taken: Mapping[int, Taken]
    regions: tuple[Region, ...]


def replay_regions(
    model: Model, taken: Mapping[int, Taken], left: Sequence[Region], notes: list[str]
) -> Replayed:
    """Applies the steps of some regions again, without the other regions' steps.

    A step that has changed is proved again. A region with a step that no longer matches, or fails
    its proof, is omitted, and the others are tried without it.

    Args:
        model: The model in the opset in which the steps were found.
        taken: The steps by position.
        left: The regions.
        notes: Gets a line for each changed step that fails its proof.
    """
    left = list(left)
    while True:
        graph = RewriteGraph(model)
        made: dict[int, Taken] = {}
        for index in sorted(i for region in left for i in region.steps):
            again = _match_again(graph, taken[index], notes)
            if again is None:
                left = [region for region in left if index not in region.steps]
                # without a step its region is incomplete: all remaining regions are matched anew on
                # a fresh graph
                break
            graph.apply(again.step)
            made[index] = again
        else:
            steps = {index: item.step for index, item in made.items()}
            return Replayed(
                graph, made, tuple(build_region(graph, steps, region.steps) for region in left)
            )


def _match_again(graph: RewriteGraph, taken: Taken, notes: list[str]) -> Taken | None:
    """Returns a step as it matches now, proved if it was before; None if either fails."""
    anchor = taken.step.anchor
    try:
        step = step_at(graph, taken.step.rewrite, graph.node(anchor)) if graph.has(anchor) else None
        if step is None:
            return None
        # ``same_step`` compares all that the proof depends on
        if taken.proof is None or same_step(step, taken.step):
            return replace(taken, step=step)
        proof = prove(graph, step)
        if proof.holds():
            return replace(taken, step=step, proof=proof)
        why = f"differs {proof}, with seed {SEED} in {RUNS} runs"
    except Exception as error:
        # a bug of one rewrite must not prevent the others
        why = f"failed ({type(error).__name__}: {error})"
    note = f"rewrite {taken.step.rewrite.name} at {anchor} {why}"
    note += " after other rewrites were undone, and was skipped; please report this"
    # a region may be replayed for several trials
    if note not in notes:
        notes.append(note)
    return None


def same_step(a: RewriteStep, b: RewriteStep) -> bool:
    """Returns True if two steps of a search read, remove and add the same."""
    return (
        _forms(a.old) == _forms(b.old)
        and _forms(a.new) == _forms(b.new)
        and (a.inputs, a.outputs) == (b.inputs, b.outputs)
        and (a.shapes, a.dtypes) == (b.shapes, b.dtypes)
        and _constant_forms(a.fixed) == _constant_forms(b.fixed)
    )


def _forms(nodes: Sequence[Node]) -> list[tuple[object, ...]]:
    return [
        (n.name, n.domain, n.op, n.inputs, n.outputs, sorted(map(str, n.attrs.items())))
        for n in nodes
    ]


def _constant_forms(constants: Sequence[NewConstant]) -> list[tuple[object, ...]]:
    return [(c.name, c.dtype, c.value.shape, c.value.tobytes()) for c in constants]


def replay(model: Model, steps: Iterable[tuple[str, str]]) -> RewriteGraph:
    """Returns the graph of ``model`` after the named steps.

    Args:
        model: The model in the opset in which the steps were found.
        steps: Rewrite and anchor node of each, in order.

    Raises:
        ModelError: "rewrite.replay": a rewrite is unknown, or does not match there.
    """
    graph = RewriteGraph(model)
    for step in match_steps(graph, steps):
        graph.apply(step)
    return graph


def match_steps(graph: RewriteGraph, steps: Iterable[tuple[str, str]]) -> Iterator[RewriteStep]:
    """Yields each named step as it matches now; the caller applies it before requesting the next.

    Raises:
        ModelError: As :func:`replay`.
    """
    known = {item.name: item for item in REWRITES}
    for name, anchor in steps:
        step = None
        if name in known and graph.has(anchor):
            with suppress(MalformedError):
                step = step_at(graph, known[name], graph.node(anchor))
        if step is None:
            raise ModelError(
                f"rewrite {name!r} does not match node {anchor!r}",
                code="rewrite.replay",
                where=anchor,
                hint="use the original model and the edgekit release that rewrote it",
            )
        yield step
