"""Layers that multiply by weights: convolutions, Gemm, MatMul, Einsum and recurrences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgekit.network.lowering.pointwise import elementwise_pair
from edgekit.network.windows import KernelWindow, split_padding, window

if TYPE_CHECKING:
    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer
    from edgekit.network.model import Absorbed


def conv(placer: Placer, node: Node) -> None:
    """Conv -> CONVOLUTION; a 1-D Conv is between two reshapes, as the parser makes it 2-D."""
    given = node.attrs
    source, weight, target = map(placer.shape, (*node.inputs[:2], node.outputs[0]))
    kernel = given.get("kernel_shape") or weight[2:]
    size = window(given, kernel, source[2:], target[2:])
    params = {
        **size.params(),
        "groups": given.get("group", 1),
        "out_maps": weight[0],
        "in_maps": source[1],
        "bias": len(node.inputs) > 2 and bool(node.inputs[2]),
    }
    macs = math.prod(target) * weight[1] * math.prod(kernel)
    _spatial(placer, node, "CONVOLUTION", params, macs)


def conv_transpose(placer: Placer, node: Node) -> None:
    """ConvTranspose -> DECONVOLUTION; padding resolved from output_shape or auto_pad.

    Output padding reduces the padding at the end. If it is larger, a SLICE appends the remaining
    zeros, and a sum after it adds the bias (onnx-tensorrt 8.4 to 10.1, TensorRT for RTX 1.7).
    """
    given = node.attrs
    source, weight, target = map(placer.shape, (*node.inputs[:2], node.outputs[0]))
    kernel = tuple(given.get("kernel_shape") or weight[2:])
    rank = len(kernel)
    stride = tuple(given.get("strides") or (1,) * rank)
    dilation = tuple(given.get("dilations") or (1,) * rank)
    extra = tuple(given.get("output_padding") or (0,) * rank)
    auto = given.get("auto_pad", "NOTSET")
    if "output_shape" in given or auto.startswith("SAME"):
        spans = zip(source[2:], stride, kernel, dilation, extra, target[2:], strict=True)
        totals = [s * (i - 1) + (k - 1) * d + 1 + e - o for i, s, k, d, e, o in spans]
        missing = [max(-total, 0) for total in totals]
        # unlike ONNX the parser puts the odd element at the end for an output_shape too
        pads = split_padding([max(total, 0) for total in totals], lower=auto == "SAME_LOWER")
        extra = tuple(a or b for a, b in zip(missing, extra, strict=True))
    else:
        pads = tuple(given.get("pads") or (0,) * (2 * rank))
    ends = [end - more for end, more in zip(pads[rank:], extra, strict=True)]
    appended = tuple(max(-end, 0) for end in ends)
    groups = given.get("group", 1)
    bias = node.input(2)
    params = {
        **KernelWindow(
            kernel, stride, (*pads[:rank], *(max(end, 0) for end in ends)), dilation
        ).params(),
        "groups": groups,
        "out_maps": weight[1] * groups,
        "in_maps": source[1],
        "bias": bool(bias) and not (any(appended) and placer.constant(bias)),
    }
    # each input value is multiplied by the whole kernel
    macs = math.prod(source) * weight[1] * math.prod(kernel)
    _spatial(placer, node, "DECONVOLUTION", params, macs, appended)


def _spatial(
    placer: Placer,
    node: Node,
    kind: str,
    params: dict[str, Any],
    macs: int,
    appended: tuple[int, ...] = (),
) -> None:
    source, target = node.inputs[0], node.outputs[0]
    before, after = source, target
    flat = len(placer.shape(source)) == 3
    if flat:
        before = placer.inner(f"{node.name}:in4d", (*placer.shape(source), 1), source, view=True)
        after = placer.inner(f"{node.name}:out4d", (*placer.shape(target), 1), target, view=True)
        placer.reshape(node, source, before, f"reshape_before_{node.name}", as_op="Unsqueeze")
    read, result = [before, *node.inputs[1:]], after
    if any(appended):
        more = (*appended, 0) if flat else appended
        size = placer.shape(after)
        inside = (*size[:2], *(whole - end for whole, end in zip(size[2:], more, strict=True)))
        result = placer.inner(f"{node.name}:product", inside, target)
    placer.emit(
        node, kind, params, inputs=read if params["bias"] else read[:2], outputs=[result], macs=macs
    )
    if any(appended):
        _append_zeros(placer, node, result, after)
    if flat:
        placer.reshape(node, after, target, f"reshape_after_{node.name}", as_op="Squeeze")


def _append_zeros(placer: Placer, node: Node, source: str, target: str) -> None:
    """Appends zeros to a deconvolution's result, and adds the bias afterwards."""
    bias = node.input(2) if placer.constant(node.input(2)) else ""
    size = placer.shape(target)
    padded = placer.inner(f"{node.name}:padded", size, target) if bias else target
    still = {"starts": (0,) * len(size), "sizes": size, "strides": (1,) * len(size)}
    params = {**still, "mode": "FILL", "value": 0.0}
    placer.emit(node, "SLICE", params, inputs=[source], outputs=[padded])
    if bias:
        channels = (1, size[1], *(1,) * (len(size) - 2))
        added = {"function": "SUM", "constant_operand": channels}
        placer.emit(
            node,
            "ELEMENTWISE",
            added,
            inputs=[padded, bias],
            outputs=[target],
            name=f"bias_of_{node.name}",
            inserted=True,
        )


