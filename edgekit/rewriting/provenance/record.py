"""Records of applied rewrites: in the model's metadata for a refit, and as a document with
proofs. Records are validated when read, since files are untrusted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.model import Model, metadata, with_metadata
from edgekit.removed import FormerDict
from edgekit.rewriting.engine.opset import RAISED
from edgekit.rewriting.graph import (
    Applied,
    Recipe,
    RewriteGraph,
    make_recipe,
)
from edgekit.rewriting.proof.prove import RUNS, SEED
from edgekit.text import printable
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    array,
    choice,
    digest,
    document,
    fail,
    integer,
    long_text,
    mapping,
    member,
    read,
    record,
    records,
    text,
    write,
)

# average elements per run from which run lengths are shorter than the elements
_RUN = 4

KEY = "edgekit.rewrite"
SCHEMA = "edgekit.rewritten/1"
_LONGEST = 200
_DIGITS = 32
# limits of untrusted records: text and constants in bytes, ranks, elements
_LARGEST_TEXT = 256 << 20
_LARGEST_CONSTANT = 64 << 20
_LARGEST_RANK = 16
_LARGEST_SIZE = 1 << 40
_DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
)
RECORD_SCHEMA = "edgekit.rewrites/1"


@document(frozen=True)
class WeightType:
    """A tensor's NumPy type name (or "bfloat16") and shape.

    Attributes:
        shape: Sizes of the axes.
    """

    dtype: str = member(choice(*_DTYPES))
    shape: tuple[int, ...] = member(array(integer(0, _LARGEST_SIZE), 0, _LARGEST_RANK))

    def check(self) -> None:
        """Refuses a type or shape that no tensor can have."""
        if math.prod(self.shape) > _LARGEST_SIZE:
            fail("shape", "it is too large")


@document(frozen=True)
class StoredConstant(WeightType):
    """A constant's values.

    Attributes:
        data: The values in base64, little-endian; with ``counts``, one value per run.
        counts: Run length of each value in ``data``.
    """

    counts: tuple[int, ...] | None = member(
        array(integer(0, _LARGEST_CONSTANT), most=_LARGEST_CONSTANT), absent=None
    )
    data: str = member(text(most=_LARGEST_CONSTANT))

    @staticmethod
    def of(value: np.ndarray) -> StoredConstant:
        """Returns an array's stored form; masks of 0 and 1, as large as weights, take few bytes."""
        data = np.ascontiguousarray(value)
        data = data.astype(data.dtype.newbyteorder("<"), copy=False).reshape(-1)
        # bit-equal neighbours are written once
        # as bytes: a NaN differs from itself, and 0 equals -0
        rows = data.view(np.uint8).reshape(data.size, data.itemsize)
        starts = np.flatnonzero(np.r_[data.size > 0, (rows[1:] != rows[:-1]).any(axis=1)])
        counts = None
        if starts.size * _RUN < data.size:
            counts = tuple(np.diff(np.r_[starts, data.size]).tolist())
            data = data[starts]
        text = base64.b64encode(data.tobytes()).decode("ascii")
        return StoredConstant(value.dtype.name, value.shape, counts, text)

    @property
    def nbytes(self) -> int:
        """The array's size, in bytes."""
        return math.prod(self.shape) * self._kind.itemsize

    def array(self) -> np.ndarray:
        """Returns the values."""
        plain = np.frombuffer(base64.b64decode(self.data), self._kind)
        return (plain if self.counts is None else np.repeat(plain, self.counts)).reshape(self.shape)

    def check(self) -> None:
        """Refuses data of another type or shape."""
        super().check()
        try:
            plain = base64.b64decode(self.data, validate=True)
        except ValueError:
            fail("data", "it is not in base64")
        size, counts = math.prod(self.shape), self.counts
        written = size if counts is None else len(counts)
        if counts is not None and (self.nbytes > _LARGEST_CONSTANT or sum(counts) != size):
            fail("counts", "they do not match its type and shape")
        if len(plain) != written * self._kind.itemsize:
            fail("data", "the data do not match its type and shape")

    @property
    def _kind(self) -> np.dtype[Any]:
        import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)

        return np.dtype(self.dtype)


