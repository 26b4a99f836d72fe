"""Loads an ONNX file into a checked ``Model``: static shapes, folded constants, referenced weights.

``load`` is the package's main function; ``emit`` returns the evaluated graph as a stripped
ModelProto and its weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network import files, protos
from edgekit.network.loading import validation
from edgekit.network.loading.axes import is_batch, is_fixed
from edgekit.network.loading.opaque import opaque_notes
from edgekit.network.loading.raising import RAISED, raise_opset
from edgekit.network.loading.shapes import Evaluation
from edgekit.network.loading.zero_points import add_zero_points
from edgekit.network.model import (
    Constant,
    Deferred,
    Folded,
    Model,
    copy_metadata,
    entries,
    materialise,
    read_only,
    weight_arrays,
)
from edgekit.network.module_names import keep_module_names, stack_trace
from edgekit.network.plugins import Plugin, check_used
from edgekit.network.protos import (
    UNLISTED,
    dtype_name,
    is_plugin,
    onnx_elem_type,
    reachable,
    reads,
    rename_reads,
    subgraphs,
    tensor_type,
)
from edgekit.text import first_line

if TYPE_CHECKING:
    from edgekit.network.loading.proposals import Proposal

# external-data location of a weight whose values are outside the graph
STRIPPED = "stripped"
_WEIGHT_BYTES = 1024
# inputs that are parameters of an operator, by position: they stay in the graph
_PARAMETERS = {
    "Clip": {1, 2},
    "DequantizeLinear": {1, 2},
    "Dropout": {1, 2},
    "Pad": {1, 2, 3},
    "QuantizeLinear": {1, 2},
    "Resize": {1, 2, 3},
    "Upsample": {1},
    "Expand": {1},
    "OneHot": {1, 2},
    "Pow": {1},
}
# operators for which even a single value is a weight: it can be refitted
_WEIGHT_OPS = {
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "Gemm",
    "InstanceNormalization",
    "LayerNormalization",
    "MatMul",
    "PRelu",
}
_FLOATS = frozenset({"float32", "float16", "float64", "bfloat16"})
# from IR version 4 on an initializer need not be an input of the graph as well
_OLDEST_IR = 4


def emit(
    state: Evaluation,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str,
    domains: Mapping[str, int],
) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Returns the stripped model and its weights by name, both in a fixed order.

    ``domains`` has the versions of operator sets other than ai.onnx.
    """
    nodes = _restore_output_names(state, inputs, outputs)
    # an added Identity, or a name that is an output again, decides which nodes are still read
    nodes = reachable(nodes, outputs, state.constants)
    read = dict.fromkeys([tensor for node in nodes for tensor in reads(node)] + list(outputs))
    _drop_unused_outputs(nodes, read, state.version)
    roles = weight_roles(nodes)
    weights: dict[str, Constant] = {}
    initializers = []
    for tensor in read:
        if tensor not in state.constants:
            continue
        value = state.constants[tensor]
        value = value if isinstance(value, Deferred) else read_only(value)
        if is_weight(value, roles.get(tensor, set())):
            weights[tensor] = value
            initializers.append(stub(tensor, value))
        else:
            array = np.array(materialise(value), order="C")
            initializers.append(numpy_helper.from_array(array, tensor))
    ends = frozenset(outputs)
    graph = helper.make_graph(
        nodes,
        name or "network",
        [_info(state, tensor) for tensor in inputs if tensor in read],
        [_info(state, tensor) for tensor in outputs],
        initializers,
        value_info=[
            _info(state, tensor)
            for node in nodes
            for tensor in node.output
            # even the type of a plugin's output may be unknown
            if tensor and tensor not in ends and state.unknown.get(tensor, 1) is not None
        ],
    )
    for node in graph.node:
        keep_module_names(node)
        _forget_sources(node)
    opsets = [helper.make_opsetid("", state.version)]
    for domain in dict.fromkeys(node.domain for node in nodes if node.domain):
        opsets.append(helper.make_opsetid(domain, domains.get(domain, 1)))
    oldest = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=max(_OLDEST_IR, oldest))
    model.producer_name = "edgekit"
    return model, weight_arrays(weights)


