"""Layers over neighbourhoods and axes: pooling, reduction, normalisation, softmax, resize."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.network.windows import window

if TYPE_CHECKING:
    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer


_REDUCE = {
    "ReduceMean": "AVG",
    "ReduceSum": "SUM",
    "ReduceMax": "MAX",
    "ReduceMin": "MIN",
    "ReduceProd": "PROD",
}
# the parser's layers before the reduction, the reduction, and the layers after it
_REDUCE_CHAINS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "ReduceL1": (("ABS",), "SUM", ()),
    "ReduceL2": (("SQUARE",), "SUM", ("SQRT",)),
    "ReduceSumSquare": (("SQUARE",), "SUM", ()),
    "ReduceLogSum": ((), "SUM", ("LOG",)),
    "ReduceLogSumExp": (("EXP",), "SUM", ("LOG",)),
}
REDUCTIONS = (*_REDUCE, *_REDUCE_CHAINS)
# opsets since which the axes are an input
_AXES_INPUT = {"ReduceSum": 13}
_AXES_INPUT_OTHERS = 18


def pool(placer: Placer, node: Node) -> None:
    """MaxPool and AveragePool -> POOLING; 1-D pooling is between two reshapes."""
    given = node.attrs
    source, target = node.inputs[0], node.outputs[0]
    size = window(given, given["kernel_shape"], placer.shape(source)[2:], placer.shape(target)[2:])
    params = {
        **size.params(),
        "mode": "MAX" if node.op == "MaxPool" else "AVERAGE",
        "count_include_pad": bool(given.get("count_include_pad", 0)),
        "ceil_mode": bool(given.get("ceil_mode", 0)),
        "indices": len(node.outputs) > 1,
    }
    # TensorRT pools two or three dimensions: the parser adds one to a 1-D pool
    if len(placer.shape(source)) != 3:
        placer.emit(node, "POOLING", params)
        return
    wide = placer.inner(f"{node.name}:in4d", (*placer.shape(source), 1), source, view=True)
    result = placer.inner(f"{node.name}:out4d", (*placer.shape(target), 1), target, view=True)
    placer.reshape(node, source, wide, f"reshape_before_{node.name}", as_op="Unsqueeze")
    placer.emit(node, "POOLING", params, inputs=[wide], outputs=[result, *node.outputs[1:]])
    placer.reshape(node, result, target, f"reshape_after_{node.name}", as_op="Squeeze")


def global_pool(placer: Placer, node: Node) -> None:
    """Global pools -> REDUCE over the spatial axes, as in the parser's log."""
    rank = len(placer.shape(node.inputs[0]))
    function = "AVG" if node.op == "GlobalAveragePool" else "MAX"
    params = {"function": function, "axes": tuple(range(2, rank)), "keepdims": True}
    placer.emit(node, "REDUCE", params)


def reduce(placer: Placer, node: Node) -> None:
    """Reduce* -> REDUCE, for some operators with unary or elementwise layers around it."""
    given = node.attrs
    source, target = node.inputs[0], node.outputs[0]
    rank = len(placer.shape(source))
    axes = given.get("axes")
    if placer.version >= _AXES_INPUT.get(node.op, _AXES_INPUT_OTHERS):
        axes = placer.ints(node, 1)
    # ONNX: without axes all are reduced, unless this attribute is set
    if not axes and given.get("noop_with_empty_axes", 0):
        placer.emit(node, "IDENTITY", inputs=[source])
        return
    params = {
        "axes": tuple(sorted(a % rank for a in axes)) if axes else tuple(range(rank)),
        "keepdims": bool(given.get("keepdims", 1)),
    }
    if node.op in _REDUCE:
        placer.emit(node, "REDUCE", {"function": _REDUCE[node.op], **params}, inputs=[source])
        return
    before, function, after = _REDUCE_CHAINS[node.op]
    current = source
    for step in before:
        result = placer.inner(f"{node.name}:{step.lower()}", placer.shape(source), source)
        if step == "SQUARE":
            squared = {"function": "PROD"}
            placer.emit(node, "ELEMENTWISE", squared, inputs=[current, current], outputs=[result])
        else:
            placer.emit(node, "UNARY", {"function": step}, inputs=[current], outputs=[result])
        current = result
    result = placer.inner(f"{node.name}:sum", placer.shape(target), target) if after else target
    placer.emit(
        node, "REDUCE", {"function": function, **params}, inputs=[current], outputs=[result]
    )
    for step in after:
        placer.emit(node, "UNARY", {"function": step}, inputs=[result])


