"""What was rewritten: in the model's metadata for a refit, and as a document with its proofs;
read with distrust, since files come from anywhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.graph import Node
from edgekit.network.model import Model, metadata, with_metadata
from edgekit.removed import FormerDict
from edgekit.rewriting.engine.opset import RAISED
from edgekit.rewriting.graph import (
    RECIPE_OPERATORS,
    Applied,
    Recipe,
    RewriteGraph,
    recipe_of,
)
from edgekit.rewriting.proof.prove import RUNS, SEED
from edgekit_device.protocol.codec import (
    array,
    choice,
    digest,
    integer,
    long_text,
    mapping,
    member,
    records,
)

# a run must stand for so many elements, on average, to be shorter than they are
_RUN = 4

KEY = "edgekit.rewrite"
SCHEMA = "edgekit.rewritten/1"
_LONGEST = 200
_DIGITS = 32
_LARGEST_TEXT = 256 << 20
_LARGEST_CONSTANT = 64 << 20
_LARGEST_RANK = 16
_LARGEST_SIZE = 1 << 40
_DTYPES = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16",
})  # fmt: skip
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
RECORD_SCHEMA = "edgekit.rewrites/1"


@dataclass(frozen=True, slots=True)
class DerivedWeight:
    """Where a weight of the rewritten model comes from.

    Attributes:
        sources: The original's weights.
        recipe: Tensors that recipes write on the way to it, itself the last; empty for a constant
            that a rewrite brought along.
    """

    sources: tuple[str, ...]
    recipe: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RewriteRecord:
    """How a model was made of its original.

    Attributes:
        original: Digest of the model that the first rewriting started from.
        opset: ai.onnx before and after.
        rounds: The (rewrite, anchor node) of each rewriting, in order: one for a model that was
            rewritten once.
        weights: The rewritten model's weights that the original has not, by name.
        originals: Type and shape of the original's weights that recipes read.
        stations: Type and shape of what recipes derive and a model between two rewritings has as
            weights: with those of such a model nothing before them is needed.
        recipes: In topological order.
        constants: What recipes read besides weights.
        parameters: Digest of each constant of the original that is no weight, by name; rewrites
            may have read its value.
        operators: How many nodes of each operator and attributes the original has.
    """

    original: str
    opset: tuple[int, int]
    rounds: tuple[tuple[tuple[str, str], ...], ...]
    weights: Mapping[str, DerivedWeight]
    originals: Mapping[str, tuple[str, tuple[int, ...]]]
    stations: Mapping[str, tuple[str, tuple[int, ...]]]
    recipes: tuple[Recipe, ...]
    constants: Mapping[str, np.ndarray]
    parameters: Mapping[str, str]
    operators: Mapping[str, int]

    def makers(self) -> dict[str, Recipe]:
        """Returns the recipes by the tensors that they write."""
        return {name: recipe for recipe in self.recipes for name in recipe.outputs if name}

    def to_json(self) -> dict[str, Any]:
        """Returns the document that stands in the model's metadata."""
        return {
            "schema": SCHEMA,
            "original": self.original,
            "opset": list(self.opset),
            "rounds": [len(steps) for steps in self.rounds],
            "steps": [list(step) for steps in self.rounds for step in steps],
            "weights": {
                name: {"from": list(item.sources), "recipe": list(item.recipe)}
                for name, item in self.weights.items()
            },
            "originals": _types(self.originals),
            "stations": _types(self.stations),
            "recipes": [
                {"op": r.op, "inputs": list(r.inputs), "outputs": list(r.outputs),
                 "attributes": dict(r.attributes)}
                for r in self.recipes
            ],
            "constants": {name: _encoded(value) for name, value in self.constants.items()},
            "parameters": dict(self.parameters),
            "operators": dict(self.operators),
        }  # fmt: skip


def closure(
    roots: Iterable[str], makers: Mapping[str, Recipe], stop: Container[str] = ()
) -> list[str]:
    """Returns what is needed to derive tensors, in topological order, the last root at the end.

    Args:
        roots: The tensors; what several of them need is visited once.
        makers: Recipes by the tensors that they write.
        stop: Tensors that are known and not derived.
    """
    done: dict[str, None] = {}
    stack = list(roots)[::-1]
    while stack:
        top = stack[-1]
        recipe = makers.get(top) if top not in stop else None
        missing = [n for n in recipe.inputs if n and n not in done] if recipe else []
        if missing:
            stack += missing
        else:
            done[top] = None
            stack.pop()
    return list(done)