@document(frozen=True)
class DerivedWeight:
    """The origin of a weight of the rewritten model.

    Attributes:
        sources: The original's weights.
        recipe: Tensors that its recipes write, the weight last; empty for a constant that a
            rewrite added.
    """

    sources: tuple[str, ...] = member(array(long_text), key="from")
    recipe: tuple[str, ...] = member(array(long_text))


_TYPES = mapping(record(WeightType), long_text)


@document(frozen=True, kw_only=True)
class RewriteRecord:
    """The derivation of a rewritten model from its original.

    Attributes:
        original: Digest of the model that the first rewriting started from.
        opset: ai.onnx version before and after.
        sizes: Number of ``steps`` by rewriting; one number for a model that was rewritten once.
        steps: The (rewrite, anchor node) of all rewritings, in order.
        weights: The rewritten model's weights that the original lacks, by name.
        originals: Type and shape of the original's weights that recipes read.
        stations: Type and shape of derived tensors that are weights of a model between two
            rewritings: with that model's weights, earlier recipes are not needed.
        recipes: The recipes, in topological order.
        constants: Constants that recipes read besides weights.
        parameters: Digest of each constant of the original other than weights, by name;
            rewrites may have read its value.
        operators: Number of the original's nodes by operator and attributes.
    """

    schema: str = member(choice(SCHEMA), default=SCHEMA)
    original: str = member(digest)
    opset: tuple[int, int] = member(array(integer(0, 1 << 16), 2, 2))
    sizes: tuple[int, ...] = member(array(integer(0, 1 << 20)), key="rounds")
    steps: tuple[tuple[str, str], ...] = member(array(array(long_text, 2, 2)))
    weights: Mapping[str, DerivedWeight] = member(mapping(record(DerivedWeight), long_text))
    originals: Mapping[str, WeightType] = member(_TYPES)
    stations: Mapping[str, WeightType] = member(_TYPES)
    recipes: tuple[Recipe, ...] = member(records(Recipe))
    constants: Mapping[str, StoredConstant] = member(mapping(record(StoredConstant), long_text))
    parameters: Mapping[str, str] = member(mapping(text(), long_text))
    operators: Mapping[str, int] = member(mapping(integer(0, _LARGEST_SIZE), long_text))

    @property
    def rounds(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The steps of each rewriting."""
        steps = iter(self.steps)
        return tuple(tuple(islice(steps, size)) for size in self.sizes)

    def makers(self) -> dict[str, Recipe]:
        """Returns the recipes by the tensors that they write."""
        return {name: recipe for recipe in self.recipes for name in recipe.outputs if name}

    def check(self) -> None:
        """Refuses inconsistent parts."""
        if sum(self.sizes) != len(self.steps):
            fail("rounds", "their number is not that of the steps")
        # long runs have a short text, so sizes are checked
        if sum(item.nbytes for item in self.constants.values()) > _LARGEST_TEXT:
            fail("constants", "they are too large")
        known = {*self.originals, *self.constants}
        # each recipe reads only earlier tensors, so there are no cycles
        for number, recipe in enumerate(self.recipes):
            where = f"recipes[{number}]"
            lacking = [name for name in recipe.inputs if name and name not in known]
            if lacking:
                fail(where, f"it reads {lacking[0][:80]!r}, which no earlier recipe computes")
            written = [name for name in recipe.outputs if name]
            if not written or len(set(written)) < len(written) or known & set(written):
                words = "it writes no tensor, or one that exists already"
                fail(where, f"{words}: {str(written)[:80]}")
            known |= set(written)
        made = set(self.makers())
        if not set(self.stations) <= made:
            fail("stations", f"no recipe computes {min(set(self.stations) - made)[:80]!r}")
        for name, item in self.weights.items():
            where = f"weights.{name[:80]}"
            if not (set(item.recipe) <= made and set(item.sources) <= set(self.originals)):
                fail(where, "its source does not exist")
            if item.recipe and item.recipe[-1] != name:
                fail(where, "its recipe ends in another one")


def closure(
    roots: Iterable[str], makers: Mapping[str, Recipe], stop: Container[str] = ()
) -> list[str]:
    """Returns the tensors needed to derive ``roots``, in topological order, the last root last.

    Args:
        roots: The tensors; shared inputs are visited once.
        makers: Recipes by the tensors that they write.
        stop: Known tensors, which are not derived.
    """
    done: dict[str, None] = {}
    # a stack, not recursion: chains of recipes may be longer than Python's limit
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


def digest_parameters(model: Model) -> dict[str, str]:
    """Returns a digest of each constant other than weights, by name: bounds, axes, masks."""
    return {name: _digest(value) for name, value in built_in_constants(model).items()}


def built_in_constants(model: Model) -> dict[str, np.ndarray]:
    """Returns the constants built into engines: all except weights, by name."""
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.proto.graph.initializer
        if tensor.name not in model.weights
    }


def count_operators(model: Model) -> dict[str, int]:
    """Returns the number of nodes by operator and attributes, without subgraphs.

    Names of nodes and tensors are excluded, so that another export of the same network gives the
    same result.
    """
    return dict(sorted(Counter(_describe_node(node) for node in model.proto.graph.node).items()))


def _digest(value: np.ndarray) -> str:
    if value.dtype.kind == "O":  # texts
        return hashlib.sha256(repr(value.tolist()).encode()).hexdigest()[:_DIGITS]
    data = np.ascontiguousarray(value)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    head = f"{value.dtype.name}{list(value.shape)}"
    return hashlib.sha256(head.encode() + data.tobytes()).hexdigest()[:_DIGITS]


def _describe_node(node: onnx.NodeProto) -> str:
    parts = []
    for item in sorted(node.attribute, key=lambda item: item.name):
        # bodies have names of tensors, which another export changes
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


def read_record(model: Model) -> RewriteRecord | None:
    """Returns a model's record; None for a model without rewrites.

    Raises:
        ModelError: Code "rewrite.record": the record in its metadata is invalid.
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
    # before it is parsed: JSON takes many times its text in memory
    if len(text) > _LARGEST_TEXT:
        _refuse(f"{len(text)} bytes are too many")
    try:
        return read(RewriteRecord, json.loads(text))
    except DeviceError as error:
        _refuse(printable(f"{error.where}: {error.message}".removeprefix(": "), 300))
    except (ValueError, RecursionError):
        _refuse("it is not JSON")


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
        model: The result of ``emit`` for ``graph``.
        graph: The graph after the rewrites.
        applied: The applied rewrites, in order.
        original: The model before the rewrites; None for ``graph.model``, which is correct unless
            the opset was raised before. If it was rewritten itself, its record is continued.

    Raises:
        MalformedError: A rewrite derives a weight by an operator that is not allowed in recipes.
    """
    original = original or graph.model
    before = read_record(original)
    known = {t.name for t in original.proto.graph.initializer}
    # raising the opset is not a step: it is repeated for every model with an older opset
    steps = tuple((item.rewrite, item.anchor) for item in applied if item.rewrite != RAISED)
    # a node of several outputs is listed under each output
    nodes = {id(node): node for node in graph.recipes().values()}.values()
    made = RewriteRecord(
        original=original.digest,
        opset=(original.graph.opset, graph.opset),
        sizes=(len(steps),),
        steps=steps,
        weights={},
        originals={},
        stations={},
        recipes=tuple(map(make_recipe, nodes)),
        constants={},
        parameters=digest_parameters(original) if before is None else before.parameters,
        operators=count_operators(original) if before is None else before.operators,
    )
    if before is not None:
        before = _rename_taken(before, graph)
        made = replace(
            made,
            original=before.original,
            opset=(before.opset[0], graph.opset),
            sizes=(*before.sizes, len(steps)),
            steps=(*before.steps, *steps),
            recipes=(*before.recipes, *made.recipes),
        )
    return set_record(model, _complete_record(made, before, graph, known, model))


def set_record(model: Model, record: RewriteRecord) -> Model:
    """Returns the model with another record."""
    text = json.dumps(write(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return with_metadata(model, KEY, text)


@document(frozen=True)
class AppliedRewrites(FormerDict):
    """An ``edgekit.rewrites/1``: the rewrites applied to a model, and their proofs.

    Attributes:
        model: Digest of the original model.
        rewritten: Digest of the rewritten model.
        opset: ai.onnx version before and after.
        seed: Seed of the proofs' random inputs.
        runs: Number of random inputs.
        rewrites: The applied rewrites, in order.
        weights: The original's weights that each new weight is derived from.
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
    """Returns the document of the applied rewrites and their proofs.

    Args:
        original: The model before the rewrites.
        rewritten: The rewritten model; the same model if no rewrite was applied.
        applied: The applied rewrites, in order.
    """
    record = read_record(rewritten)
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


def _complete_record(
    record: RewriteRecord,
    before: RewriteRecord | None,
    graph: RewriteGraph,
    known: set[str],
    model: Model,
) -> RewriteRecord:
    """Keeps the recipes that lead to a final constant, and their inputs."""
    makers = record.makers()
    weights: dict[str, DerivedWeight] = {}
    originals: dict[str, WeightType] = {}
    stations = dict(before.stations) if before is not None else {}
    constants: dict[str, StoredConstant] = {}
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
                # a weight of the model between two rewritings: whoever has that model needs no
                # earlier recipe
                if tensor in known:
                    stations[tensor] = WeightType(graph.dtype(tensor), graph.shape(tensor))
                continue
            value = _constant(tensor, before, graph, known)
            if value is None:
                sources.append(tensor)
                given = before.originals.get(tensor) if before is not None else None
                originals[tensor] = given or WeightType(graph.dtype(tensor), graph.shape(tensor))
            else:
                constants[tensor] = value
        weights[name] = DerivedWeight(tuple(sources), tuple(recipe))
        needed.update(recipe)
    # steps that were taken back, or replaced again, leave recipes that nothing reads
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
    """Returns True if a constant is the first original's, with its original name."""
    return name in known and (before is None or name not in before.weights)


def _constant(
    name: str, before: RewriteRecord | None, graph: RewriteGraph, known: set[str]
) -> StoredConstant | None:
    """Returns a recipe's constant input that no weight decides; None for original weights."""
    if before is not None and name in before.constants:
        return before.constants[name]
    if before is not None and name in before.originals:
        return None
    fixed = graph.added_constant(name)
    if fixed is not None:
        return StoredConstant.of(fixed.stored())
    if _survives(name, before, known) and graph.floats(name):
        return None
    # a shape or an index list, which may have another name in another export
    value = graph.value(name)
    return None if value is None else StoredConstant.of(value)


def _rename_taken(before: RewriteRecord, graph: RewriteGraph) -> RewriteRecord:
    """Renames inner tensors of an older record whose names new recipes have taken since."""
    taken = {*graph.recipes(), *graph.added_constants()}
    inner = [name for name in before.makers() if graph.initializer(name) is None]
    names: dict[str, str] = {}
    used = {*taken, *before.makers(), *before.constants, *before.originals}
    for name in (*inner, *before.constants):
        # the name was free, so the model no longer has such a tensor
        if name in taken:
            count = len(before.sizes)
            while f"{name}@{count}" in used or graph.has_tensor(f"{name}@{count}"):
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