def softmax(placer: Placer, node: Node) -> None:
    """Softmax -> SOFTMAX; LogSoftmax adds a UNARY LOG.

    Before opset 13 it acts on the input flattened to 2-D at its axis: the parser reshapes before
    and after it, and the builder erases reshapes without effect.
    """
    given = node.attrs
    source, target = node.inputs[0], node.outputs[0]
    shape = placer.shape(source)
    coerced = placer.version < 13
    axis = given.get("axis", 1 if coerced else -1) % max(len(shape), 1)
    if node.op == "LogSoftmax":
        target = placer.inner(f"{node.name}:softmax", shape, target)
    if coerced and len(shape) != 2:
        flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        before = placer.inner(f"{node.name}:in2d", flat, source, view=True)
        # a view only of an ONNX tensor, not of the tensor before the logarithm
        after = placer.inner(f"{node.name}:out2d", flat, target, view=target == node.outputs[0])
        placer.reshape(node, source, before, f"reshape_before_{node.name}")
        placer.emit(node, "SOFTMAX", {"axis": 1}, inputs=[before], outputs=[after])
        placer.reshape(node, after, target, f"reshape_after_{node.name}")
    else:
        placer.emit(node, "SOFTMAX", {"axis": axis}, inputs=[source], outputs=[target])
    if node.op == "LogSoftmax":
        placer.emit(node, "UNARY", {"function": "LOG"}, inputs=[target])


def batch_norm(placer: Placer, node: Node) -> None:
    """BatchNormalization -> SCALE per channel; the parser reshapes inputs below 4-D to 4-D."""
    source, target = node.inputs[0], node.outputs[0]
    shape = placer.shape(source)
    params = {"mode": "CHANNEL", "axis": 1, "epsilon": node.attrs.get("epsilon", 1e-5)}
    if len(shape) >= 4:
        placer.emit(node, "SCALE", params)
        return
    wide = shape + (1,) * (4 - len(shape))
    before = placer.inner(f"{node.name}:in4d", wide, source, view=True)
    after = placer.inner(f"{node.name}:out4d", wide, target, view=True)
    placer.reshape(node, source, before, f"reshape_before_{node.name}", as_op="Unsqueeze")
    placer.emit(node, "SCALE", params, inputs=[before, *node.inputs[1:]], outputs=[after])
    placer.reshape(node, after, target, f"reshape_after_{node.name}")


def image_scaler(placer: Placer, node: Node) -> None:
    """ImageScaler -> SCALE per channel: a common factor, and a constant for each channel."""
    placer.emit(node, "SCALE", {"mode": "CHANNEL", "axis": 1})


def lrn(placer: Placer, node: Node) -> None:
    """LRN -> LRN across channels."""
    given = node.attrs
    params = {
        "window": given["size"],
        "alpha": given.get("alpha", 1e-4),
        "beta": given.get("beta", 0.75),
        "k": given.get("bias", 1.0),
    }
    placer.emit(node, "LRN", params)


def normalization(placer: Placer, node: Node) -> None:
    """Instance, group and layer normalization -> NORMALIZATION over the axes they average."""
    given = node.attrs
    rank = len(placer.shape(node.inputs[0]))
    first = given.get("axis", -1) % rank if node.op == "LayerNormalization" else 2
    params = {
        "axes": tuple(range(first, rank)),
        "epsilon": given.get("epsilon", 1e-5),
        "groups": given.get("num_groups", 1),
    }
    placer.emit(node, "NORMALIZATION", params)


def resize(placer: Placer, node: Node) -> None:
    """Resize and Upsample -> RESIZE, with TensorRT's coordinate transformation, selector and
    rounding."""
    given = node.attrs
    source, target = placer.shape(node.inputs[0]), placer.shape(node.outputs[0])
    old = node.op == "Upsample" or placer.version == 10
    scales = given.get("scales")
    if scales is None:
        # from opset 11 on, input 1 is the region of interest
        value = placer.value(node, 1 if old else 2)
        scales = [float(v) for v in value] if value is not None and value.size else None
    axes = [a % len(source) for a in given.get("axes", range(len(source)))]
    if scales is not None:
        if not all(math.isfinite(scale) and scale > 0 for scale in scales):
            raise ModelError(
                f"node {node.name!r} ({node.op}) has a scale that is not a positive number",
                code="model.shape_value",
                where=node.name,
                hint="export the model again",
            )
        full = [1.0] * len(source)
        for axis, scale in zip(axes, scales, strict=True):
            full[axis] = float(scale)
    else:
        full = [o / i if i else 1.0 for o, i in zip(target, source, strict=True)]
    coordinates = given.get("coordinate_transformation_mode", "half_pixel")
    if old:
        coordinates = "asymmetric"
    # for an output of size 1 it takes coordinate 0: TensorRT's selector UPPER
    single = coordinates == "pytorch_half_pixel"
    roundings = {"round_prefer_floor": "HALF_DOWN", "round_prefer_ceil": "HALF_UP"}
    rounding = given.get("nearest_mode", "floor" if old else "round_prefer_floor")
    params = {
        "mode": given.get("mode", "nearest").upper(),
        "scales": tuple(full),
        # with scales TensorRT computes the sizes itself
        "sizes": target if scales is None else None,
        "coordinates": "HALF_PIXEL" if single else coordinates.upper(),
        "selector": "UPPER" if single else "FORMULA",
        "rounding": roundings.get(rounding, rounding.upper()),
        "exclude_outside": bool(given.get("exclude_outside", 0)),
        "cubic_coeff": given.get("cubic_coeff_a", -0.75),
    }
    placer.emit(node, "RESIZE", params, inputs=[node.inputs[0]])