def stub(name: str, value: Constant) -> onnx.TensorProto:
    """Returns an initializer without data, in the form for which ONNX Runtime accepts values."""
    tensor = onnx.TensorProto(
        name=name,
        data_type=onnx_elem_type(value.dtype),
        dims=value.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, text in (("location", STRIPPED), ("offset", "0"), ("length", str(value.nbytes))):
        tensor.external_data.add(key=key, value=text)
    return tensor


def _restore_output_names(
    state: Evaluation, inputs: Sequence[str], outputs: Sequence[str]
) -> list[onnx.NodeProto]:
    """Restores the names of outputs whose Identity node was removed, and returns the nodes."""
    nodes = list(state.nodes)
    renamed: dict[str, str] = {}
    fixed = {*inputs, *outputs, *state.constants}
    for output in outputs:
        root = state.alias.get(output)
        if root is None:
            continue
        # two outputs may be aliases of one tensor, which then already has the first one's name
        root = renamed.get(root, root)
        if root in state.unknown:
            state.unknown[output] = state.unknown[root]
        else:
            state.shapes[output] = _shape(state, root)
            state.types[output] = _type(state, root)
        if root in state.constants:
            state.constants[output] = state.constants[root]
        # the name of an input, a constant or another output cannot change: a node copies the tensor
        elif root in fixed:
            # named after the file's node that was removed as an alias of its input
            own = (name for name, gone in state.folded.items() if output in gone.outputs)
            name = next(own, f"Identity:{output}")
            nodes.append(helper.make_node("Identity", [root], [output], name=name))
        else:
            # the tensor itself takes the output's name, so no node is needed
            renamed[root] = output
            # removed nodes that wrote it are still found by this name
            state.alias[root] = output
            fixed.add(output)
    if renamed:
        for node in nodes:
            rename_reads(node, renamed)
            for index, tensor in enumerate(node.output):
                node.output[index] = renamed.get(tensor, tensor)
    return nodes


def _drop_unused_outputs(
    nodes: Sequence[onnx.NodeProto], used: Collection[str], version: int
) -> None:
    """Removes the names of optional outputs without readers (masks, saved means)."""
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for node in nodes:
        # plugins and the parser's unlisted operators have no ONNX schema, so no optional outputs
        if len(node.output) == 1 or node.domain or node.op_type in UNLISTED:
            continue
        if is_plugin(node, version):
            continue
        formal = onnx.defs.get_schema(node.op_type, version).outputs
        for index, tensor in enumerate(node.output):
            if tensor not in used and index < len(formal) and formal[index].option == optional:
                node.output[index] = ""
        while len(node.output) > 1 and not node.output[-1]:
            del node.output[-1]


def weight_roles(nodes: Sequence[onnx.NodeProto]) -> dict[str, set[tuple[str, int]]]:
    roles: dict[str, set[tuple[str, int]]] = {}
    for node in nodes:
        for index, tensor in enumerate(node.input):
            if tensor:
                roles.setdefault(tensor, set()).add((node.op_type, index))
    return roles


def is_weight(value: Constant, roles: set[tuple[str, int]]) -> bool:
    # packed and 8-bit float types have no NumPy layout that ONNX Runtime accepts by reference
    name = dtype_name(onnx_elem_type(value.dtype))
    if value.dtype.kind not in "fiub" and name != "bfloat16":
        return False
    # whatever its role: a large tensor would make the stripped graph large
    if value.nbytes >= _WEIGHT_BYTES:
        return True
    if name not in _FLOATS or value.size == 0:
        return False
    if any(index in _PARAMETERS.get(op, set()) for op, index in roles):
        return False
    return value.size > 1 or any(op in _WEIGHT_OPS for op, _ in roles)


def _info(state: Evaluation, name: str) -> onnx.ValueInfoProto:
    if name in state.unknown:
        known = state.unknown[name]
        if known is None:  # an output must have a type
            known = onnx.TypeProto()
            known.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return onnx.ValueInfoProto(name=name, type=known)
    return onnx.ValueInfoProto(name=name, type=tensor_type(_type(state, name), _shape(state, name)))


def _shape(state: Evaluation, name: str) -> tuple[int, ...]:
    if name in state.constants:
        return tuple(state.constants[name].shape)
    return state.shapes[name]


def _type(state: Evaluation, name: str) -> int:
    if name in state.constants:
        return onnx_elem_type(state.constants[name].dtype)
    return state.types[name]


def _forget_sources(node: onnx.NodeProto) -> None:
    """Removes source paths and stack traces that exporters wrote: they affect no result."""
    node.ClearField("doc_string")
    for body in subgraphs(node):
        body.ClearField("doc_string")
        for inner in body.node:
            inner.ClearField("metadata_props")
            _forget_sources(inner)


def load(
    source: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    plugins: Sequence[Plugin] = (),
    values: Mapping[str, Sequence[int]] | None = None,
) -> Model:
    """Reads an ONNX file.

    Args:
        source: Path of the file. Its weights, inline or external, stay in their files and are
            memory-mapped.
        shapes: Sizes for inputs, in elements per dimension; required if dimensions other than the
            batch are dynamic. Also for tensors with plugin- or data-dependent shapes.
        batch: The size of a dynamic batch; 1 if None, with a note in ``Model.notes``.
        outputs: Tensor or node names to cut the network at; the file's outputs if None.
        plugins: The user's own plugins, each for an operator in the file.
        values: Values of integer inputs, which become constants.

    Raises:
        ModelError: with a stable code ``model.*`` for every error of the file.
    """
    path = Path(source)
    proto, weights = files.read(path)
    fix_inputs(proto.graph, values or {})
    try:
        validation.check_node_count(proto.graph)
        check_used(plugins, proto)
        return canonical(
            proto,
            path.parent,
            shapes=shapes,
            batch=batch,
            outputs=outputs,
            source=str(source),
            weights=weights,
            plugins=plugins,
        )
    except ModelError as error:
        # an error of a node keeps the node's name
        error.where = error.where or str(path)
        raise


def fix_inputs(graph: onnx.GraphProto, values: Mapping[str, Sequence[int]]) -> None:
    """Replaces integer inputs by constants, in place."""
    for value in graph.input:
        if value.name in values:
            kind = value.type.tensor_type
            array = np.array(values[value.name], helper.tensor_dtype_to_np_dtype(kind.elem_type))
            sizes = [dim.dim_value for dim in kind.shape.dim]
            # an input with an initializer of its name is a constant from here on
            graph.initializer.append(numpy_helper.from_array(array.reshape(sizes), value.name))


def file_inputs(source: str | Path) -> list[onnx.ValueInfoProto]:
    """Returns a file's inputs, without initializers.

    Raises:
        ModelError: if the file cannot be read; see :func:`load`.
    """
    graph = files.read(Path(source))[0].graph
    # files of IR versions before 4 list initializers as inputs too
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def file_metadata(source: str | Path) -> dict[str, str]:
    """Returns a file's metadata as exporters write them.

    Raises:
        ModelError: if the file cannot be read; see :func:`load`.
    """
    return _metadata(files.read(Path(source))[0])


def _metadata(proto: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}


def proposed_sizes(source: str | Path) -> Proposal | None:
    """Returns sizes for a file's dynamic dimensions; None if all are static.

    Raises:
        ModelError: if the file cannot be read; see :func:`load`.
    """
    proto = files.read(Path(source))[0]
    left_open = open_inputs(source)
    inputs = [value for value in proto.graph.input if value.name in left_open]
    from edgekit.network.loading.proposals import propose

    return propose(inputs, proto.graph, _metadata(proto)) if inputs else None


def open_inputs(source: str | Path, batch: int | None = None) -> dict[str, tuple[int | None, ...]]:
    """Returns the shapes of inputs with dynamic dimensions, with None for each of these.

    An input of unknown rank has an empty shape; ``batch`` replaces a dynamic batch.

    Raises:
        ModelError: if the file cannot be read; see :func:`load`.
    """
    found: dict[str, tuple[int | None, ...]] = {}
    for value in file_inputs(source):
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        closed = tensor.HasField("shape") and all(map(is_fixed, dims))
        if not closed:
            found[value.name] = tuple(
                dim.dim_value if is_fixed(dim) else batch if is_batch(position, dim) else None
                for position, dim in enumerate(dims)
            )
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
    plugins: Sequence[Plugin] = (),
) -> Model:
    """Converts a ModelProto, which is not changed, into a Model.

    From its metadata only edgekit's own is kept ("edgekit.rewrite", ...), from the nodes' metadata
    the names of their PyTorch modules.

    Args:
        proto: The graph; an initializer may be a stub with values in ``weights``, so a Model's own
            proto and weights may be passed again after editing.
        base_folder: Folder of external data; None if there is none.
        shapes: As in :func:`load`.
        batch: As in :func:`load`.
        outputs: As in :func:`load`.
        source: Name of the model (``Model.source``).
        weights: Values by tensor name. The name of a node's output replaces that node, so that the
            generated weights of a light model can be given. Read-only arrays are kept, others
            become read-only views: do not change them afterwards.
        known: ONNX element type and shape of computed tensors by name, from an earlier inference:
            inference is skipped for nodes whose outputs are all known.
        plugins: The user's own plugins.

    Raises:
        ModelError: see :func:`load`.
    """
    version = validation.opset(proto)
    validation.check_names_are_text(proto.graph)
    if version < RAISED:
        copy, version = raise_opset(proto, version), RAISED
    else:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
    calls: dict[str, Folded] = {}
    if copy.functions:
        # before their bodies replace them
        calls = _function_calls(copy)
        copy = _inline_functions(copy)
        # again: inlining may have multiplied the nodes
        validation.check_node_count(copy.graph)
    graph = copy.graph
    files.embed(graph, base_folder)
    protos.name_nodes(graph.node)
    protos.name_inner_nodes(graph.node)
    validation.check_names_unique(graph)
    values = {
        name: value if isinstance(value, Deferred) else read_only(value)
        for name, value in entries(weights or {}).items()
    }
    constants = read_constants(graph, values, base_folder)
    # before any node is sorted or folded: zero points become constants of the graph
    quantised = add_zero_points(graph.node, constants)
    inputs = [value for value in graph.input if value.name not in constants]
    defined = {value.name for value in inputs} | set(constants)
    # the given values replace these nodes
    nodes = [node for node in graph.node if not any(name in values for name in node.output)]
    nodes = protos.sort(nodes, defined)
    wanted = select_outputs(graph, nodes, defined, outputs)
    nodes = protos.reachable(nodes, wanted, defined)
    validation.check_operators(nodes, version)
    used = {name for node in nodes for name in protos.reads(node)} | set(wanted)
    written = {name for node in nodes for name in node.output if name}
    given = {name: tuple(s) for name, s in (shapes or {}).items() if name in written}
    sizes = {name: s for name, s in (shapes or {}).items() if name not in written}
    # a size may be given for an input that only unused nodes read: its name is not unknown
    used |= set(sizes)
    inputs = [value for value in inputs if value.name in used]
    fixed, notes = validation.input_shapes(inputs, sizes, batch, proto)
    state = Evaluation(
        version,
        constants,
        fixed,
        _declared_types(graph, inputs, fixed),
        known or {},
        given,
        plugins,
    )
    state.run(nodes)
    domains = {item.domain: item.version for item in copy.opset_import}
    ends = [value.name for value in inputs]
    traces = {node.name: trace for node in nodes if (trace := stack_trace(node))}
    stripped, arrays = emit(state, ends, wanted, graph.name, domains)
    copy_metadata(proto, stripped)
    folded = {
        **calls,
        **_folded_nodes(graph.node, values, state, {n.name for n in stripped.graph.node}),
    }
    notes += quantised
    model = Model(stripped, arrays, None, source, folded, notes, traces, tuple(plugins))
    # only then: the notes need the index of the whole graph
    if state.plugins or state.unknown:
        return replace(model, notes=notes + opaque_notes(model.graph))
    return model