def _types(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    return {name: {"dtype": d, "shape": list(shape)} for name, (d, shape) in types.items()}


def _encoded(value: np.ndarray) -> dict[str, Any]:
    data = np.ascontiguousarray(value)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False).reshape(-1)
    found: dict[str, Any] = {"dtype": value.dtype.name, "shape": list(value.shape)}
    # equal neighbours are written once, bit for bit: masks of 0 and 1 are as large as weights
    rows = data.view(np.uint8).reshape(data.size, data.itemsize)
    starts = np.flatnonzero(np.r_[data.size > 0, (rows[1:] != rows[:-1]).any(axis=1)])
    if starts.size * _RUN < data.size:
        found["counts"] = np.diff(np.r_[starts, data.size]).tolist()
        data = data[starts]
    return {**found, "data": base64.b64encode(data.tobytes()).decode("ascii")}


def parameters_of(model: Model) -> dict[str, str]:
    """Returns a digest of each constant that is no weight, by name: bounds, axes, masks."""
    return {name: _digest(value) for name, value in built_in(model).items()}


def built_in(model: Model) -> dict[str, np.ndarray]:
    """Returns the constants that engines have built in: all that are no weights, by name."""
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.proto.graph.initializer
        if tensor.name not in model.weights
    }


def operators_of(model: Model) -> dict[str, int]:
    """Returns how many nodes of each operator and attributes there are; bodies are left out.

    Names of nodes and tensors are no part of it, so that another export of the same network has
    the same.
    """
    return dict(sorted(Counter(_described(node) for node in model.proto.graph.node).items()))


def _digest(value: np.ndarray) -> str:
    if value.dtype.kind == "O":  # texts
        return hashlib.sha256(repr(value.tolist()).encode()).hexdigest()[:_DIGITS]
    data = np.ascontiguousarray(value)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    head = f"{value.dtype.name}{list(value.shape)}"
    return hashlib.sha256(head.encode() + data.tobytes()).hexdigest()[:_DIGITS]


def _described(node: onnx.NodeProto) -> str:
    parts = []
    for item in sorted(node.attribute, key=lambda item: item.name):
        if item.type in (item.GRAPH, item.GRAPHS):
            continue
        value = helper.get_attribute_value(item)
        if hasattr(value, "SerializeToString"):
            value = hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()[
                :_DIGITS
            ]
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        parts.append(f"{item.name}={list(value) if isinstance(value, tuple) else value}")
    text = " ".join([f"{node.domain}.{node.op_type}" if node.domain else node.op_type, *parts])
    if len(text) > _LONGEST:
        return f"{node.op_type} {hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"
    return text


def record_of(model: Model) -> RewriteRecord | None:
    """Returns how a model was rewritten; None for one that was not.

    Raises:
        ModelError: Code "rewrite.record": what stands in its metadata cannot be true.
    """
    text = metadata(model, KEY)
    if text is None:
        return None
    try:
        return _record(text)
    except ModelError as error:
        error.where = error.where or model.source
        raise


def _record(text: str) -> RewriteRecord:
    if len(text) > _LARGEST_TEXT:
        _refuse(f"{len(text)} bytes are too many")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        _refuse("it is not JSON")
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        _refuse(f"its schema is not {SCHEMA}")
    original, opset = raw.get("original"), _numbers(raw.get("opset"), "opset", 1 << 16)
    if not isinstance(original, str) or not _DIGEST.match(original):
        _refuse("'original' is not a digest")
    if len(opset) != 2:
        _refuse("'opset' is not two numbers")
    originals = {name: _read_type(item, name) for name, item in _mapping(raw, "originals").items()}
    stations = {name: _read_type(item, name) for name, item in _mapping(raw, "stations").items()}
    constants = _constants(raw)
    recipes = _recipes(_list(raw.get("recipes"), "recipes"), {*originals, *constants})
    made = {name for recipe in recipes for name in recipe.outputs}
    if not set(stations) <= made:
        _refuse(f"no recipe computes {min(set(stations) - made)!r}")
    weights = {}
    for name, item in _mapping(raw, "weights").items():
        if not isinstance(item, dict):
            _refuse(f"weight {name!r} is not an object")
        found = DerivedWeight(_texts(item.get("from"), name), _texts(item.get("recipe"), name))
        if not (set(found.recipe) <= made and set(found.sources) <= set(originals)):
            _refuse(f"the source of weight {name!r} does not exist")
        if found.recipe and found.recipe[-1] != name:
            _refuse(f"the recipe of weight {name!r} ends in another one")
        weights[name] = found
    parameters, operators = _mapping(raw, "parameters"), _mapping(raw, "operators")
    if not all(isinstance(item, str) for item in parameters.values()):
        _refuse("'parameters' are not digests")
    _numbers(list(operators.values()), "operators", _LARGEST_SIZE)
    return RewriteRecord(
        original,
        (opset[0], opset[1]),
        _rounds(raw),
        weights,
        originals,
        stations,
        recipes,
        constants,
        parameters,
        operators,
    )


