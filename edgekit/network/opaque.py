"""Opaque nodes: those that only the board can run (plugins), or whose shapes the data decide.

An operator that is not ONNX's needs a plugin in the board's TensorRT. A node that reads or writes a
tensor of unknown shape (NonMaxSuppression, and what follows it) runs on the GPU. Each is one layer
of unknown cost; ONNX Runtime gets the network up to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, ValueInfoProto, defs, helper

from edgekit.errors import ModelError
from edgekit.network.graph import reachable, reads
from edgekit.network.windows import attributes
from edgekit.text import listed

if TYPE_CHECKING:
    from edgekit.network.model import Model


#: Why a node is opaque: TensorRT needs a plugin for it, or a shape is decided by the data.
PLUGIN, SHAPES = "plugin", "shapes"
# ONNX Runtime's own operators: it infers their shapes
_RUNTIMES = frozenset({"com.microsoft"})
_QUIET = 4
_SHOWN = 4


def is_plugin(node: onnx.NodeProto, version: int) -> bool:
    """Whether a node's operator is not one of ai.onnx, so that TensorRT needs a plugin for it."""
    if node.domain:
        return True

    try:
        # `has` takes a millisecond for each operator that it is called with the first time
        defs.get_schema(node.op_type, version)
    except defs.SchemaError:
        return True
    return False


def unknown_tensors(proto: onnx.ModelProto) -> set[str]:
    """The computed tensors whose shape is not known before running."""
    graph = proto.graph
    known = {value.name for value in (*graph.value_info, *graph.output) if is_known(value)}
    return {name for node in graph.node for name in node.output if name and name not in known}


def is_known(value: onnx.ValueInfoProto) -> bool:
    """Whether a tensor's shape stands in the graph."""
    tensor = value.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    if sizes and 0 not in sizes:
        return True
    return tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)


def opaque_nodes(proto: onnx.ModelProto, unknown: Collection[str] | None = None) -> dict[str, str]:
    """Why each opaque node of a model's graph is one, by its name, in graph order.

    ``unknown`` are the graph's :func:`unknown_tensors`, where they are found already.
    """
    version = next(item.version for item in proto.opset_import if not item.domain)
    if unknown is None:
        unknown = unknown_tensors(proto)
    found = {}
    there: set[str] = set()
    for node in proto.graph.node:
        if node.domain or (node.op_type not in there and is_plugin(node, version)):
            found[node.name] = PLUGIN
            continue
        there.add(node.op_type)
        if not unknown:
            continue
        if any(name in unknown for name in (*reads(node), *node.output)):
            found[node.name] = SHAPES
    return found


def plugin_of(node: onnx.NodeProto) -> dict[str, str]:
    """The plugin that TensorRT's parser looks for: name, version and namespace (guide, 9.3)."""
    given = attributes(node)
    return {
        "plugin": node.op_type,
        "plugin_version": str(given.get("plugin_version", "1")),
        "plugin_namespace": str(given.get("plugin_namespace", "")),
    }


def opaque_notes(proto: onnx.ModelProto) -> tuple[str, ...]:
    """What is known of a model's opaque nodes: what the board must have, and what has no shape."""
    opaque = opaque_nodes(proto)
    if not opaque:
        return ()
    users: dict[str, list[str]] = {}
    for node in proto.graph.node:
        if opaque.get(node.name) == PLUGIN:
            found = plugin_of(node)
            space = f" of {found['plugin_namespace']!r}" if found["plugin_namespace"] else ""
            name = f"{found['plugin']}, version {found['plugin_version']}{space}"
            users.setdefault(name, []).append(node.name)
    notes = [
        f"the board's TensorRT must have the plugin {name} ({listed(nodes, _SHOWN)}): "
        f"{'one GPU layer' if len(nodes) == 1 else f'{len(nodes)} GPU layers'} of unknown cost"
        for name, nodes in users.items()
    ]
    unknown = unknown_tensors(proto)
    shapeless = [name for name, why in opaque.items() if why == SHAPES]
    if unknown:
        first = next(n for node in proto.graph.node for n in node.output if n in unknown)
        those = f"; on the GPU at unknown cost: {listed(shapeless, _SHOWN)}" if shapeless else ""
        notes.append(
            f"the shape of {first!r} is not known before running (where it is always the same, "
            f"--shape {first}:SIZExSIZE, model.shapes, says it){those}"
        )
    return tuple(notes)


def before_opaque(model: Model) -> Model:
    """The part that ONNX Runtime can run: the model up to its opaque nodes; itself without any.

    It ends at what the opaque nodes read, and at those of the model's outputs that need none of
    them. Its inputs are those of the model, also where only opaque nodes read them.

    Raises:
        ModelError: ``model.opaque`` where nothing comes before them.
    """
    opaque = opaque_nodes(model.proto)
    if not opaque:
        return model
    graph = model.proto.graph
    gone: set[str] = set()
    remaining, ends = [], []
    for node in graph.node:
        if node.name in opaque or any(name in gone for name in reads(node)):
            gone.update(node.output)
            ends += reads(node)
        else:
            remaining.append(node)
    made = {name for node in remaining for name in node.output if name}
    ends = [name for name in [*(v.name for v in graph.output), *ends] if name in made]
    if not ends:
        first = next(iter(opaque))
        raise ModelError(
            f"nothing comes before node {first!r}, which is run on the board only: there is "
            "nothing to calibrate and compare here",
            code="model.opaque",
            where=first,
            hint="check and plan take it; for more, export the network without that node",
        )
    outputs = list(dict.fromkeys(ends))
    constants = {tensor.name for tensor in graph.initializer}
    remaining = reachable(remaining, outputs, constants)
    read = {name for node in remaining for name in reads(node)} | set(outputs)
    made = {name for node in remaining for name in node.output if name}
    types = {value.name: value for value in (*graph.value_info, *graph.output)}
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for field in ("node", "initializer", "output", "value_info"):
        proto.graph.ClearField(field)
    proto.graph.node.extend(remaining)
    proto.graph.initializer.extend(t for t in graph.initializer if t.name in read)
    proto.graph.output.extend(types[name] for name in outputs)
    proto.graph.value_info.extend(
        value for value in graph.value_info if value.name in made and value.name not in outputs
    )
    weights = {name: model.weights[name] for name in model.weights if name in read}
    return replace(model, proto=proto, weights=weights, stored_digest=None)


def inferred_plugin(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto | None]
) -> dict[str, onnx.TypeProto]:
    """What is known of a plugin's outputs: ONNX Runtime infers those of its own operators."""
    if node.domain not in _RUNTIMES or any(proto is None for proto in types.values()):
        return {}
    import onnxruntime as ort

    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "plugin",
        [ValueInfoProto(name=name, type=proto) for name, proto in types.items()],
        [ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(node.domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:
        # it has no such operator, or not with these inputs: the board's plugin decides
        return {}
    found = {}
    for value in session.get_outputs():
        sizes = [size if isinstance(size, int) else None for size in value.shape]
        kind = _elem(value.type)
        if kind:
            found[value.name] = helper.make_tensor_type_proto(kind, sizes)
    return found


def _elem(text: str) -> int:
    """ONNX's element type of ONNX Runtime's name ("tensor(float)"); 0 for any other."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    found = TensorProto.DataType.DESCRIPTOR.values_by_name.get(name)
    return 0 if found is None else int(found.number)