def _inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    import onnx.checker
    import onnx.inliner

    validation.check_calls(proto)
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (onnx.checker.ValidationError, RuntimeError, ValueError, IndexError) as error:
        raise ModelError(
            f"the model's local functions cannot be inlined: {first_line(error)}",
            code="model.functions",
            hint="export the model again without local functions",
        ) from error


def _function_calls(proto: onnx.ModelProto) -> dict[str, Folded]:
    """Returns the named nodes that call the file's own functions."""
    functions = {(function.domain, function.name) for function in proto.functions}
    return {
        node.name: Folded("function", tuple(node.input), tuple(node.output))
        for node in proto.graph.node
        if node.name and (node.domain, node.op_type) in functions
    }


def _folded_nodes(
    nodes: Iterable[onnx.NodeProto],
    given: Collection[str],
    state: Evaluation,
    retained: Collection[str],
) -> dict[str, Folded]:
    """Returns the removed nodes with their reasons and the current names of their tensors."""
    found = {name: gone for name, gone in state.folded.items() if name not in retained}
    # the state's nodes include those of taken branches, which are not nodes of the file's graph
    for node in [*nodes, *state.nodes]:
        if node.name not in retained and node.name not in found:
            replaced = any(name in given for name in node.output)
            reason = "given" if replaced else "unused"
            found[node.name] = Folded(reason, tuple(node.input), tuple(node.output))
    if not state.alias:
        return found
    alias = state.alias
    for name, gone in found.items():
        # an alias of a tensor that was renamed to the graph's output: two steps at most
        now = [
            alias.get(alias.get(output, output), alias.get(output, output))
            for output in gone.outputs
        ]
        found[name] = replace(gone, outputs=tuple(dict.fromkeys((*gone.outputs, *now))))
    return found