def _constants(raw: Mapping[str, Any]) -> dict[str, np.ndarray]:
    found, total = {}, 0
    for name, item in _mapping(raw, "constants").items():
        found[name] = _decoded(item, name)
        total += found[name].nbytes
        # runs are short in the text, however long they are
        if total > _LARGEST_TEXT:
            _refuse("its constants are too large")
    return found


def _rounds(raw: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], ...]:
    steps = [_texts(step, "steps") for step in _list(raw.get("steps"), "steps")]
    counts = _numbers(raw.get("rounds"), "rounds", len(steps))
    if any(len(step) != 2 for step in steps) or sum(counts) != len(steps):
        _refuse("'steps' are not pairs, or their number differs from 'rounds'")
    rounds, start = [], 0
    for count in counts:
        rounds.append(tuple((step[0], step[1]) for step in steps[start : start + count]))
        start += count
    return tuple(rounds)


def _recipes(raw: Sequence[Any], known: set[str]) -> tuple[Recipe, ...]:
    """Reads recipes; each reads only what is known before it, so there are no cycles."""
    found = []
    for item in raw:
        op = item.get("op") if isinstance(item, dict) else None
        if not isinstance(op, str) or op not in RECIPE_OPERATORS:
            _refuse(f"{str(op)[:80]!r} is not an operator for weights")
        inputs, outputs = (
            _texts(item.get("inputs"), "inputs"),
            _texts(item.get("outputs"), "outputs"),
        )
        lacking = [name for name in inputs if name and name not in known]
        if lacking:
            _refuse(f"a recipe reads {lacking[0][:80]!r}, which no earlier recipe computes")
        written = [name for name in outputs if name]
        if not written or len(set(written)) < len(written) or known & set(written):
            _refuse(f"a recipe writes no tensor, or one that exists already: {str(written)[:80]}")
        attributes = item.get("attributes")
        if not isinstance(attributes, dict) or not all(map(_is_attribute, attributes.values())):
            _refuse("an attribute of a recipe is not a number, a text or a list of these")
        known |= set(written)
        found.append(Recipe(op, inputs, outputs, attributes))
    return tuple(found)


def _is_attribute(value: object) -> bool:
    # a bool is an int of Python's, and none of ONNX's
    if isinstance(value, list):
        kinds = {type(part) for part in value}
        return len(kinds) == 1 and kinds <= {int, float, str} and all(map(_is_attribute, value))
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is str or (type(value) is int and abs(value) < 1 << 63)


def _decoded(item: Any, name: str) -> np.ndarray:
    import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)

    dtype, shape = _read_type(item, name)
    data = item.get("data")
    if not isinstance(data, str) or len(data) > _LARGEST_CONSTANT:
        _refuse(f"constant {name!r} has no data, or too much")
    try:
        plain = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"constant {name!r} is not in base64")
    kind = np.dtype(dtype)
    size, counts = math.prod(shape), item.get("counts")
    if counts is not None:
        most = _LARGEST_CONSTANT // kind.itemsize
        counts = _numbers(counts, name, most)
        if size > most or sum(counts) != size or len(plain) != kind.itemsize * len(counts):
            _refuse(f"the data of constant {name!r} do not match its type and shape")
        return np.repeat(np.frombuffer(plain, kind), counts).reshape(shape)
    if len(plain) != kind.itemsize * size:
        _refuse(f"the data of constant {name!r} do not match its type and shape")
    return np.frombuffer(plain, kind).reshape(shape)


def _read_type(item: Any, name: str) -> tuple[str, tuple[int, ...]]:
    dtype = item.get("dtype") if isinstance(item, dict) else None
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        _refuse(f"{name!r} has an unknown type")
    shape = _numbers(item.get("shape"), name, _LARGEST_SIZE)
    if len(shape) > _LARGEST_RANK or math.prod(shape) > _LARGEST_SIZE:
        _refuse(f"{name!r} is too large")
    return dtype, tuple(shape)


