"""Operators without a TensorRT layer, which the parser writes with several layers.

Source: onnx-tensorrt 10.1, onnxOpImporters.cpp and importerUtils.cpp. The parser of TensorRT for
RTX 1.7 writes the same layers, and those of RMSNormalization and Swish, which 10.1 lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.network.lowering.arithmetic import count_macs
from edgekit.network.lowering.kinds import UNKNOWN
from edgekit.network.lowering.pointwise import broadcast_shape, elementwise_pair
from edgekit.network.windows import KernelWindow, window

if TYPE_CHECKING:
    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer

# default axes of MeanVarianceNormalization
_BATCH_AND_PLACES = (0, 2, 3)
_CLASSES_LAST = (0, 2, 1)
# opset since which Softmax and Hardmax do not flatten the input
_UNFLATTENED = 13


class _Steps:
    """Writes the layers of a node; each except the last writes a new tensor."""

    def __init__(self, placer: Placer, node: Node) -> None:
        self.placer = placer
        self.node = node
        self.output = next(name for name in node.outputs if name)

    def layer(
        self,
        kind: str,
        params: dict[str, Any],
        inputs: Sequence[str],
        shape: Sequence[int],
        *,
        dtype: str = "",
        last: bool = False,
        inserted: bool = False,
    ) -> str:
        """Adds a layer and returns the tensor it writes: the node's output if it is the last."""
        name = self._tensor(str(params.get("function", kind)), shape, dtype, last)
        self.placer.emit(
            self.node,
            kind,
            params,
            inputs=inputs,
            outputs=[name],
            inserted=inserted,
            name=f"{kind.lower()}_of_{self.node.name}" if inserted else "",
        )
        return name

    def unary(self, function: str, read: str, *, last: bool = False, **more: Any) -> str:
        return self.layer(
            "UNARY", {"function": function}, [read], self.placer.shape(read), last=last, **more
        )

    def elementwise(
        self,
        function: str,
        left: str,
        right: str,
        *,
        dtype: str = "",
        last: bool = False,
        inserted: bool = False,
    ) -> str:
        """Adds an element-wise layer of two tensors, broadcast; returns its output."""
        shape = broadcast_shape(self.placer.shape(left), self.placer.shape(right))
        name = self._tensor(function, shape, dtype, last)
        own = f"elementwise_of_{self.node.name}" if inserted else ""
        elementwise_pair(self.placer, self.node, function, [left, right], name, name=own)
        return name

    def with_scalar(self, function: str, read: str, **more: Any) -> str:
        """Adds an element-wise layer of a tensor and a scalar constant of the parser; returns its
        output."""
        shape = self.placer.shape(read)
        params = {
            "function": function,
            "constant_operand": (1,) * len(shape),
            "uniform_constant": True,
        }
        return self.layer("ELEMENTWISE", params, [read], shape, **more)

    def reduce(self, function: str, read: str, axes: Sequence[int], **more: Any) -> str:
        """Adds a REDUCE that keeps its axes; returns its output."""
        shape = [1 if axis in axes else size for axis, size in enumerate(self.placer.shape(read))]
        params = {"function": function, "axes": tuple(sorted(axes)), "keepdims": True}
        return self.layer("REDUCE", params, [read], shape, **more)

    def _tensor(self, stem: str, shape: Sequence[int], dtype: str, last: bool) -> str:
        if last:
            return self.output
        return self.placer.inner(
            f"{self.node.name}:{stem.lower()}", shape, self.output, dtype=dtype
        )

    def select(self, inputs: Sequence[str], *, last: bool = False) -> str:
        return self.layer("SELECT", {}, inputs, self.placer.shape(self.output), last=last)


