"""Applies another model's weights to a rewritten network: recipes repeat the derivation of
weights, if the models differ only in weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import DataError, ModelError
from edgekit.network.files import read
from edgekit.network.loading.load import canonical
from edgekit.network.model import Constant, Model, entries
from edgekit.network.protos import free_name
from edgekit.rewriting.engine.opset import raise_opset
from edgekit.rewriting.engine.replay import replay
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.graph import emit
from edgekit.rewriting.provenance.record import (
    RewriteRecord,
    WeightType,
    built_in_constants,
    closure,
    count_operators,
    digest_parameters,
    read_record,
    set_record,
)
from edgekit.text import listed

_SHOWN = 20
_PRINTED = 4


def check_network(rewritten: Model, other: Model) -> None:
    """Refuses a model whose small constants or attributes differ from the original's.

    Inputs of recipes may differ: the recipes are computed again.

    Args:
        rewritten: A rewritten model, whose record describes the original; or a model without
            rewrites.
        other: The model with other weights.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists constants and operators.
        ModelError: "rewrite.record": a record is invalid.
    """
    record, before = read_record(rewritten), read_record(other)
    # both are rewritten: their records have the originals' constants and operators
    if record is not None and before is not None:
        found, there = before.parameters, before.operators
        values: Mapping[str, np.ndarray] = {}
    else:
        found, there, values = (
            digest_parameters(other),
            count_operators(other),
            built_in_constants(other),
        )
    if record is None:
        faults = _differing(digest_parameters(rewritten), found, (), values)
        faults += _fewer(count_operators(rewritten), there)
    else:
        faults = _differing(record.parameters, found, record.originals, values)
        faults += _fewer(record.operators, there)
    if faults:
        raise _refusal(faults, other.source)


def check_derived(
    rewritten: Model, record: RewriteRecord | None, made: Model, other: Model
) -> None:
    """Refuses weights that require other constants than the build's.

    Args:
        rewritten: The rewritten model.
        record: Its record.
        made: The same model with the weights of ``other``.
        other: The model with other weights.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the constants.
    """
    faults = []
    values = built_in_constants(made)
    for name, old in built_in_constants(rewritten).items():
        # bit for bit, since a value may be an infinite bound or a NaN
        if name in values and _bits(old) == _bits(values[name]):
            continue
        derived = record.weights.get(name) if record is not None else None
        faults += [
            f"{source}{_describe_value(values.get(source, values.get(name)))}"
            for source in (derived.sources if derived else ()) or (name,)
        ]
    if record is None:
        if faults:
            raise _refusal(faults, other.source)
        return
    before = read_record(other)
    if before is not None:
        # rewritten likewise: constants that rewrites added must be the same
        for name, item in record.weights.items():
            theirs = before.weights.get(name)
            if item.recipe or theirs is None or name not in rewritten.weights:
                continue
            if name in other.weights and not np.array_equal(
                rewritten.weights[name], other.weights[name]
            ):
                faults.append(f"{name} (other values)")
    else:
        faults += _read_otherwise(record, made, other)
    if faults:
        raise _refusal(list(dict.fromkeys(faults)), other.source)


def _read_otherwise(record: RewriteRecord, made: Model, other: Model) -> list[str]:
    """Returns differing small constants that recipes read, and rewrites may have read as well.

    A rewrite may have been chosen for the value; only repeating the same steps shows it.
    """
    found = built_in_constants(other)
    given = digest_parameters(other)
    changed = [
        name
        for name, digest in record.parameters.items()
        if name in record.originals and given.get(name) not in (None, digest)
    ]
    if not changed:
        return []
    faults = [f"{name}{_describe_value(found.get(name))}" for name in changed]
    # the other original, rewritten from scratch by the same steps
    again = other
    try:
        for steps in record.rounds:
            raised = raise_opset(again, record.opset[1])
            if raised is None:
                return faults
            again = emit(replay(raised, steps))
    except (MalformedError, ModelError):
        return faults
    return [] if _agree(made, again) else faults


def _agree(made: Model, again: Model) -> bool:
    """Returns True if two models have the same nodes and the constants of ``made``."""
    left, right = digest_parameters(made), digest_parameters(again)
    if any(right.get(name) != digest for name, digest in left.items()):
        return False
    return all(
        name in again.weights and np.array_equal(value, again.weights[name])
        for name, value in made.weights.items()
    ) and not _fewer(count_operators(made), count_operators(again))


def _differing(
    parameters: Mapping[str, str],
    found: Mapping[str, str],
    derived: Collection[str],
    values: Mapping[str, np.ndarray],
) -> list[str]:
    known = set(found.values())
    faults = []
    for name, digest in parameters.items():
        # recipes are computed again, with the new value
        if name in derived or found.get(name) == digest:
            continue
        if name in found:
            faults.append(f"{name}{_describe_value(values.get(name))}")
        elif digest not in known:
            # exporters number shapes and bounds, and another export may count differently
            faults.append(f"{name} (missing)")
    return faults


def _fewer(operators: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    """Returns operators with fewer nodes in the other model; more are allowed (a larger model)."""
    return [
        f"{text} ({count - there.get(text, 0)} fewer)"
        for text, count in operators.items()
        if there.get(text, 0) < count
    ]


def _refusal(faults: Sequence[str], where: str) -> DataError:
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return DataError(
        f"{len(faults)} constants or operators of the file differ from the build, but a refit "
        "can only change weights",
        code="refit.mismatch",
        where=where,
        hint="build again, or give a file that differs only in weights: "
        + ", ".join(faults[:_SHOWN])
        + more,
    )


def _describe_value(value: np.ndarray | None) -> str:
    if value is None or value.size > _PRINTED:
        return " (other values)"
    return f" (here {', '.join(str(item) for item in value.reshape(-1).tolist())})"


def _bits(value: np.ndarray) -> tuple[object, ...]:
    return value.dtype.name, value.shape, value.tobytes()


def _weight_types(model: Model) -> dict[str, WeightType]:
    """Returns type and shape of every weight by name, without computing any."""
    return {
        name: WeightType(value.dtype.name, tuple(value.shape))
        for name, value in entries(model.weights).items()
    }


def _check_weights(
    path: str | Path,
    needed: Callable[[Collection[str]], Mapping[str, WeightType]] | Mapping[str, WeightType],
) -> None:
    """Refuses a file whose weights cannot replace a model's.

    Only initializers are checked, before the graph: weights of another shape often make the graph
    inconsistent, with a less helpful error. A weight that the file computes (a folded constant) is
    checked later.

    Args:
        path: The ONNX file.
        needed: The weights by name, or a function that returns them for the file's names.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the weights.
        ModelError: The file cannot be read.
    """
    proto, _ = read(Path(path))
    computed = {name for node in proto.graph.node for name in node.output}
    found = {tensor.name: _type(tensor) for tensor in proto.graph.initializer}
    if callable(needed):
        needed = needed(found)
    known = {name: kind for name, kind in needed.items() if name in found or name not in computed}
    faults = _differences(found, known)
    if faults:
        raise _mismatch(faults, len(needed), str(path))


def _differences(found: Mapping[str, WeightType], needed: Mapping[str, WeightType]) -> list[str]:
    """Returns a line for each weight of ``needed`` that is missing or of another type or shape."""
    faults = []
    for name, wanted in needed.items():
        if name not in found:
            faults.append(f"{name} (missing)")
        elif found[name] != wanted:
            here = found[name]
            faults.append(
                f"{name} ({here.dtype} {list(here.shape)}, the build has {wanted.dtype} "
                f"{list(wanted.shape)})"
            )
    return faults


def _mismatch(faults: Sequence[str], total: int, where: str) -> DataError:
    """Returns the "refit.mismatch" error with a list of unusable weights.

    Args:
        faults: A line for each weight.
        total: Number of needed weights.
        where: The file that was searched.
    """
    return DataError(
        f"{len(faults)} of the build's {total} weights are missing from the file, or have "
        "another shape or type there",
        code="refit.mismatch",
        where=where,
        hint="build again, or give a file of the same network: " + listed(faults, _SHOWN),
    )


def needed_weights(rewritten: Model, there: Collection[str] = ()) -> dict[str, WeightType]:
    """Returns the weights that another model must have to replace the original.

    Args:
        rewritten: A model, rewritten or not.
        there: Names of the other model's weights. Derived weights among them (of a model that was
            rewritten, too) need not be derived.

    Raises:
        ModelError: "rewrite.record": the model's record is invalid.
    """
    record = read_record(rewritten)
    types = _weight_types(rewritten)
    if record is None:
        return types
    needed = {name: kind for name, kind in types.items() if name not in record.weights}
    derived = {
        tensor.name: _type(tensor)
        for tensor in rewritten.proto.graph.initializer
        if tensor.name in record.weights and record.weights[tensor.name].recipe
    }
    # what the file has already need not be derived from earlier weights
    stop = {name: kind for name, kind in {**record.stations, **derived}.items() if name in there}
    known = {**record.originals, **stop}
    # originals that only lead to known weights need not be in the file
    reached = closure(derived, record.makers(), stop)
    return needed | {name: known[name] for name in reached if name in known}


def check_file(path: str | Path, rewritten: Model) -> None:
    """Refuses an ONNX file without the weights that ``reweigh`` needs, before it is loaded.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the weights.
        ModelError: The file cannot be read, or the record of ``rewritten`` is invalid.
    """
    _check_weights(path, lambda there: needed_weights(rewritten, there))


def reweigh(rewritten: Model, other: Model) -> Model:
    """Returns the rewritten network with the weights of another model that has the same names.

    Rewriting ``other`` in the same steps gives the same model, bit for bit: the same code computes
    the same recipes.

    Args:
        rewritten: The model with its record; a model without rewrites just gets the weights.
        other: The original network with other values, or a model with the same rewrites.

    Raises:
        DataError: Code "refit.mismatch": weights are missing or have another shape or type, or
            attributes or constants other than weights differ.
        ModelError: Code "rewrite.record": the model's record is invalid.
    """
    given = _constants(other)
    needed = needed_weights(rewritten, given)
    faults = _differences(
        {n: WeightType(v.dtype.name, tuple(v.shape)) for n, v in given.items()}, needed
    )
    if faults:
        raise _mismatch(faults, len(needed), other.source)
    # before the weights are derived: with other axes or bounds the recipes may fail in obscure ways
    check_network(rewritten, other)
    record = read_record(rewritten)
    proto = onnx.ModelProto()
    proto.CopyFrom(rewritten.proto)
    values = {name: given[name] for name in needed} | _retained(rewritten, record, given)
    if record is not None:
        _put_back(proto, record, values)
    made = canonical(
        proto,
        None,
        source=other.source,
        plugins=rewritten.plugins,
        weights=values,  # type: ignore[arg-type]
    )
    # an untrusted record may derive anything
    if _weight_types(made) != _weight_types(rewritten):
        raise _untrue(rewritten, "its weights do not follow from its recipes")
    check_derived(rewritten, record, made, other)
    if record is None:
        return made
    before = read_record(other)
    original = before.original if before is not None else other.digest
    # a number that recipes read may have changed
    there = before.parameters if before is not None else digest_parameters(other)
    parameters = {name: there.get(name, digest) for name, digest in record.parameters.items()}
    return set_record(made, replace(record, original=original, parameters=parameters))


def _constants(model: Model) -> dict[str, Constant]:
    """Returns every constant of a model by name, without computing values."""
    found: dict[str, Constant] = dict(entries(model.weights))
    for tensor in model.proto.graph.initializer:
        if tensor.name not in found:
            found[tensor.name] = numpy_helper.to_array(tensor)
    return found


def _retained(
    rewritten: Model, record: RewriteRecord | None, given: dict[str, Constant]
) -> dict[str, Constant]:
    """Returns the constants that no recipe derives and no weight of the other model replaces."""
    retained: dict[str, Constant] = {}
    for name, value in _constants(rewritten).items():
        made = record.weights.get(name) if record is not None else None
        if made is not None:
            if not made.recipe:
                retained[name] = value
        elif name not in rewritten.weights:
            # a small constant of the original, such as a factor: the other model's if present
            there = given.get(name)
            same = there is not None and (there.dtype, tuple(there.shape)) == (
                value.dtype,
                tuple(value.shape),
            )
            retained[name] = there if there is not None and same else value
    return retained


def _put_back(proto: onnx.ModelProto, record: RewriteRecord, values: dict[str, Constant]) -> None:
    """Replaces derived weights by their recipes and the recipes' inputs."""
    graph = proto.graph
    # a file that was rewritten likewise has the derived weights already
    derived = {name for name, item in record.weights.items() if item.recipe} - set(values)
    retained = [tensor for tensor in graph.initializer if tensor.name not in derived]
    gone = [tensor.name for tensor in graph.initializer if tensor.name in derived]
    wanted = set(closure(gone, record.makers(), values))
    taken = {node.name for node in graph.node}
    nodes = []
    for recipe in record.recipes:
        written = [name for name in recipe.outputs if name]
        if wanted.isdisjoint(written) or any(name in values for name in written):
            continue
        name = free_name(f"recipe:{written[0]}", taken)
        taken.add(name)
        nodes.append(
            helper.make_node(
                recipe.op, recipe.inputs, recipe.outputs, name=name, **recipe.attributes
            )
        )
    values.update({name: v.array() for name, v in record.constants.items() if name in wanted})
    # first, so that the others keep their order
    nodes += [type(node).FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(retained)


def _type(tensor: onnx.TensorProto) -> WeightType:
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type).name
    return WeightType(dtype, tuple(tensor.dims))


def _untrue(model: Model, reason: str) -> ModelError:
    return ModelError(
        f"the model's record of rewrites is not valid: {reason}",
        code="rewrite.record",
        where=model.source,
        hint="rewrite the original again",
    )