def read_constants(
    graph: onnx.GraphProto, given: Mapping[str, Constant], folder: Path | None
) -> dict[str, Constant]:
    constants: dict[str, Constant] = {}
    external = []
    for tensor in graph.initializer:
        if tensor.name in given:
            value = given[tensor.name]
            if tuple(value.shape) != tuple(tensor.dims):
                raise ModelError(
                    f"the values given for {tensor.name!r} have shape {list(value.shape)}, but "
                    f"the model has {list(tensor.dims)}",
                    code="model.weight_shape",
                    where=tensor.name,
                )
            constants[tensor.name] = value
        elif tensor.data_location == TensorProto.EXTERNAL:
            external.append(tensor)
        else:
            try:
                constants[tensor.name] = read_only(numpy_helper.to_array(tensor))
            except (ValueError, TypeError, KeyError) as error:
                raise ModelError(
                    f"the data of initializer {tensor.name!r} do not match its shape "
                    f"{list(tensor.dims)} and type {tensor.data_type}: {error}",
                    code="model.tensor_size",
                    where=tensor.name,
                    hint="export the model again; the tensor or the file is damaged",
                ) from error
    # before external data are looked up: there is no file of this name
    stub = next((t for t in external if any(e.value == STRIPPED for e in t.external_data)), None)
    if stub is not None:
        raise ModelError(
            f"the values of weight {stub.name!r} are stripped and must be given",
            code="model.weight_missing",
            where=stub.name,
        )
    constants.update(files.external_values(external, folder))
    # with values of nodes' outputs, which are no initializers
    return {**constants, **given}