def or_equal(placer: Placer, node: Node) -> None:
    """GreaterOrEqual and LessOrEqual: the strict comparison, EQUAL, and OR of both."""
    target, shape = node.outputs[0], placer.shape(node.outputs[0])
    found = []
    for function in ("GREATER" if node.op == "GreaterOrEqual" else "LESS", "EQUAL"):
        result = placer.inner(f"{node.name}:{function.lower()}", shape, target)
        elementwise_pair(placer, node, function, node.inputs[:2], result)
        found.append(result)
    placer.emit(node, "ELEMENTWISE", {"function": "OR"}, inputs=found)


def is_inf(placer: Placer, node: Node) -> None:
    """IsInf -> UNARY; for only one sign also a comparison with 0, and AND of both."""
    negative, positive = (node.attrs.get(f"detect_{sign}", 1) for sign in ("negative", "positive"))
    if negative and positive:
        placer.emit(node, "UNARY", {"function": "ISINF"})
        return
    steps, source = _Steps(placer, node), node.inputs[0]
    # never true: the parser compares with 0 in both directions
    if not negative and not positive:
        first = steps.with_scalar("GREATER", source)
        second = steps.with_scalar("LESS", source)
    else:
        first = steps.with_scalar("LESS" if negative else "GREATER", source)
        second = steps.unary("ISINF", source)
    steps.elementwise("AND", first, second, last=True)


