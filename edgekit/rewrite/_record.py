"""What was rewritten: in the model itself for a refit, and as a document with its proofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._graph import opset_of
from edgekit.rewrite._parameters import operators_of, parameters_of
from edgekit.rewrite._prove import RUNS, SEED
from edgekit.rewrite._raised import RAISED
from edgekit.rewrite._record_read import record_of
from edgekit.rewrite._recorded import KEY, Derived, Record, closure, recipe_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Applied, Node

__all__ = ["RECORD_SCHEMA", "record_document", "set_record", "with_record"]

RECORD_SCHEMA = "edgekit.rewrites/1"


def with_record(
    model: Model, graph: Graph, applied: Sequence[Applied], *, original: Model | None = None
) -> Model:
    """Returns a rewritten model with the record of its rewrites in its metadata.

    The record has no measured number and no path, so equal models have equal records.

    Args:
        model: What ``emit`` made of ``graph``.
        graph: The graph after the rewrites.
        applied: What was applied, in order.
        original: What was rewritten; ``graph.model`` when None, which is right unless the opset
            was raised before. When it was itself rewritten, its record is continued.

    Raises:
        MalformedError: A rewrite derives a weight by an operator that recipes may not have.
    """
    original = original or graph.model
    before = record_of(original)
    known = {t.name for t in original.proto.graph.initializer}
    # raising the opset is no step: it is done again wherever the opset is too old
    steps = tuple((item.rewrite, item.anchor) for item in applied if item.rewrite != RAISED)
    made = Record(
        original.digest,
        (opset_of(original), graph.opset),
        (steps,),
        {},
        {},
        {},
        tuple(recipe_of(node) for node in _nodes(graph)),
        {},
        parameters_of(original) if before is None else before.parameters,
        operators_of(original) if before is None else before.operators,
    )
    if before is not None:
        before = _apart(before, graph)
        made = replace(
            made,
            original=before.original,
            opset=(before.opset[0], graph.opset),
            rounds=(*before.rounds, steps),
            recipes=(*before.recipes, *made.recipes),
        )
    return set_record(model, _completed(made, before, graph, known, model))


def set_record(model: Model, record: Record) -> Model:
    """Returns the model with another record."""
    import json

    from edgekit.network import with_metadata

    text = json.dumps(record.to_json(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return with_metadata(model, KEY, text)


def record_document(
    original: Model, rewritten: Model, applied: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the ``edgekit.rewrites/1`` document: what was applied and how it was proved.

    Args:
        original: What was rewritten.
        rewritten: What came of it; the same model when nothing was applied.
        applied: ``Applied.to_json()`` of each.
    """
    record = record_of(rewritten)
    weights = record.weights if record else {}
    return {
        "schema": RECORD_SCHEMA,
        "model": original.digest,
        "rewritten": rewritten.digest,
        "opset": [opset_of(original), opset_of(rewritten)],
        "seed": applied[0]["seed"] if applied else SEED,
        "runs": applied[0]["runs"] if applied else RUNS,
        "rewrites": [dict(item) for item in applied],
        "weights": {name: list(item.sources) for name, item in weights.items()},
    }


def _completed(
    record: Record,
    before: Record | None,
    graph: Graph,
    known: set[str],
    model: Model,
) -> Record:
    """Keeps the recipes that end in one of the final constants, and what they read."""
    makers = record.makers()
    weights: dict[str, Derived] = {}
    originals: dict[str, tuple[str, tuple[int, ...]]] = {}
    stations = dict(before.stations) if before is not None else {}
    constants: dict[str, np.ndarray] = {}
    needed: set[str] = set()
    for name in [tensor.name for tensor in model.proto.graph.initializer]:
        if name not in makers:
            if name in model.weights and not _survives(name, before, known):
                weights[name] = Derived((), ())
            continue
        sources, recipe = [], []
        for tensor in closure([name], makers):
            if tensor in makers:
                recipe.append(tensor)
                if tensor in known:
                    stations[tensor] = graph.dtype(tensor), graph.shape(tensor)
                continue
            value = _constant(tensor, before, graph, known)
            if value is None:
                sources.append(tensor)
                originals[tensor] = _type(tensor, before, graph)
            else:
                constants[tensor] = value
        weights[name] = Derived(tuple(sources), tuple(recipe))
        needed.update(recipe)
    recipes = tuple(r for r in record.recipes if needed & set(r.outputs))
    made = {name for recipe in recipes for name in recipe.outputs}
    stations = {name: kind for name, kind in stations.items() if name in made}
    return replace(
        record,
        weights=weights,
        originals=originals,
        stations=stations,
        recipes=recipes,
        constants=constants,
    )


def _survives(name: str, before: Record | None, known: set[str]) -> bool:
    """Whether a constant is the first original's, under its own name."""
    return name in known and (before is None or name not in before.weights)


def _constant(name: str, before: Record | None, graph: Graph, known: set[str]) -> np.ndarray | None:
    """The value of what a recipe reads and no weight decides; None for the original's weights."""
    if before is not None and name in before.constants:
        return before.constants[name]
    if before is not None and name in before.originals:
        return None
    fixed = graph.fixed(name)
    if fixed is not None:
        return fixed.stored()
    if _survives(name, before, known) and graph.floats(name):
        return None
    # a shape or an index list, of which another export may have another name
    return graph.value(name)


def _type(name: str, before: Record | None, graph: Graph) -> tuple[str, tuple[int, ...]]:
    if before is not None and name in before.originals:
        return before.originals[name]
    return graph.dtype(name), graph.shape(name)


def _nodes(graph: Graph) -> list[Node]:
    # a node of several outputs stands there under each of them
    return list({id(node): node for node in graph.recipes().values()}.values())


def _apart(before: Record, graph: Graph) -> Record:
    """Renames inner tensors of an older record whose names new recipes have taken since."""
    taken = {*graph.recipes(), *graph.brought()}
    inner = [name for name in before.makers() if graph.initializer(name) is None]
    names: dict[str, str] = {}
    used = {*taken, *before.makers(), *before.constants, *before.originals}
    for name in (*inner, *before.constants):
        # the model has no such tensor any more, or it would not have been free
        if name in taken:
            count = len(before.rounds)
            while f"{name}@{count}" in used or graph.taken(f"{name}@{count}"):
                count += 1
            names[name] = f"{name}@{count}"
            used.add(names[name])
    if not names:
        return before
    recipes = tuple(
        replace(
            recipe,
            inputs=tuple(names.get(n, n) for n in recipe.inputs),
            outputs=tuple(names.get(n, n) for n in recipe.outputs),
        )
        for recipe in before.recipes
    )
    constants = {names.get(n, n): value for n, value in before.constants.items()}
    return replace(before, recipes=recipes, constants=constants)
