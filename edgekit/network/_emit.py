"""Writes the evaluated graph down as a stripped ModelProto and its weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.network._deferred import Constant, Deferred, real, weight_arrays
from edgekit.network._digest import frozen
from edgekit.network._evaluate import Evaluation
from edgekit.network._forms import dtype_name, elem_of, tensor_type
from edgekit.network._graph import reachable, reads, rename_reads, subgraphs
from edgekit.network._opaque import is_plugin

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["STRIPPED", "emit", "stub"]

# location of a weight whose values are kept beside the graph
STRIPPED = "stripped"
_WEIGHT_BYTES = 1024
# inputs that say how an operator works, by position: they stay readable in the graph
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
# even a single value is a weight there: it can be refitted
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
_OLDEST_IR = 4


def emit(
    state: Evaluation,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str,
    domains: Mapping[str, int],
) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Returns the stripped model and its weights by name, both in a fixed order.

    ``domains`` has the versions of operator sets beside ai.onnx.
    """
    from onnx import helper

    nodes = _settle_outputs(state, inputs, outputs)
    nodes = reachable(nodes, outputs, state.constants)
    read = dict.fromkeys([tensor for node in nodes for tensor in reads(node)] + list(outputs))
    _drop_unused_outputs(nodes, read, state.version)
    roles = _roles(nodes)
    weights: dict[str, Constant] = {}
    initializers = []
    for tensor in read:
        if tensor not in state.constants:
            continue
        value = state.constants[tensor]
        value = value if isinstance(value, Deferred) else frozen(value)
        if _is_weight(value, roles.get(tensor, set())):
            weights[tensor] = value
            initializers.append(stub(tensor, value))
        else:
            initializers.append(_inline(tensor, real(value)))
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
            # of what a plugin writes not even the type may be known
            if tensor and tensor not in ends and state.unknown.get(tensor, 1) is not None
        ],
    )
    for node in graph.node:
        _forget_origin(node)
    opsets = [helper.make_opsetid("", state.version)]
    for domain in dict.fromkeys(node.domain for node in nodes if node.domain):
        opsets.append(helper.make_opsetid(domain, domains.get(domain, 1)))
    oldest = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=max(_OLDEST_IR, oldest))
    model.producer_name = "edgekit"
    return model, weight_arrays(weights)


def stub(name: str, value: Constant) -> onnx.TensorProto:
    """An initializer without data, in the form that ONNX Runtime takes values for."""
    import onnx

    tensor = onnx.TensorProto(
        name=name,
        data_type=elem_of(value.dtype),
        dims=value.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, text in (("location", STRIPPED), ("offset", "0"), ("length", str(value.nbytes))):
        tensor.external_data.add(key=key, value=text)
    return tensor


def _settle_outputs(
    state: Evaluation, inputs: Sequence[str], outputs: Sequence[str]
) -> list[onnx.NodeProto]:
    """Keeps the outputs' names where an Identity that made them was removed."""
    from onnx import helper

    nodes = list(state.nodes)
    renamed: dict[str, str] = {}
    fixed = {*inputs, *outputs, *state.constants}
    for output in outputs:
        root = state.alias.get(output)
        if root is None:
            continue
        root = renamed.get(root, root)
        if root in state.unknown:
            state.unknown[output] = state.unknown[root]
        else:
            state.shapes[output] = _shape(state, root)
            state.types[output] = _type(state, root)
        if root in state.constants:
            state.constants[output] = state.constants[root]
        elif root in fixed:
            identity = helper.make_node("Identity", [root], [output], name=f"Identity:{output}")
            nodes.append(identity)
        else:
            renamed[root] = output
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
    """Optional results that nobody reads (masks, saved means) lose their names."""
    import onnx

    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for node in nodes:
        if len(node.output) == 1 or is_plugin(node, version):
            continue
        formal = onnx.defs.get_schema(node.op_type, version).outputs
        for index, tensor in enumerate(node.output):
            if tensor not in used and index < len(formal) and formal[index].option == optional:
                node.output[index] = ""
        while len(node.output) > 1 and not node.output[-1]:
            del node.output[-1]


def _roles(nodes: Sequence[onnx.NodeProto]) -> dict[str, set[tuple[str, int]]]:
    roles: dict[str, set[tuple[str, int]]] = {}
    for node in nodes:
        for index, tensor in enumerate(node.input):
            if tensor:
                roles.setdefault(tensor, set()).add((node.op_type, index))
    return roles


def _is_weight(value: Constant, roles: set[tuple[str, int]]) -> bool:
    # packed and 8-bit float types have no NumPy layout that ONNX Runtime takes by reference
    name = dtype_name(elem_of(value.dtype))
    if value.dtype.kind not in "fiub" and name != "bfloat16":
        return False
    if value.nbytes >= _WEIGHT_BYTES:
        return True
    if name not in _FLOATS or value.size == 0:
        return False
    if any(index in _PARAMETERS.get(op, set()) for op, index in roles):
        return False
    return value.size > 1 or any(op in _WEIGHT_OPS for op, _ in roles)


def _inline(name: str, value: np.ndarray) -> onnx.TensorProto:
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array(value, order="C"), name)


def _info(state: Evaluation, name: str) -> onnx.ValueInfoProto:
    import onnx

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
        return elem_of(state.constants[name].dtype)
    return state.types[name]


def _forget_origin(node: onnx.NodeProto) -> None:
    """Exporters leave source paths and stack traces: not part of what the model computes."""
    node.ClearField("doc_string")
    if "metadata_props" in node.DESCRIPTOR.fields_by_name:
        node.ClearField("metadata_props")
    for body in subgraphs(node):
        body.ClearField("doc_string")
        for inner in body.node:
            _forget_origin(inner)