def celu(placer: Placer, node: Node) -> None:
    """Celu: max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    steps, source = _Steps(placer, node), node.inputs[0]
    grown = steps.unary("EXP", steps.with_scalar("DIV", source))
    above = steps.with_scalar("MAX", source)
    below = steps.with_scalar("MIN", steps.with_scalar("PROD", steps.with_scalar("SUB", grown)))
    steps.elementwise("SUM", above, below, last=True)


def swish(placer: Placer, node: Node) -> None:
    """Swish: x * sigmoid(alpha * x)."""
    steps, source = _Steps(placer, node), node.inputs[0]
    scaled = steps.with_scalar("PROD", source)
    gate = steps.layer("ACTIVATION", {"function": "SIGMOID"}, [scaled], placer.shape(source))
    steps.elementwise("PROD", source, gate, last=True)


def shrink(placer: Placer, node: Node) -> None:
    """Shrink: x - bias above lambd, x + bias below -lambd, 0 between them."""
    steps, source = _Steps(placer, node), node.inputs[0]
    above = steps.with_scalar("GREATER", source, dtype="bool")
    lower = steps.with_scalar("SUB", source)
    positive = steps.select([above, lower])
    below = steps.with_scalar("LESS", source, dtype="bool")
    raised = steps.with_scalar("SUM", source)
    steps.select([below, raised, positive], last=True)


def modulo(placer: Placer, node: Node) -> None:
    """Mod: a - b * floor(a / b); with ``fmod`` and floats the quotient is rounded towards 0."""
    steps, (left, right) = _Steps(placer, node), node.inputs
    if not node.attrs.get("fmod", 0) or placer.dtype(left).startswith(("int", "uint")):
        whole = "DIV" if node.attrs.get("fmod", 0) else "FLOOR_DIV"
        quotient = steps.elementwise(whole, left, right, inserted=True)
        steps.elementwise(
            "SUB", left, steps.elementwise("PROD", right, quotient, inserted=True), last=True
        )
        return
    quotient = steps.elementwise("DIV", left, right)
    rests = []
    for rounding in ("FLOOR", "CEIL"):
        rounded = steps.unary(rounding, quotient, inserted=True)
        product = steps.elementwise("PROD", right, rounded, inserted=True)
        rests.append(steps.elementwise("SUB", left, product, inserted=True))
    greater = steps.with_scalar("GREATER", quotient, dtype="bool")
    equal = steps.with_scalar("EQUAL", quotient, dtype="bool")
    steps.select([steps.elementwise("OR", greater, equal, dtype="bool"), *rests], last=True)


def trilu(placer: Placer, node: Node) -> None:
    """Trilu: the numbers of rows and columns compared, and a choice between the input and 0."""
    steps, source = _Steps(placer, node), node.inputs[0]
    shape = placer.shape(source)
    grid = (*(1,) * (len(shape) - 2), *shape[-2:])
    fill = {"function": "LINSPACE"}
    rows = steps.layer("FILL", fill, [], grid, dtype="int64", inserted=True)
    columns = steps.layer("FILL", fill, [], grid, dtype="int64", inserted=True)
    if node.input(1):
        read = [name for name in (columns, node.input(1)) if not placer.constant(name)]
        columns = steps.layer("ELEMENTWISE", {"function": "SUB"}, read, grid, dtype="int64")
    # without ``upper`` the importer takes the lower triangle, unlike ONNX
    strict = "LESS" if node.attrs.get("upper", 0) else "GREATER"
    apart = steps.elementwise(strict, rows, columns, dtype="bool")
    equal = steps.elementwise("EQUAL", rows, columns, dtype="bool")
    inside = steps.elementwise("OR", apart, equal, dtype="bool")
    steps.select([inside, source], last=True)


def hardmax(placer: Placer, node: Node) -> None:
    """Hardmax -> TOPK and ONE_HOT; before opset 13 the input is flattened to 2-D at the axis."""
    steps, source = _Steps(placer, node), node.inputs[0]
    shape = whole = placer.shape(source)
    flattens = placer.version < _UNFLATTENED
    axis = node.attrs.get("axis", 1 if flattens else -1) % len(shape)
    if flattens:
        shape = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        params = {"mode": "RESHAPE", "shape": shape}
        source, axis = steps.layer("SHUFFLE", params, [source], shape), 1
    largest = [1 if i == axis else size for i, size in enumerate(shape)]
    most = {"axis": axis, "k": 1, "function": "MAX"}
    found = steps.layer("TOPK", most, [source], largest, dtype="int32")
    index = (*shape[:axis], *shape[axis + 1 :])
    params = {"mode": "RESHAPE", "shape": index}
    found = steps.layer("SHUFFLE", params, [found], index, dtype="int32", inserted=True)
    found = steps.layer("ONE_HOT", {"axis": axis}, [found], shape, dtype="int32")
    if flattens:
        params = {"mode": "RESHAPE", "shape": whole}
        found = steps.layer("SHUFFLE", params, [found], whole, dtype="int32", inserted=True)
    to = placer.dtype(steps.output)
    steps.layer("CAST", {"to": to}, [found], whole, last=True, inserted=True)


def eye_like(placer: Placer, node: Node) -> None:
    """EyeLike -> CONSTANT: only the shape of its input matters."""
    placer.emit(node, "CONSTANT", {"shape": placer.shape(node.outputs[0])}, inputs=[])


def lp_normalization(placer: Placer, node: Node) -> None:
    """LpNormalization: x divided by its norm along an axis, or by 1 if the norm is 0."""
    steps, source = _Steps(placer, node), node.inputs[0]
    axis = node.attrs.get("axis", -1) % len(placer.shape(source))
    norm = _powers(steps, source, node.attrs.get("p", 2))
    norm = steps.reduce("SUM", norm, [axis])
    if node.attrs.get("p", 2) == 2:
        norm = steps.unary("SQRT", norm)
    zero = steps.with_scalar("EQUAL", norm, dtype="bool")
    # the comparison counts as 1, so a norm of 0 becomes 1
    steps.elementwise("DIV", source, steps.elementwise("SUM", norm, zero), last=True)


def lp_pool(placer: Placer, node: Node) -> None:
    """LpPool: the average of powers, times the window's size, and the root."""
    steps, source, given = _Steps(placer, node), node.inputs[0], node.attrs
    target = placer.shape(node.outputs[0])
    size = window(given, given["kernel_shape"], placer.shape(source)[2:], target[2:])
    params = {
        **size.params(),
        "mode": "AVERAGE",
        "count_include_pad": True,
        "ceil_mode": bool(given.get("ceil_mode", 0)),
        "indices": False,
    }
    roots = given.get("p", 2) == 2
    average = steps.layer("POOLING", params, [_powers(steps, source, given.get("p", 2))], target)
    # the average times the window's size is the sum of the powers
    total = steps.with_scalar("PROD", average, last=not roots)
    if roots:
        steps.unary("SQRT", total, last=True)