def _mapping(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key)
    if not isinstance(value, dict):
        _refuse(f"{key!r} is not an object")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"{name!r} is not a list")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not all(isinstance(part, str) for part in _list(value, name)):
        _refuse(f"{name!r} is not a list of texts")
    return tuple(value)


def _numbers(value: Any, name: str, most: int) -> list[int]:
    for part in _list(value, name):
        if type(part) is not int or not 0 <= part <= most:
            _refuse(f"{name!r} is not a list of numbers up to {most}")
    return list(value)


def _refuse(reason: str) -> NoReturn:
    raise ModelError(
        f"the model's record of rewrites is not valid: {reason}",
        code="rewrite.record",
        hint=f"rewrite the original again, or remove {KEY!r} from the model's metadata",
    )


def with_record(
    model: Model, graph: RewriteGraph, applied: Sequence[Applied], *, original: Model | None = None
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
    made = RewriteRecord(
        original.digest,
        (original.graph.opset, graph.opset),
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


def set_record(model: Model, record: RewriteRecord) -> Model:
    """Returns the model with another record."""
    text = json.dumps(record.to_json(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return with_metadata(model, KEY, text)


@dataclass(frozen=True)
class AppliedRewrites(FormerDict):
    """An ``edgekit.rewrites/1``: what was applied to a model, and how it was proved.

    Attributes:
        model: Digest of what was rewritten.
        rewritten: Digest of what came of it.
        opset: ai.onnx before and after.
        seed: Of the random inputs of the proofs.
        runs: Their number.
        rewrites: What was applied, in order.
        weights: The original's weights that each new weight is made of.
    """

    model: str = member(digest)
    rewritten: str = member(digest)
    opset: tuple[int, int] = member(array(integer(0, 1 << 16), 2, 2))
    seed: int = member(integer(0, (1 << 63) - 1))
    runs: int = member(integer(1, 100))
    rewrites: tuple[Applied, ...] = member(records(Applied))
    weights: Mapping[str, tuple[str, ...]] = member(mapping(array(long_text), long_text))
    schema: str = member(choice(RECORD_SCHEMA), default=RECORD_SCHEMA)


def record_document(
    original: Model, rewritten: Model, applied: Sequence[Applied]
) -> AppliedRewrites:
    """Returns what was applied and how it was proved.

    Args:
        original: What was rewritten.
        rewritten: What came of it; the same model when nothing was applied.
        applied: What was applied, in order.
    """
    record = record_of(rewritten)
    weights = record.weights if record else {}
    return AppliedRewrites(
        model=original.digest,
        rewritten=rewritten.digest,
        opset=(original.graph.opset, rewritten.graph.opset),
        seed=applied[0].seed if applied else SEED,
        runs=applied[0].runs if applied else RUNS,
        rewrites=tuple(applied),
        weights={name: item.sources for name, item in weights.items()},
    )


def _completed(
    record: RewriteRecord,
    before: RewriteRecord | None,
    graph: RewriteGraph,
    known: set[str],
    model: Model,
) -> RewriteRecord:
    """Keeps the recipes that end in one of the final constants, and what they read."""
    makers = record.makers()
    weights: dict[str, DerivedWeight] = {}
    originals: dict[str, tuple[str, tuple[int, ...]]] = {}
    stations = dict(before.stations) if before is not None else {}
    constants: dict[str, np.ndarray] = {}
    needed: set[str] = set()
    for name in [tensor.name for tensor in model.proto.graph.initializer]:
        if name not in makers:
            if name in model.weights and not _survives(name, before, known):
                weights[name] = DerivedWeight((), ())
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
                originals[tensor] = _type_before(tensor, before, graph)
            else:
                constants[tensor] = value
        weights[name] = DerivedWeight(tuple(sources), tuple(recipe))
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


def _survives(name: str, before: RewriteRecord | None, known: set[str]) -> bool:
    """Whether a constant is the first original's, under its own name."""
    return name in known and (before is None or name not in before.weights)


def _constant(
    name: str, before: RewriteRecord | None, graph: RewriteGraph, known: set[str]
) -> np.ndarray | None:
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


def _type_before(
    name: str, before: RewriteRecord | None, graph: RewriteGraph
) -> tuple[str, tuple[int, ...]]:
    if before is not None and name in before.originals:
        return before.originals[name]
    return graph.dtype(name), graph.shape(name)


def _nodes(graph: RewriteGraph) -> list[Node]:
    # a node of several outputs stands there under each of them
    return list({id(node): node for node in graph.recipes().values()}.values())


def _apart(before: RewriteRecord, graph: RewriteGraph) -> RewriteRecord:
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
