"""Known steps once more, without any decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.rewrite._all import rewrites
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._prove import RUNS, SEED, prove
from edgekit.rewrite._regions import Region, region_of
from edgekit.rewrite._step import MalformedError, step_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.network import Model
    from edgekit.rewrite._search import Taken
    from edgekit.rewrite._types import Fixed, Node, Step

__all__ = ["Replayed", "replay", "replayed", "same_step", "steps_again"]


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """What is left of a search.

    Attributes:
        graph: The graph after the steps.
        taken: The steps by their positions in the search, in order.
        regions: Which of them hang together.
    """

    graph: Graph
    taken: Mapping[int, Taken]
    regions: tuple[Region, ...]


def replayed(
    model: Model, taken: Mapping[int, Taken], left: Sequence[Region], notes: list[str]
) -> Replayed:
    """Applies the steps of some regions once more, without those of the others.

    A step that is now another one than it was is proved again. A region of which a step does not
    match any more, or is not proved, is left out, and the others are tried without it.

    Args:
        model: The model in the opset in which the steps were found.
        taken: The steps by position.
        left: The regions.
        notes: Told here: a step that is another one now and wrong.
    """
    left = list(left)
    while True:
        graph = Graph(model)
        made: dict[int, Taken] = {}
        for index in sorted(i for region in left for i in region.steps):
            again = _again(graph, taken[index], notes)
            if again is None:
                left = [region for region in left if index not in region.steps]
                break
            graph.apply(again.step)
            made[index] = again
        else:
            steps = {index: item.step for index, item in made.items()}
            return Replayed(
                graph, made, tuple(region_of(graph, steps, region.steps) for region in left)
            )


def _again(graph: Graph, taken: Taken, notes: list[str]) -> Taken | None:
    """A step as it matches now, proved as it was; None where there is none."""
    anchor = taken.step.anchor
    try:
        step = step_at(graph, taken.step.rewrite, graph.node(anchor)) if graph.has(anchor) else None
        if step is None:
            return None
        if taken.proof is None or same_step(step, taken.step):
            return replace(taken, step=step)
        proof = prove(graph, step)
        if proof.holds():
            return replace(taken, step=step, proof=proof)
        why = f"differs ({proof}) with seed {SEED} in {RUNS} runs"
    except Exception as error:
        # a bug of one rewrite must not cost the user the others
        why = f"failed ({type(error).__name__}: {error})"
    note = f"rewrite {taken.step.rewrite.name} at {anchor} {why}"
    note += " when others had been taken back, and was left out: please report it"
    if note not in notes:
        notes.append(note)
    return None


def same_step(a: Step, b: Step) -> bool:
    """Whether two steps of one search are the same: what they read, take away and bring."""
    return (
        _forms(a.old) == _forms(b.old)
        and _forms(a.new) == _forms(b.new)
        and (a.inputs, a.outputs) == (b.inputs, b.outputs)
        and (a.shapes, a.dtypes) == (b.shapes, b.dtypes)
        and len(a.fixed) == len(b.fixed)
        and all(_same_fixed(x, y) for x, y in zip(a.fixed, b.fixed, strict=True))
    )


def _forms(nodes: Sequence[Node]) -> list[tuple[object, ...]]:
    return [
        (n.name, n.domain, n.op, n.inputs, n.outputs, sorted(map(str, n.attrs.items())))
        for n in nodes
    ]


def _same_fixed(a: Fixed, b: Fixed) -> bool:
    kind = (a.name, a.dtype, a.value.shape) == (b.name, b.dtype, b.value.shape)
    return kind and a.value.tobytes() == b.value.tobytes()


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
            with suppress(MalformedError):
                step = step_at(graph, known[name], graph.node(anchor))
        if step is None:
            raise ModelError(
                f"rewrite {name!r} does not apply at node {anchor!r}",
                code="rewrite.replay",
                where=anchor,
                hint="the model is not the one that was rewritten, or by another edgekit release",
            )
        yield step