def global_lp_pool(placer: Placer, node: Node) -> None:
    """GlobalLpPool: POW, REDUCE over the spatial axes, POW."""
    steps, source = _Steps(placer, node), node.inputs[0]
    places = range(2, len(placer.shape(source)))
    total = steps.reduce("SUM", steps.with_scalar("POW", source, inserted=True), places)
    steps.with_scalar("POW", total, last=True, inserted=True)


def mean_variance_normalization(placer: Placer, node: Node) -> None:
    """MeanVarianceNormalization: (x - mean) / (deviation + epsilon)."""
    steps, source = _Steps(placer, node), node.inputs[0]
    rank = len(placer.shape(source))
    axes = [axis % rank for axis in node.attrs.get("axes", _BATCH_AND_PLACES)]
    apart = steps.elementwise("SUB", source, steps.reduce("AVG", source, axes))
    variance = steps.reduce("AVG", steps.elementwise("PROD", apart, apart), axes)
    deviation = steps.with_scalar("SUM", steps.unary("SQRT", variance))
    steps.elementwise("DIV", apart, deviation, last=True)


def rms_normalization(placer: Placer, node: Node) -> None:
    """RMSNormalization: x / sqrt(mean(x * x) + epsilon), times the scale."""
    steps, (source, scale) = _Steps(placer, node), node.inputs[:2]
    rank = len(placer.shape(source))
    axes = range(node.attrs.get("axis", -1) % rank, rank)
    mean = steps.reduce("AVG", steps.elementwise("PROD", source, source), axes)
    root = steps.unary("SQRT", steps.with_scalar("SUM", mean))
    scaled = steps.elementwise("DIV", source, root)
    elementwise_pair(placer, node, "PROD", [scaled, scale], steps.output)


def stft(placer: Placer, node: Node) -> None:
    """STFT of real values: two convolutions, by cosines and sines, whose results are joined.

    The parser refuses an STFT of complex values, or with a computed step.
    """
    steps, source = _Steps(placer, node), node.inputs[0]
    signal, (batch, frames, bins, _) = placer.shape(source), placer.shape(steps.output)
    macs = count_macs(placer, node)
    if signal[2:] not in {(), (1,)} or not placer.stored(node.input(1)):
        placer.emit(node, UNKNOWN, macs=macs or 0)
        return
    dtype = placer.dtype(source)
    if signal[2:]:
        source = _reshape_as(steps, source, signal[:2], "Squeeze")
    source = _reshape_as(steps, source, (batch, 1, 1, signal[1]), "Unsqueeze")
    length = placer.shape(node.input(2))[0] if node.input(2) else int(placer.scalar(node, 3) or 0)
    size = KernelWindow((1, length), (1, int(placer.scalar(node, 1) or 1)), (0, 0, 0, 0), (1, 1))
    params = {**size.params(), "groups": 1, "out_maps": bins, "in_maps": 1, "bias": False}
    parts = []
    for stem in ("cosines", "sines"):
        parts.append(placer.inner(f"{node.name}:{stem}", (batch, bins, 1, frames), steps.output))
        placer.emit(
            node,
            "CONVOLUTION",
            params,
            inputs=[source],
            outputs=parts[-1:],
            macs=(macs or 0) // 2,
        )
    axis = {"axis": 2, "inputs": 2}
    elementwise = steps.layer("CONCATENATION", axis, parts, (batch, bins, 2, frames), dtype=dtype)
    shape = (batch, frames, bins, 2)
    turn = {"mode": "TRANSPOSE", "perm": (0, 3, 1, 2), "shape": shape}
    steps.layer("SHUFFLE", turn, [elementwise], shape, last=True)