def gemm(placer: Placer, node: Node) -> None:
    """Gemm with constant weights -> CONVOLUTION of 1x1, as TensorRT's MatMulToConvTransform.

    TensorRT 10.3's log names the shuffles around it reshape_before_NAME and reshape_after_NAME.
    Any other Gemm is a MATRIX_MULTIPLY with ELEMENTWISE layers: products with alpha and beta if not
    1, and the sum with the third input.
    """
    given = node.attrs
    rows, depth = placer.shape(node.inputs[0])
    if given.get("transA", 0):
        rows, depth = depth, rows
    columns = placer.shape(node.outputs[0])[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    per_column = not bias
    if bias and placer.constant(bias):
        *outer, inner = (1, *placer.shape(bias))
        per_column = all(size == 1 for size in outer) and inner in {1, columns}
    # a convolution adds one bias for each column, and cannot transpose its input
    if placer.constant(node.inputs[1]) and not given.get("transA", 0) and per_column:
        _as_convolution(placer, node, rows, depth, columns)
        return
    macs = rows * depth * columns
    params = {"transpose": (bool(given.get("transA", 0)), bool(given.get("transB", 0)))}
    factors = list(node.inputs[:2])
    scaled = given.get("alpha", 1.0) != 1.0
    target, shape = node.outputs[0], placer.shape(node.outputs[0])
    product = placer.inner(f"{node.name}:product", shape, target) if bias or scaled else target
    placer.emit(node, "MATRIX_MULTIPLY", params, inputs=factors, outputs=[product], macs=macs)
    if scaled:
        times = placer.inner(f"{node.name}:alpha", shape, target) if bias else target
        _multiply_by_scalar(placer, node, product, times)
        product = times
    if not bias:
        return
    # the builder folds a constant bias times beta
    if given.get("beta", 1.0) != 1.0 and not placer.constant(bias):
        times = placer.inner(f"{node.name}:beta", placer.shape(bias), bias)
        _multiply_by_scalar(placer, node, bias, times)
        bias = times
    elementwise_pair(placer, node, "SUM", [product, bias], target)


def _multiply_by_scalar(placer: Placer, node: Node, source: str, target: str) -> None:
    params = {"function": "PROD", "constant_operand": (1,) * len(placer.shape(source))}
    placer.emit(node, "ELEMENTWISE", params, inputs=[source], outputs=[target])


def matmul(placer: Placer, node: Node) -> None:
    """MatMul by a constant matrix -> CONVOLUTION of 1x1 like Gemm; otherwise MATRIX_MULTIPLY."""
    left, right, target = map(placer.shape, (*node.inputs[:2], node.outputs[0]))
    depth = left[-1]
    if placer.constant(node.inputs[1]) and len(right) == 2 and len(left) >= 2:
        _as_convolution(placer, node, math.prod(left[:-1]), depth, right[1])
        return
    macs = math.prod(target) * depth
    placer.emit(node, "MATRIX_MULTIPLY", {"transpose": (False, False)}, macs=macs)


def einsum(placer: Placer, node: Node) -> None:
    """Einsum -> EINSUM; one multiply-accumulate for each output and value summed over."""
    read, arrow, written = node.attrs["equation"].replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, name in zip(read.split(","), node.inputs, strict=True):
        shape = placer.shape(name)
        front, _, back = term.partition("...")
        # labels before an ellipsis count from the first axis, those behind it from the last
        sizes.update(zip(front, shape, strict=False))
        sizes.update(zip(reversed(back), reversed(shape), strict=False))
    if not arrow:
        # without an arrow ONNX keeps the labels that occur once
        written = "".join(label for label in sizes if read.count(label) == 1)
    summed = math.prod(size for label, size in sizes.items() if label not in written)
    products = len(node.inputs) > 1
    placer.emit(
        node, "EINSUM", macs=math.prod(placer.shape(node.outputs[0])) * summed if products else 0
    )


def recurrence(placer: Placer, node: Node) -> None:
    """LSTM, GRU or RNN -> LOOP: in each step the input and the last state times their weights.

    Both directions of a bidirectional operator run in the same steps, as the parser writes them.
    """
    given = node.attrs
    steps, batch, _ = placer.shape(node.inputs[0])
    # layout 1 has the batch first
    if given.get("layout", 0):
        steps, batch = batch, steps
    input_weights, state_weights = placer.shape(node.inputs[1]), placer.shape(node.inputs[2])
    params = {
        "steps": steps,
        "directions": state_weights[0],
        "hidden": state_weights[2],
        "products": input_weights[2] + state_weights[2],
    }
    macs = steps * batch * (math.prod(input_weights) + math.prod(state_weights))
    placer.emit(node, "LOOP", params, macs=macs)


def _as_convolution(placer: Placer, node: Node, rows: int, depth: int, columns: int) -> None:
    source, target = node.inputs[0], node.outputs[0]
    params = {
        **KernelWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)).params(),
        "groups": 1,
        "out_maps": columns,
        "in_maps": depth,
        "bias": len(node.inputs) > 2 and bool(node.inputs[2]),
        "gemm": True,
    }
    before = placer.inner(f"{node.name}:in4d", (rows, depth, 1, 1), source, view=True)
    after = placer.inner(f"{node.name}:out4d", (rows, columns, 1, 1), target, view=True)
    # the shuffles and the convolution are the builder's: the importer wrote the absorbed layers
    absorbed = _importer_layers(placer, node)
    placer.reshape(node, source, before, f"reshape_before_{node.name}", imported=False)
    placer.emit(
        node,
        "CONVOLUTION",
        params,
        inputs=[before, *node.inputs[1:]],
        outputs=[after],
        macs=rows * depth * columns,
        imported=False,
        absorbed=absorbed,
    )
    placer.reshape(node, after, target, f"reshape_after_{node.name}", imported=False)


def _importer_layers(placer: Placer, node: Node) -> list[Absorbed]:
    """Returns the importer's layers around the product: constants, broadcasts and bias sum."""
    given = node.attrs
    rank = len(placer.shape(node.outputs[0]))
    parts = [*placer.importer.constant(node.inputs[1])]
    if len(placer.shape(node.inputs[1])) < rank:
        parts.append(placer.importer.broadcast())
    placer.importer.layers()
    if given.get("alpha", 1.0) != 1.0:
        placer.importer.scalar_product()
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if not bias:
        return parts
    parts += placer.importer.constant(bias)
    if given.get("beta", 1.0) != 1.0:
        placer.importer.scalar_product()
    if len(placer.shape(bias)) < rank:
        parts.append(placer.importer.broadcast())
    return [*parts, placer.importer.unnamed_sum()]
