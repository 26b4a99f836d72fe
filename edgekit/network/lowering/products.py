"""Layers that multiply by weights: convolutions, Gemm, MatMul, Einsum and recurrences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgekit.network.windows import KernelWindow, split_padding, window

if TYPE_CHECKING:
    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer
    from edgekit.network.model import Absorbed


def conv(at: Placer, node: Node) -> None:
    """Conv -> CONVOLUTION; a 1-D one between two shuffles, as the parser makes it 2-D."""
    given = node.attrs
    source, weight, target = map(at.shape, (*node.inputs[:2], node.outputs[0]))
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
    _spatial(at, node, "CONVOLUTION", params, macs)


def conv_transpose(at: Placer, node: Node) -> None:
    """ConvTranspose -> DECONVOLUTION; padding resolved from output_shape or auto_pad."""
    given = node.attrs
    source, weight, target = map(at.shape, (*node.inputs[:2], node.outputs[0]))
    kernel = tuple(given.get("kernel_shape") or weight[2:])
    rank = len(kernel)
    stride = tuple(given.get("strides") or (1,) * rank)
    dilation = tuple(given.get("dilations") or (1,) * rank)
    extra = tuple(given.get("output_padding") or (0,) * rank)
    auto = given.get("auto_pad", "NOTSET")
    if "output_shape" in given or auto.startswith("SAME"):
        spans = zip(source[2:], stride, kernel, dilation, extra, target[2:], strict=True)
        totals = [max(s * (i - 1) + (k - 1) * d + 1 + e - o, 0) for i, s, k, d, e, o in spans]
        # ONNX puts the odd element at the end only for SAME_UPPER here
        pads = split_padding(totals, lower=auto != "SAME_UPPER")
    else:
        pads = tuple(given.get("pads") or (0,) * (2 * rank))
    groups = given.get("group", 1)
    params = {
        **KernelWindow(kernel, stride, pads, dilation).params(),
        "output_padding": extra if rank > 1 else (*extra, 0),
        "groups": groups,
        "out_maps": weight[1] * groups,
        "in_maps": source[1],
        "bias": len(node.inputs) > 2 and bool(node.inputs[2]),
    }
    macs = math.prod(source) * weight[1] * math.prod(kernel)
    _spatial(at, node, "DECONVOLUTION", params, macs)


def _spatial(at: Placer, node: Node, kind: str, params: dict[str, Any], macs: int) -> None:
    source, target = node.inputs[0], node.outputs[0]
    if len(at.shape(source)) != 3:
        at.emit(node, kind, params, macs=macs)
        return
    wide = at.inner(f"{node.name}:in4d", (*at.shape(source), 1), source, view=True)
    result = at.inner(f"{node.name}:out4d", (*at.shape(target), 1), target, view=True)
    at.reshape(node, source, wide, f"reshape_before_{node.name}")
    at.emit(node, kind, params, inputs=[wide, *node.inputs[1:]], outputs=[result], macs=macs)
    at.reshape(node, result, target, f"reshape_after_{node.name}")


def gemm(at: Placer, node: Node) -> None:
    """Gemm with constant weights -> CONVOLUTION of 1x1, as TensorRT's MatMulToConvTransform.

    TensorRT 10.3's log names the shuffles around it reshape_before_NAME and reshape_after_NAME.
    Another Gemm is a MATRIX_MULTIPLY and, with a third input, an ELEMENTWISE sum.
    """
    given = node.attrs
    rows, depth = at.shape(node.inputs[0])
    if given.get("transA", 0):
        rows, depth = depth, rows
    columns = at.shape(node.outputs[0])[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    per_column = not bias or (at.constant(bias) and _per_column(at.shape(bias), columns))
    if at.constant(node.inputs[1]) and not given.get("transA", 0) and per_column:
        _as_convolution(at, node, rows, depth, columns)
        return
    macs = rows * depth * columns
    params = {"transpose": (bool(given.get("transA", 0)), bool(given.get("transB", 0)))}
    if not bias:
        at.emit(node, "MATRIX_MULTIPLY", params, macs=macs)
        return
    target = node.outputs[0]
    product = at.inner(f"{node.name}:product", at.shape(target), target)
    factors = list(node.inputs[:2])
    at.emit(node, "MATRIX_MULTIPLY", params, inputs=factors, outputs=[product], macs=macs)
    at.emit(node, "ELEMENTWISE", {"function": "SUM"}, inputs=[product, bias])


def _per_column(bias: tuple[int, ...], columns: int) -> bool:
    return all(size == 1 for size in bias[:-1]) and bias[-1:] in {(), (1,), (columns,)}


def matmul(at: Placer, node: Node) -> None:
    """MatMul by a constant matrix -> CONVOLUTION of 1x1 like Gemm; otherwise MATRIX_MULTIPLY."""
    left, right, target = map(at.shape, (*node.inputs[:2], node.outputs[0]))
    depth = left[-1]
    if at.constant(node.inputs[1]) and len(right) == 2 and len(left) >= 2:
        _as_convolution(at, node, math.prod(left[:-1]), depth, right[1])
        return
    macs = math.prod(target) * depth
    at.emit(node, "MATRIX_MULTIPLY", {"transpose": (False, False)}, macs=macs)


def einsum(at: Placer, node: Node) -> None:
    """Einsum -> EINSUM; one multiply-accumulate for each output and value summed over."""
    read, arrow, written = node.attrs["equation"].replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, name in zip(read.split(","), node.inputs, strict=True):
        shape = at.shape(name)
        front, _, back = term.partition("...")
        sizes.update(zip(front, shape, strict=False))
        sizes.update(zip(reversed(back), reversed(shape), strict=False))
    if not arrow:
        written = "".join(label for label in sizes if read.count(label) == 1)
    summed = math.prod(size for label, size in sizes.items() if label not in written)
    products = len(node.inputs) > 1
    at.emit(node, "EINSUM", macs=math.prod(at.shape(node.outputs[0])) * summed if products else 0)


def recurrence(at: Placer, node: Node) -> None:
    """LSTM, GRU or RNN -> LOOP: in each step the input and the last state times their weights.

    Both directions of a bidirectional one go in the same steps, as the parser writes them.
    """
    given = node.attrs
    steps, batch, _ = at.shape(node.inputs[0])
    if given.get("layout", 0):
        steps, batch = batch, steps
    input_weights, state_weights = at.shape(node.inputs[1]), at.shape(node.inputs[2])
    params = {
        "steps": steps,
        "directions": state_weights[0],
        "hidden": state_weights[2],
        "products": input_weights[2] + state_weights[2],
    }
    macs = steps * batch * (math.prod(input_weights) + math.prod(state_weights))
    at.emit(node, "LOOP", params, macs=macs)


def _as_convolution(at: Placer, node: Node, rows: int, depth: int, columns: int) -> None:
    source, target = node.inputs[0], node.outputs[0]
    params = {
        **KernelWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)).params(),
        "groups": 1,
        "out_maps": columns,
        "in_maps": depth,
        "bias": len(node.inputs) > 2 and bool(node.inputs[2]),
        "gemm": True,
    }
    before = at.inner(f"{node.name}:in4d", (rows, depth, 1, 1), source, view=True)
    after = at.inner(f"{node.name}:out4d", (rows, columns, 1, 1), target, view=True)
    # the shuffles and the convolution are the builder's: the importer wrote what is absorbed
    absorbed = _as_imported(at, node)
    at.reshape(node, source, before, f"reshape_before_{node.name}", imported=False)
    at.emit(
        node,
        "CONVOLUTION",
        params,
        inputs=[before, *node.inputs[1:]],
        outputs=[after],
        macs=rows * depth * columns,
        imported=False,
        absorbed=absorbed,
    )
    at.reshape(node, after, target, f"reshape_after_{node.name}", imported=False)


def _as_imported(at: Placer, node: Node) -> list[Absorbed]:
    """What the importer writes around the product: its constants, broadcasts and bias sum."""
    given = node.attrs
    rank = len(at.shape(node.outputs[0]))
    parts = [*at.importer.constant(node.inputs[1])]
    if len(at.shape(node.inputs[1])) < rank:
        parts.append(at.importer.broadcast())
    at.importer.layers()
    if given.get("alpha", 1.0) != 1.0:
        at.importer.scalar_product()
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if not bias:
        return parts
    parts += at.importer.constant(bias)
    if given.get("beta", 1.0) != 1.0:
        at.importer.scalar_product()
    if len(at.shape(bias)) < rank:
        parts.append(at.importer.broadcast())
    return [*parts, at.importer.unnamed_sum()]
