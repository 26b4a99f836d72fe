"""The layer graph of a model, as TensorRT's parser and builder create it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from edgekit.network.graph import IMPORTED, LEFT, PLUGIN, Attributes, LayerSource, Node, OnnxGraph
from edgekit.network.loading.opaque import plugin_creator_key
from edgekit.network.lowering import kinds, pointwise, pooling, products, shuffles
from edgekit.network.lowering.arithmetic import count_macs
from edgekit.network.lowering.compositions import FAMILIES, non_max_suppression
from edgekit.network.lowering.fusion import fuse_shuffles, without_identities
from edgekit.network.lowering.placer import Placer
from edgekit.network.model import FOLLOWED, Layer, Model, Network
from edgekit.network.module_names import common_module
from edgekit.network.operators import has_importer
from edgekit.network.protos import WITH_BODIES

_Family = Callable[[Placer, Node], None]

# operators that become a single layer without parameters
_PLAIN = {
    "Where": "SELECT",
    "PRelu": "PARAMETRIC_RELU",
    "Identity": "IDENTITY",
    "Dropout": "IDENTITY",
    "ScatterElements": "SCATTER",
    "ScatterND": "SCATTER",
    "Scatter": "SCATTER",
    "OneHot": "ONE_HOT",
    "GridSample": "GRID_SAMPLE",
    "RandomNormal": "FILL",
    "RandomNormalLike": "FILL",
    "RandomUniform": "FILL",
    "RandomUniformLike": "FILL",
    "Loop": "LOOP",
    "Scan": "LOOP",
    "If": "CONDITION",
    "ReverseSequence": "REVERSE_SEQUENCE",
    # from TensorRT 10.14 on
    "Attention": "ATTENTION_OUTPUT",
    "RotaryEmbedding": "ROTARY_EMBEDDING",
    "TensorScatter": "KV_CACHE_UPDATE",
    # the parser uses TensorRT's own plugins for these
    "DeformConv": kinds.PLUGIN,
    "RoiAlign": kinds.PLUGIN,
}
# the layer kinds of operators whose shapes are unknown
_UNSHAPED = {
    **dict.fromkeys(pointwise.ELEMENTWISE, "ELEMENTWISE"),
    **dict.fromkeys(pointwise.UNARY, "UNARY"),
    **dict.fromkeys(pointwise.ACTIVATIONS, "ACTIVATION"),
    **dict.fromkeys(pooling.REDUCTIONS, "REDUCE"),
    **dict.fromkeys(("Reshape", "Flatten", "Transpose"), "SHUFFLE"),
    **dict.fromkeys(("Slice", "Split", "Expand", "Tile", "Pad", "ConstantOfShape"), "SLICE"),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), "GATHER"),
    **dict.fromkeys(("TopK", "ArgMax", "ArgMin"), "TOPK"),
    **dict.fromkeys(("Gemm", "MatMul"), "MATRIX_MULTIPLY"),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), "POOLING"),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual", "Mod"), "ELEMENTWISE"),
    **dict.fromkeys(("Cast", "CastLike"), "CAST"),
    "IsInf": "UNARY",
    "Concat": "CONCATENATION",
    "Conv": "CONVOLUTION",
    "ConvTranspose": "DECONVOLUTION",
    "DequantizeLinear": "DEQUANTIZE",
    "LSTM": "LOOP",
    "GRU": "LOOP",
    "RNN": "LOOP",
    "NonZero": "NON_ZERO",
    "QuantizeLinear": "QUANTIZE",
    "Range": "FILL",
    "Resize": "RESIZE",
    "Shape": "SHAPE",
    "Softmax": "SOFTMAX",
}
# the importer broadcasts all their inputs to the same rank
_BROADCASTING = {"Where", "PRelu"}


def layers(model: Model, release: str = FOLLOWED) -> Network:
    """Returns the model's layers as TensorRT's builder places them.

    ``release``: the TensorRT release, as some operators have a layer type of their own only in
    newer releases (``trt/layers.yaml``).

    The layers are those after constant folding, the change of Gemm and MatMul into convolutions,
    and the fusion of shuffles, and before vertical fusion. A node that TensorRT implements with
    several layers appears in the ``nodes`` of each. An operator that needs a plugin becomes a
    PLUGIN_V2, and an operator with unknown layers an UNKNOWN; no DLA runs them. If a layer's
    multiply-accumulates are unknown (``arithmetic``), its ``formula`` is False.

    Raises:
        ModelError: ``model.parameter`` if a parameter that must be constant is computed at run
            time.
    """
    # Identity and Dropout are layers until the builder removes them
    removed = Counter(gone.after for gone in model.folded.values() if gone.reason == "identity")
    return _with_modules(lower_graph(model.graph, release, removed), model.graph)


def _with_modules(network: Network, graph: OnnxGraph) -> Network:
    """Sets each layer's module to that of its nodes, if the file names modules."""
    names = graph.modules
    if names is None:
        return network

    def with_module(layer: Layer) -> Layer:
        # erased reshapes and nodes that prepare weights have other operators, and may belong to
        # other modules
        own = [name for name in layer.origin if graph.node(name).op == layer.op]
        return replace(layer, module=common_module(names.nodes[n] for n in own or layer.origin))

    return replace(
        network,
        layers=tuple(map(with_module, network.layers)),
        constants=tuple(map(with_module, network.constants)),
        modules=names,
    )


