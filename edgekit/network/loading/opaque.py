"""Opaque nodes: plugins that only the board can run, nodes with data-dependent shapes, and nodes
that replace a module which is left out.

An operator that is not ONNX's needs a plugin in the board's TensorRT. A node that reads or writes a
tensor of unknown shape (NonMaxSuppression and its consumers) runs on the GPU. Each is a layer of
unknown cost; this machine runs the network up to them, and through plugins with a function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import ValueInfoProto, helper

from edgekit.errors import ModelError
from edgekit.network.graph import LEFT, PLUGIN, SHAPES, Node, OnnxGraph, node_proto
from edgekit.network.model import Model, copy_metadata
from edgekit.network.operators import has_importer, operator_table
from edgekit.network.protos import RUNTIMES, elem_named, reachable
from edgekit.text import counted, listed

_QUIET = 4
_SHOWN = 4


def plugin_creator_key(node: Node) -> dict[str, str]:
    """Returns name, version and namespace of the plugin that TensorRT's parser looks up (guide,
    9.3)."""
    return {
        "plugin": node.op,
        "plugin_version": str(node.attrs.get("plugin_version", "1")),
        "plugin_namespace": str(node.attrs.get("plugin_namespace", "")),
    }


def plugin_notes(graph: OnnxGraph, only: Collection[str] | None = None) -> tuple[str, ...]:
    """Returns notes on the plugins that a model's nodes, or those of ``only``, need, and on those
    that TensorRT ships."""
    users: dict[str, list[str]] = {}
    for node in graph.nodes():
        if only is not None and node.name not in only:
            continue
        if graph.opaque.get(node.name) == PLUGIN and not has_importer(node.op):
            found = plugin_creator_key(node)
            space = f" of {found['plugin_namespace']!r}" if found["plugin_namespace"] else ""
            name = f"{found['plugin']}, version {found['plugin_version']}{space}"
            who = f"the board's TensorRT needs the plugin {name}"
            if found["plugin"] in operator_table().plugins.names:
                who = f"TensorRT ships the plugin {name}"
            users.setdefault(who, []).append(node.name)
    return _describe_users(users)


def _describe_users(users: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(
        f"{who} ({listed(nodes, _SHOWN)}): "
        f"{'one GPU layer' if len(nodes) == 1 else counted(len(nodes), 'GPU layer')} "
        "of unknown cost"
        for who, nodes in users.items()
    )


def left_notes(graph: OnnxGraph) -> tuple[str, ...]:
    """Returns notes on the modules that are left out of a model."""
    calls = Counter(
        str(node.attrs["module"]) for node in graph.nodes() if graph.opaque.get(node.name) == LEFT
    )
    if not calls:
        return ()
    words = [
        f"{path} ({counted(count, 'call')})" if count > 1 else path for path, count in calls.items()
    ]
    return (f"left out of the network, and in no figure: {listed(words)}",)


def opaque_notes(graph: OnnxGraph) -> tuple[str, ...]:
    """Returns notes on a model's opaque nodes: the plugins that the board needs, and the nodes with
    unknown shapes."""
    users: dict[str, list[str]] = {}
    for node in graph.nodes():
        if graph.opaque.get(node.name) == PLUGIN and has_importer(node.op):
            who = f"edgekit does not know which layers TensorRT's parser writes for {node.op}"
            users.setdefault(who, []).append(node.name)
    notes = [*left_notes(graph), *plugin_notes(graph), *_describe_users(users)]
    shapeless = [name for name, why in graph.opaque.items() if why == SHAPES]
    if graph.unknown:
        first = next(iter(graph.unknown))
        maker = graph.producer(first)
        made = maker is not None and graph.opaque.get(maker.name) == PLUGIN
        others = ", or with outputs or python of model.plugins" if made else ""
        those = f"; on the GPU at unknown cost: {listed(shapeless, _SHOWN)}" if shapeless else ""
        notes.append(
            f"the shape of {first!r} is only known at run time (if it is always the same, give "
            f"it with --shape {first}:SIZExSIZE or model.shapes{others}){those}"
        )
    return tuple(notes)


def before_opaque(model: Model) -> Model:
    """Returns the part that this machine can run: the model up to its opaque nodes.

    Without opaque nodes this is the model itself. A plugin with a function runs here. The part ends
    at the inputs of the opaque nodes, and at the model outputs that need no opaque node. Its inputs
    are those of the model, even if only opaque nodes read them.

    Raises:
        ModelError: ``model.opaque`` if no node precedes the opaque nodes.
    """
    graph = model.graph
    if not graph.only_on_board:
        return model
    gone: set[str] = set()
    remaining: list[Node] = []
    ends: list[str] = []
    for node in graph.nodes():
        # behind an opaque node nothing can run here either
        if node.name in graph.only_on_board or not gone.isdisjoint(node.reads()):
            gone.update(node.outputs)
            # outputs of kept nodes are picked from these below
            ends += node.reads()
        else:
            remaining.append(node)
    made = {name for node in remaining for name in node.outputs if name}
    ends = [name for name in [*graph.outputs, *ends] if name in made]
    if not ends:
        first = next(iter(graph.only_on_board))
        raise ModelError(
            f"no tensor can be calibrated or compared here, because node {first!r} comes first and "
            "runs only on the board",
            code="model.opaque",
            where=first,
            hint="use edgekit check and plan, or export the network without that node",
        )
    outputs = list(dict.fromkeys(ends))
    needed = reachable([node_proto(node) for node in remaining], outputs, graph.initializers)
    part = model.cut({node.name for node in needed}, graph.inputs, outputs)
    copy_metadata(model.proto, part.proto)
    return replace(part, folded=model.folded, notes=model.notes)


def inferred_plugin(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto | None]
) -> dict[str, onnx.TypeProto]:
    """Returns the known types of a plugin's outputs; ONNX Runtime infers its own operators'."""
    if node.domain not in RUNTIMES or any(proto is None for proto in types.values()):
        return {}
    import onnxruntime as ort

    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "plugin",
        [ValueInfoProto(name=name, type=proto) for name, proto in types.items()],
        [ValueInfoProto(name=name) for name in outputs],
    )
    # any version of ai.onnx will do: the graph has no node of that domain
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(node.domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:
        # ONNX Runtime lacks the operator, or these inputs: only the board's plugin knows the types
        return {}
    found = {}
    for value in session.get_outputs():
        sizes = [size if isinstance(size, int) else None for size in value.shape]
        kind = elem_named(value.type)
        if kind:
            found[value.name] = helper.make_tensor_type_proto(kind, sizes)
    return found