def _reshape_as(steps: _Steps, source: str, shape: tuple[int, ...], as_op: str) -> str:
    """Adds the parser's reshape, with the layer type of a Squeeze or an Unsqueeze."""
    node = steps.node
    target = steps.placer.inner(f"{node.name}:{as_op.lower()}", shape, source)
    steps.placer.reshape(node, source, target, f"{as_op.lower()}_of_{node.name}", as_op=as_op)
    return target


def simplified_layer_normalization(placer: Placer, node: Node) -> None:
    """SimplifiedLayerNormalization: x * (1 / sqrt(mean(x * x) + epsilon)), times the scale."""
    steps, (source, scale) = _Steps(placer, node), node.inputs[:2]
    rank = len(placer.shape(source))
    axes = range(node.attrs.get("axis", -1) % rank, rank)
    mean = steps.reduce("AVG", steps.elementwise("PROD", source, source), axes)
    factor = steps.unary("RECIP", steps.unary("SQRT", steps.with_scalar("SUM", mean)))
    elementwise_pair(
        placer, node, "PROD", [steps.elementwise("PROD", source, factor), scale], steps.output
    )


def non_max_suppression(placer: Placer, node: Node, opaque: str = "") -> None:
    """NonMaxSuppression -> NMS of the scores transposed to classes last.

    ``opaque`` is as in :class:`~edgekit.network.model.Layer`.
    """
    scores = node.inputs[1]
    shape = placer.shape(scores)
    if placer.constant(scores) or len(shape) != len(_CLASSES_LAST):
        placer.emit(node, "NMS", opaque=opaque, formula=False)
        return
    turned = tuple(shape[axis] for axis in _CLASSES_LAST)
    params = {"mode": "TRANSPOSE", "perm": _CLASSES_LAST, "shape": turned}
    read = placer.inner(f"{node.name}:scores", turned, scores)
    placer.emit(node, "SHUFFLE", params, inputs=[scores], outputs=[read], name=node.name)
    inputs = [node.inputs[0], read, *node.inputs[2:]]
    # its work is data-dependent
    placer.emit(node, "NMS", inputs=inputs, opaque=opaque, formula=False)


def last_index(placer: Placer, node: Node, params: dict[str, Any]) -> None:
    """ArgMax and ArgMin with the last of equal values: TOPK of the reversed input, then the index
    counted from the end.

    ``params`` are those of the TOPK.
    """
    steps, source = _Steps(placer, node), node.inputs[0]
    shape, axis = placer.shape(source), params["axis"]
    ends = [0] * len(shape)
    ends[axis] = shape[axis] - 1
    reverse = {
        "starts": tuple(ends),
        "sizes": shape,
        "strides": tuple(-1 if i == axis else 1 for i in range(len(shape))),
        "mode": "DEFAULT",
    }
    dtype = placer.dtype(source)
    back = steps.layer("SLICE", reverse, [source], shape, dtype=dtype, inserted=True)
    found = steps.layer("TOPK", params, [back], placer.shape(steps.output))
    steps.with_scalar("SUB", steps.with_scalar("SUB", found), last=True)


def _powers(steps: _Steps, source: str, p: int) -> str:
    return steps.unary("ABS", source) if p == 1 else steps.elementwise("PROD", source, source)


FAMILIES: dict[str, Callable[[Placer, Node], None]] = {
    "GreaterOrEqual": or_equal,
    "LessOrEqual": or_equal,
    "IsInf": is_inf,
    "Celu": celu,
    "Swish": swish,
    "Shrink": shrink,
    "Mod": modulo,
    "Trilu": trilu,
    "Hardmax": hardmax,
    "EyeLike": eye_like,
    "LpNormalization": lp_normalization,
    "LpPool": lp_pool,
    "GlobalLpPool": global_lp_pool,
    "MeanVarianceNormalization": mean_variance_normalization,
    "NonMaxSuppression": non_max_suppression,
    "RMSNormalization": rms_normalization,
    "STFT": stft,
    "SimplifiedLayerNormalization": simplified_layer_normalization,
}