def lower_graph(
    graph: LayerSource,
    release: str = FOLLOWED,
    removed: Mapping[str, int] | None = None,
) -> Network:
    """Returns the layers of a graph, as :func:`layers` does for a model.

    Args:
        graph: The nodes with their tensors.
        release: The TensorRT release.
        removed: Number of Identity and Dropout nodes after each node ("" for the graph's inputs)
            that loading removed.

    Raises:
        ModelError: ``model.parameter`` if a parameter that must be constant is computed at run
            time.
    """
    placer = Placer(graph, removed or {}, release)
    families = _families()
    opaque = graph.opaque
    for node in graph.nodes():
        if node.name in opaque:
            _place_opaque(placer, node, opaque[node.name])
        elif not placer.absorb(node):
            _place_node(placer, node, families.get(node.op))
        placer.done(node)
    # identities first: between two shuffles they would prevent the merge
    placed = without_identities(placer.layers, graph.outputs)
    placed = fuse_shuffles(placed, placer.tensors, graph.outputs)
    # fusions leave tensors behind that no layer reads or writes
    used = {name for layer in placed for name in (*layer.inputs, *layer.outputs)}
    used |= {*graph.inputs, *graph.outputs}
    return Network(
        name=graph.name,
        layers=placed,
        tensors={name: tensor for name, tensor in placer.tensors.items() if name in used},
        inputs=graph.inputs,
        outputs=graph.outputs,
        views={name: source for name, source in placer.views.items() if name in used},
        constants=placer.remaining_constants(),
        fixed=placer.fixed(),
        operators=frozenset(node.op for node in graph.nodes()),
        release=release,
    )


def _place_node(placer: Placer, node: Node, family: _Family | None) -> None:
    if node.op in WITH_BODIES:
        _place_control_flow(placer, node)
    elif family is not None:
        family(placer, node)
    elif node.op in {"Cast", "CastLike"}:
        placer.emit(node, "CAST", {"to": placer.tensors[node.outputs[0]].dtype})
    else:
        read = list(node.inputs) if node.op in _BROADCASTING else []
        absorbed = pointwise.imported_constants(placer, node, read)
        macs = count_macs(placer, node)
        placer.emit(
            node,
            _PLAIN.get(node.op) or kinds.kind_in_release(node.op, placer.release) or kinds.UNKNOWN,
            macs=macs or 0,
            formula=macs is not None,
            absorbed=absorbed,
        )