def select_outputs(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    known: set[str],
    outputs: Sequence[str] | None,
) -> list[str]:
    """Returns the model's outputs: the requested tensors (for a node, its outputs) or the
    graph's."""
    own = [value.name for value in graph.output]
    produced = {name for node in nodes for name in node.output if name}
    if outputs is None:
        for name in own:
            if name not in produced and name not in known:
                raise ModelError(
                    f"the graph's output {name!r} is not defined by any node",
                    code="model.undefined_tensor",
                    where=name,
                    hint=protos.nearest(name, produced),
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
                f"the network cannot be cut at {name!r}: no tensor or node has that name",
                code="model.unknown_output",
                where=name,
                hint=protos.nearest(name, candidates)
                or f"the model's outputs are: {', '.join(own)}",
            )
    if not wanted:
        raise ModelError(
            "the list of outputs is empty",
            code="model.unknown_output",
            hint=f"the model's outputs are: {', '.join(own)}",
        )
    return list(dict.fromkeys(wanted))


def _declared_types(
    graph: onnx.GraphProto,
    inputs: Sequence[onnx.ValueInfoProto],
    fixed: Mapping[str, tuple[int, tuple[int, ...]]],
) -> dict[str, onnx.TypeProto]:
    """Returns the declared types of tensors, for operators without inference.

    If dynamic sizes were given, declared static sizes are not used unless all given sizes are 1:
    an exporter may have written the sizes of its trace, usually a batch of 1.
    """
    declared = {value.name: value.type for value in [*graph.value_info, *graph.output]}
    sizes = [
        (dim, size)
        for value in inputs
        for dim, size in zip(value.type.tensor_type.shape.dim, fixed[value.name][1], strict=False)
        if not is_fixed(dim)
    ]
    if not sizes:
        return declared
    opened = {dim.dim_param: size for dim, size in sizes if dim.dim_param}
    traced = all(size == 1 for _, size in sizes)
    found = {}
    for name, proto in declared.items():
        labels = {dim.dim_param for dim in proto.tensor_type.shape.dim if dim.dim_param}
        # each of its symbols is a size of an input, so all sizes are known
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
