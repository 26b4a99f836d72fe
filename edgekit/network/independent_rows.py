"""Checks if the entries of a batch are independent: then a smaller batch can be padded to a larger
batch, and the outputs cropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgekit.network.graph import Node, OnnxGraph

_POINTWISE = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "DequantizeLinear",
        "Div",
        "Dropout",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Mean",
        "Min",
        "Mish",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "QuantizeLinear",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Where",
        "Xor",
    ]
)
# operators whose inputs after the first are constant, and not along the batch
_PICTURES = frozenset(
    [
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GroupNormalization",
        "InstanceNormalization",
        "LRN",
        "LpPool",
        "MaxPool",
        "SpaceToDepth",
    ]
)
# operators along an axis, with their default axis
_ALONG = {
    "ArgMax": 0,
    "ArgMin": 0,
    "Concat": 0,
    "Gather": 0,
    "Hardmax": -1,
    "LayerNormalization": -1,
    "LogSoftmax": -1,
    "LpNormalization": -1,
    "Softmax": -1,
    "Split": 0,
    "TopK": -1,
}
_REDUCTIONS = "Reduce"
_LEADING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_CROP = "tf_crop_and_resize"


def mixing_node(graph: OnnxGraph) -> str:
    """Returns the first node that may mix the entries of the batch, with the reason; "" for none.

    Unknown nodes are assumed to mix them.

    Args:
        graph: The network, whose inputs have a batch above 1 as their first axis.
    """
    batch = graph.shape(graph.inputs[0])[:1]
    for name in graph.inputs:
        # with a batch of 1 no mix of entries could be seen
        if graph.shape(name)[:1] != batch or batch in ((), (1,)):
            return f"the first axis of input {name!r} is not the batch of all inputs"
    for node in graph.nodes():
        varying = [name for name in node.reads() if not _is_fixed(graph, name)]
        if not varying:
            continue
        why = _mixing_reason(graph, node, varying, batch[0])
        if why:
            return f"{node.op} {node.name}: {why}"
    return ""


def _is_fixed(graph: OnnxGraph, name: str) -> bool:
    return graph.constant(name) or name in graph.derived


def _mixing_reason(graph: OnnxGraph, node: Node, varying: Sequence[str], batch: int) -> str:
    """Returns the reason why a node may mix the batch; "" if it does not."""
    if node.domain or graph.plugin(node) is not None or node.name in graph.opaque:
        return "it is no operator of ONNX"
    outputs = [name for name in node.outputs if name]
    if any(graph.shape(name)[:1] != (batch,) for name in (*varying, *outputs)):
        return "the batch is not its first axis"
    rule = _RULES.get(node.op)
    if rule is None and node.op.startswith(_REDUCTIONS):
        rule = _reduction
    return "it is not known to compute them one by one" if rule is None else rule(graph, node)


def _pointwise(graph: OnnxGraph, node: Node) -> str:
    rank = len(graph.shape(node.outputs[0]))
    for name in node.reads():
        shape = graph.shape(name)
        # broadcasting aligns the last axes: with fewer axes the batch would meet another axis
        if not _is_fixed(graph, name) and len(shape) != rank:
            return "its inputs have different numbers of axes"
        if _is_fixed(graph, name) and len(shape) == rank and shape[:1] not in ((), (1,)):
            return "a constant differs along the batch"
    return ""


def _only_first_varies(graph: OnnxGraph, node: Node) -> str:
    if node.attrs.get("training_mode"):
        return "it trains on the batch"
    others = [name for name in node.inputs[1:] if name and not _is_fixed(graph, name)]
    return "its other inputs vary" if others else ""


def _along_axis(graph: OnnxGraph, node: Node) -> str:
    axis = int(node.attrs.get("axis", _ALONG[node.op]))
    rank = len(graph.shape(node.inputs[0]))
    if (axis + rank if axis < 0 else axis) == 0:
        return "its axis is the batch"
    return "" if node.op == "Concat" else _only_first_varies(graph, node)


def _reduction(graph: OnnxGraph, node: Node) -> str:
    axes = node.attrs.get("axes")
    if axes is None and node.input(1):
        value = graph.value(node.input(1))
        axes = None if value is None else [int(axis) for axis in value.reshape(-1)]
    rank = len(graph.shape(node.inputs[0]))
    if not axes or 0 in {axis + rank if axis < 0 else axis for axis in axes}:
        return "it adds up the batch"
    return ""


def _transpose(graph: OnnxGraph, node: Node) -> str:
    # without `perm` the axes are reversed
    order = node.attrs.get("perm") or [-1]
    return "" if order[0] == 0 else "it moves the batch"


def _resize(graph: OnnxGraph, node: Node) -> str:
    if node.attrs.get("coordinate_transformation_mode") == _CROP:
        return "it crops"
    return _only_first_varies(graph, node)


def _pad(graph: OnnxGraph, node: Node) -> str:
    pads = node.attrs.get("pads")
    if pads is None:
        value = graph.value(node.input(1))
        # the axes of opset 18 on, which would give the pads another meaning
        if value is None or node.input(3):
            return "its pads are not known"
        pads = [int(size) for size in value.reshape(-1)]
    # all begins, then all ends
    return "it pads the batch" if pads[0] or pads[len(pads) // 2] else ""


def _slice(graph: OnnxGraph, node: Node) -> str:
    axes = node.attrs.get("axes")
    if node.input(3):
        value = graph.value(node.input(3))
        axes = None if value is None else [int(axis) for axis in value.reshape(-1)]
    rank = len(graph.shape(node.inputs[0]))
    if not axes or 0 in {axis + rank if axis < 0 else axis for axis in axes}:
        return "it cuts the batch"
    return _only_first_varies(graph, node)


def _gemm(graph: OnnxGraph, node: Node) -> str:
    bias = graph.shape(node.inputs[2]) if node.input(2) else ()
    if node.attrs.get("transA") or (len(bias) == 2 and bias[0] != 1):
        return "it mixes the rows"
    return _only_first_varies(graph, node)


def _matmul(graph: OnnxGraph, node: Node) -> str:
    left, right = node.inputs[:2]
    ranks = [len(graph.shape(name)) for name in (left, right)]
    if _is_fixed(graph, left):
        # [1, ..., M, K] by [B, ..., K, N]; a matrix of two axes would sum over the batch
        fits = ranks[1] > 2 and (ranks[0] < ranks[1] or graph.shape(left)[0] == 1)
    elif _is_fixed(graph, right):
        # a matrix has no batch; with more axes its first is broadcast or absent
        shape = graph.shape(right)
        fits = len(shape) <= 2 or (ranks[0] > 2 and (len(shape) < ranks[0] or shape[0] == 1))
        fits = fits and len(shape) <= ranks[0]
    else:
        fits = ranks[0] == ranks[1] > 2
    return "" if fits else "it multiplies along the batch"


_RULES: dict[str, Callable[[OnnxGraph, Node], str]] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_PICTURES, _only_first_varies),
    **dict.fromkeys(_ALONG, _along_axis),
    # the elements of an entry stay together if the first axis remains the batch
    **dict.fromkeys(_LEADING, _only_first_varies),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Transpose": _transpose,
    "Upsample": _resize,
}
