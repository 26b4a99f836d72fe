"""A rewritten network with other weights: recipes derive again what rewrites derived."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.network._graph import free_name
from edgekit.rewrite._parameters import parameters_of
from edgekit.rewrite._record import set_record
from edgekit.rewrite._record_read import record_of
from edgekit.rewrite._recorded import Record, closure
from edgekit.rewrite._same_network import check_derived, check_network

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model
    from edgekit.network._deferred import Constant
    from edgekit.network._same_weights import WeightType

__all__ = ["check_file", "needed_weights", "reweigh"]


def needed_weights(rewritten: Model, there: Collection[str] = ()) -> dict[str, WeightType]:
    """Returns the weights that another model must have to take the place of the original.

    Args:
        rewritten: A rewritten model, or one that is none.
        there: Names of the other model's weights: what it has already of those that rewrites
            derive need not be derived (it was rewritten, too).

    Raises:
        ModelError: "rewrite.record": the model's record cannot be true.
    """
    from edgekit.network import weight_types

    record = record_of(rewritten)
    types = weight_types(rewritten)
    if record is None:
        return types
    needed = {name: kind for name, kind in types.items() if name not in record.weights}
    derived = {
        tensor.name: _type(tensor)
        for tensor in rewritten.proto.graph.initializer
        if tensor.name in record.weights and record.weights[tensor.name].recipe
    }
    stop = {name: kind for name, kind in {**record.stations, **derived}.items() if name in there}
    known = {**record.originals, **stop}
    reached = closure(derived, record.makers(), stop)
    return needed | {name: known[name] for name in reached if name in known}


def check_file(path: str | Path, rewritten: Model) -> None:
    """Refuses an ONNX file without the weights that ``reweigh`` needs, before it is loaded.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the weights.
        ModelError: The file cannot be read, or ``rewritten`` has a record that cannot be true.
    """
    from edgekit.network import check_weights

    check_weights(path, lambda there: needed_weights(rewritten, there))


def reweigh(rewritten: Model, other: Model) -> Model:
    """Returns the rewritten network with the weights of another model of the original's names.

    Rewriting ``other`` in the same steps gives the same model, bit for bit: the same recipes are
    computed by the same code.

    Args:
        rewritten: The model with its record; a model that was not rewritten just gets the weights.
        other: The original network with other values, or one that was rewritten likewise.

    Raises:
        DataError: Code "refit.mismatch": weights that are missing or of another shape or type, or
            constants and attributes that are no weights and differ.
        ModelError: Code "rewrite.record": the model's record cannot be true.
    """
    import onnx

    from edgekit.network import canonical, weight_types
    from edgekit.network._same_weights import differences, mismatch

    given = _constants(other)
    needed = needed_weights(rewritten, given)
    faults = differences({n: (v.dtype.name, tuple(v.shape)) for n, v in given.items()}, needed)
    if faults:
        raise mismatch(faults, len(needed), other.source)
    check_network(rewritten, other)
    record = record_of(rewritten)
    proto = onnx.ModelProto()
    proto.CopyFrom(rewritten.proto)
    values = {name: given[name] for name in needed} | _kept(rewritten, record, given)
    if record is not None:
        _put_back(proto, record, values)
    made = canonical(proto, None, source=other.source, weights=values)  # type: ignore[arg-type]
    if weight_types(made) != weight_types(rewritten):
        raise _untrue(rewritten, "its recipes do not derive its weights")
    check_derived(rewritten, record, made, other)
    if record is None:
        return made
    before = record_of(other)
    original = before.original if before is not None else other.digest
    # a number that recipes read may be another one now
    there = before.parameters if before is not None else parameters_of(other)
    parameters = {name: there.get(name, digest) for name, digest in record.parameters.items()}
    return set_record(made, replace(record, original=original, parameters=parameters))


def _constants(model: Model) -> dict[str, Constant]:
    """Every constant of a model by name, none of them computed for it."""
    from onnx import numpy_helper

    from edgekit.network._deferred import entries

    found: dict[str, Constant] = dict(entries(model.weights))
    for tensor in model.proto.graph.initializer:
        if tensor.name not in found:
            found[tensor.name] = numpy_helper.to_array(tensor)
    return found


def _kept(
    rewritten: Model, record: Record | None, given: dict[str, Constant]
) -> dict[str, Constant]:
    """The constants that no recipe derives and no weight of the other model replaces."""
    kept: dict[str, Constant] = {}
    for name, value in _constants(rewritten).items():
        made = record.weights.get(name) if record is not None else None
        if made is not None:
            if not made.recipe:
                kept[name] = value
        elif name not in rewritten.weights:
            # a small one of the original's, such as a factor: the other model's if it has it
            there = given.get(name)
            same = there is not None and (there.dtype, tuple(there.shape)) == (
                value.dtype,
                tuple(value.shape),
            )
            kept[name] = there if there is not None and same else value
    return kept


def _put_back(proto: onnx.ModelProto, record: Record, values: dict[str, Constant]) -> None:
    """Puts recipes and what they read in the place of the weights that they derive."""
    from onnx import helper

    graph = proto.graph
    derived = {name for name, item in record.weights.items() if item.recipe} - set(values)
    kept = [tensor for tensor in graph.initializer if tensor.name not in derived]
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
    values.update({name: v for name, v in record.constants.items() if name in wanted})
    # first, so that the others keep their order
    nodes += [type(node).FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)


def _type(tensor: onnx.TensorProto) -> WeightType:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(tensor.data_type).name, tuple(tensor.dims)


def _untrue(model: Model, reason: str) -> ModelError:
    return ModelError(
        f"the model says that edgekit rewrote it, and what it says cannot be true: {reason}",
        code="rewrite.record",
        where=model.source,
        hint="rewrite the original again",
    )
