"""From an ONNX file to a checked Model: static shapes, folded constants, referenced weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.network import _check, _files, _graph
from edgekit.network._deferred import Constant, Deferred, entries
from edgekit.network._digest import frozen
from edgekit.network._emit import STRIPPED, emit
from edgekit.network._evaluate import Evaluation
from edgekit.network._metadata import copy_metadata
from edgekit.network._opaque import opaque_notes
from edgekit.network._types import Folded, Model

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["canonical", "load", "open_inputs"]


def load(
    source: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
) -> Model:
    """Reads an ONNX file.

    Args:
        source: Path of the file. Its weights, inline or external, stay in their files and are
            memory-mapped.
        shapes: Sizes for inputs, in elements per dimension; needed where the file leaves more
            open than the batch. Also for tensors whose shape a plugin or the data decide.
        batch: The batch where the file leaves it open; 1 when None, which ``Model.notes`` says.
        outputs: Tensor or node names to cut the network at; the file's outputs when None.

    Raises:
        ModelError: with a stable code ``model.*`` for everything that can be wrong with the file.
    """
    path = Path(source)
    proto, values = _files.read(path)
    try:
        _check.size(proto.graph)
        return canonical(
            proto, path.parent, shapes=shapes, batch=batch, outputs=outputs, source=str(source),
            weights=values,
        )  # fmt: skip
    except ModelError as error:
        error.where = error.where or str(path)
        raise


def open_inputs(source: str | Path, batch: int | None = None) -> dict[str, tuple[int | None, ...]]:
    """The inputs whose sizes the file leaves open, with None for each open dimension.

    An input of unknown rank has an empty shape here, and ``batch`` stands for an open batch.

    Raises:
        ModelError: when the file cannot be read; see :func:`load`.
    """
    graph = _files.read(Path(source))[0].graph
    constants = {tensor.name for tensor in graph.initializer}
    found: dict[str, tuple[int | None, ...]] = {}
    for value in graph.input:
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        closed = tensor.HasField("shape") and all(map(_check.is_fixed, dims))
        if value.name not in constants and not closed:
            found[value.name] = tuple(
                dim.dim_value if _check.is_fixed(dim)
                else batch if _check.is_batch(position, dim) else None
                for position, dim in enumerate(dims)
            )  # fmt: skip
    return found


def canonical(
    proto: onnx.ModelProto,
    base_folder: Path | None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    source: str = "",
    weights: Mapping[str, np.ndarray] | None = None,
    known: Mapping[str, tuple[int, tuple[int, ...]]] | None = None,
) -> Model:
    """Makes a Model of a ModelProto, which is left as it is.

    Of its metadata only edgekit's own is kept ("edgekit.rewrite", ...).

    Args:
        proto: The graph; an initializer may be a stub whose values stand in ``weights``, so a
            Model's own proto and weights may be passed again after editing.
        base_folder: Where external data lies; None when there is none.
        shapes: As in :func:`load`.
        batch: As in :func:`load`.
        outputs: As in :func:`load`.
        source: What to call the model (``Model.source``).
        weights: Values by tensor name. A name that a node produces replaces that node: so the
            generated weights of a light model can be given. Read-only arrays are kept as they
            are, others as read-only views: do not change them afterwards.
        known: ONNX element type and shape of computed tensors by name, where an inference has
            found them already: it is not repeated for nodes all of whose outputs are known.

    Raises:
        ModelError: see :func:`load`.
    """
    import onnx

    _check.opset(proto)
    _check.text(proto.graph)
    copy = onnx.ModelProto()
    copy.CopyFrom(_check.modern(proto))
    version = _check.opset(copy)
    calls: dict[str, Folded] = {}
    if copy.functions:
        calls = _calls(copy)
        copy = _inlined(copy)
        _check.size(copy.graph)
    graph = copy.graph
    _files.embed(graph, base_folder)
    _graph.name_nodes(graph.node)
    _check.names(graph)
    values = {
        name: value if isinstance(value, Deferred) else frozen(value)
        for name, value in entries(weights or {}).items()
    }
    constants = _constants(graph, values, base_folder)
    inputs = [value for value in graph.input if value.name not in constants]
    defined = {value.name for value in inputs} | set(constants)
    nodes = [node for node in graph.node if not any(name in values for name in node.output)]
    nodes = _graph.sort(nodes, defined)
    wanted = _outputs(graph, nodes, defined, outputs)
    nodes = _graph.reachable(nodes, wanted, defined)
    _check.operators(nodes, version)
    used = {name for node in nodes for name in _graph.reads(node)} | set(wanted)
    written = {name for node in nodes for name in node.output if name}
    given = {name: tuple(s) for name, s in (shapes or {}).items() if name in written}
    sizes = {name: s for name, s in (shapes or {}).items() if name not in written}
    used |= set(sizes)
    inputs = [value for value in inputs if value.name in used]
    fixed, notes = _check.input_shapes(inputs, sizes, batch)
    state = Evaluation(
        version, constants, fixed, _declared(graph, inputs, fixed), known or {}, given
    )
    state.run(nodes)
    domains = {item.domain: item.version for item in copy.opset_import}
    ends = [value.name for value in inputs]
    stripped, arrays = emit(state, ends, wanted, graph.name, domains)
    copy_metadata(proto, stripped)
    folded = {**calls, **_folded(graph.node, values, state, {n.name for n in stripped.graph.node})}
    if state.plugins or state.unknown:
        notes += opaque_notes(stripped)
    return Model(stripped, arrays, None, source, folded, notes)


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    import onnx.checker
    import onnx.inliner

    _check.calls(proto)
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (onnx.checker.ValidationError, RuntimeError, ValueError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ModelError(
            f"the model's own functions cannot be put in place of their calls: {reason}",
            code="model.functions",
            hint="export the model again without functions of its own",
        ) from error


def _calls(proto: onnx.ModelProto) -> dict[str, Folded]:
    """The named nodes that call the file's own functions."""
    functions = {(function.domain, function.name) for function in proto.functions}
    return {
        node.name: Folded("function", tuple(node.input), tuple(node.output))
        for node in proto.graph.node
        if node.name and (node.domain, node.op_type) in functions
    }