def _place_control_flow(placer: Placer, node: Node) -> None:
    """Emits an If, a Loop or a Scan as a single layer with the cost of its inner layers.

    For an If the branch with more multiply-accumulates counts.
    """
    kind, found = _PLAIN.get(node.op, kinds.UNKNOWN), placer.bodies(node, lower_graph)
    inside = [sum(layer.macs for layer in body.network.layers) for body in found.bodies]
    known = bool(found.bodies) and not any(body.network.uncounted for body in found.bodies)
    params: Attributes = {}
    if kind == "LOOP":
        params = {"trip_count": found.trip_count, "trip_limit": found.trip_limit}
        known &= found.trip_count is not None
    # an If runs once; without a known count the cost is unknown, so 0 does no harm
    runs = params.get("trip_count", 1) or 0
    placer.emit(
        node,
        kind,
        params,
        macs=runs * max(inside) if known else 0,
        formula=known,
        bodies=found.bodies,
    )


def _place_opaque(placer: Placer, node: Node, why: str) -> None:
    """Emits a layer of which only the kind, or the plugin, is known."""
    if why == LEFT:
        placer.emit(node, kinds.UNKNOWN, {"module": node.attrs["module"]}, opaque=why)
        return
    # the parser has an importer of this name, but ONNX does not define the node's form
    if why == PLUGIN and has_importer(node.op):
        placer.emit(node, kinds.UNKNOWN, opaque=IMPORTED)
        return
    if why == PLUGIN:
        own = placer.plugin(node)
        formats = {"formats": own.formats} if own is not None and own.formats else {}
        placer.emit(node, kinds.PLUGIN, {**plugin_creator_key(node), **formats}, opaque=why)
        return
    if node.op == "NonMaxSuppression":
        non_max_suppression(placer, node, why)
        return
    kind = _PLAIN.get(node.op) or kinds.kind_in_release(node.op, placer.release)
    kind = kind or _UNSHAPED.get(node.op, kinds.UNKNOWN)
    placer.emit(node, kind, opaque=why)


def _families() -> dict[str, _Family]:
    table: dict[str, _Family] = {
        "Conv": products.conv,
        "ConvTranspose": products.conv_transpose,
        "Gemm": products.gemm,
        "MatMul": products.matmul,
        "Einsum": products.einsum,
        "BatchNormalization": pooling.batch_norm,
        "ImageScaler": pooling.image_scaler,
        "LRN": pooling.lrn,
        "Concat": shuffles.concat,
        "Transpose": shuffles.transpose,
        "Slice": shuffles.slice_,
        "Split": shuffles.split,
        "Pad": shuffles.pad,
        "ConstantOfShape": shuffles.constant_of_shape,
        "Mean": pointwise.elementwise,
    }
    groups: list[tuple[tuple[str, ...], _Family]] = [
        (("LSTM", "GRU", "RNN"), products.recurrence),
        (("MaxPool", "AveragePool"), pooling.pool),
        (("GlobalAveragePool", "GlobalMaxPool"), pooling.global_pool),
        (("Softmax", "LogSoftmax"), pooling.softmax),
        (
            ("InstanceNormalization", "LayerNormalization", "GroupNormalization"),
            pooling.normalization,
        ),
        (("Resize", "Upsample"), pooling.resize),
        (pooling.REDUCTIONS, pooling.reduce),
        (("HardSwish", "Mish"), pointwise.activation_chain),
        (tuple(pointwise.ACTIVATIONS), pointwise.activation),
        (tuple(pointwise.ELEMENTWISE), pointwise.elementwise),
        (tuple(pointwise.UNARY), pointwise.unary),
        (("Reshape", "Flatten", "Squeeze", "Unsqueeze"), shuffles.reshape),
        (("DepthToSpace", "SpaceToDepth"), shuffles.depth_to_space),
        (("Expand", "Tile"), shuffles.expand),
        (("Gather", "GatherElements", "GatherND"), shuffles.gather),
        (("TopK", "ArgMax", "ArgMin"), shuffles.topk),
        (("QuantizeLinear", "DequantizeLinear"), shuffles.quantization),
    ]
    for names, family in groups:
        table.update(dict.fromkeys(names, family))
    return {**table, **FAMILIES}