def _folded(
    nodes: Iterable[onnx.NodeProto],
    given: Collection[str],
    state: Evaluation,
    kept: Collection[str],
) -> dict[str, Folded]:
    """What became of the nodes that are not kept, with the names their tensors have now."""
    found = dict(state.folded)
    for node in [*nodes, *state.nodes]:
        if node.name not in kept and node.name not in found:
            replaced = any(name in given for name in node.output)
            reason = "given" if replaced else "unused"
            found[node.name] = Folded(reason, tuple(node.input), tuple(node.output))
    if not state.alias:
        return found
    for name, gone in found.items():
        now = [_current(output, state.alias) for output in gone.outputs]
        found[name] = replace(gone, outputs=tuple(dict.fromkeys((*gone.outputs, *now))))
    return found


def _current(name: str, alias: Mapping[str, str]) -> str:
    # an alias of a tensor that then took the name of the graph's output: two steps at most
    name = alias.get(name, name)
    return alias.get(name, name)


def _constants(
    graph: onnx.GraphProto, given: Mapping[str, Constant], folder: Path | None
) -> dict[str, Constant]:
    from onnx import TensorProto, numpy_helper

    constants: dict[str, Constant] = {}
    external = []
    for tensor in graph.initializer:
        if tensor.name in given:
            value = given[tensor.name]
            if tuple(value.shape) != tuple(tensor.dims):
                raise ModelError(
                    f"the values given for {tensor.name!r} have shape {list(value.shape)}; "
                    f"the model's have {list(tensor.dims)}",
                    code="model.weight_shape",
                    where=tensor.name,
                )
            constants[tensor.name] = value
        elif tensor.data_location == TensorProto.EXTERNAL:
            external.append(tensor)
        else:
            try:
                constants[tensor.name] = frozen(numpy_helper.to_array(tensor))
            except (ValueError, TypeError, KeyError) as error:
                raise ModelError(
                    f"initializer {tensor.name!r} does not hold what its shape "
                    f"{list(tensor.dims)} and type {tensor.data_type} say: {error}",
                    code="model.tensor_size",
                    where=tensor.name,
                    hint="the exporter wrote a broken tensor, or the file is damaged",
                ) from error
    stub = next((t for t in external if any(e.value == STRIPPED for e in t.external_data)), None)
    if stub is not None:
        raise ModelError(
            f"the values of weight {stub.name!r} are stripped and were not given",
            code="model.weight_missing",
            where=stub.name,
        )
    constants.update(_files.external_values(external, folder))
    return {**constants, **given}


def _outputs(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    known: set[str],
    outputs: Sequence[str] | None,
) -> list[str]:
    """The tensors to end at: those asked for (a node stands for its outputs) or the graph's."""
    own = [value.name for value in graph.output]
    produced = {name for node in nodes for name in node.output if name}
    if outputs is None:
        for name in own:
            if name not in produced and name not in known:
                raise ModelError(
                    f"the graph's output {name!r} is not defined by any node",
                    code="model.undefined_tensor",
                    where=name,
                    hint=_graph.nearest(name, produced),
                )
        return list(dict.fromkeys(own))
    by_node = {node.name: [name for name in node.output if name] for node in nodes}
    wanted: list[str] = []
    for name in outputs:
        if name in produced:
            wanted.append(name)
        elif name in by_node:
            wanted += by_node[name]
        else:
            candidates = [*own, *produced, *by_node]
            raise ModelError(
                f"there is no tensor or node called {name!r} to cut the network at",
                code="model.unknown_output",
                where=name,
                hint=_graph.nearest(name, candidates)
                or f"the model's outputs are: {', '.join(own)}",
            )
    if not wanted:
        raise ModelError(
            "the list of outputs is empty",
            code="model.unknown_output",
            hint=f"the model's outputs are: {', '.join(own)}",
        )
    return list(dict.fromkeys(wanted))


def _declared(
    graph: onnx.GraphProto,
    inputs: Sequence[onnx.ValueInfoProto],
    fixed: Mapping[str, tuple[int, tuple[int, ...]]],
) -> dict[str, onnx.TypeProto]:
    """What the file says about tensors, for operators without inference.

    Where sizes were given it says nothing of the tensors of fixed size: an exporter may have
    written there what it traced with, a batch of 1 as a rule.
    """
    import onnx

    declared = {value.name: value.type for value in [*graph.value_info, *graph.output]}
    sizes = [
        (dim, size)
        for value in inputs
        for dim, size in zip(value.type.tensor_type.shape.dim, fixed[value.name][1], strict=False)
        if not _check.is_fixed(dim)
    ]
    if not sizes:
        return declared
    opened = {dim.dim_param: size for dim, size in sizes if dim.dim_param}
    traced = all(size == 1 for _, size in sizes)
    found = {}
    for name, proto in declared.items():
        labels = {dim.dim_param for dim in proto.tensor_type.shape.dim if dim.dim_param}
        if labels and labels <= opened.keys():
            filled = onnx.TypeProto()
            filled.CopyFrom(proto)
            for dim in filled.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_value = opened[dim.dim_param]
            found[name] = filled
        elif traced and not labels:
            found[name] = proto
    return found
