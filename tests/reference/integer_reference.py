"""INT8 layers in integers: slow NumPy that shares nothing with the product.

Codes are int64, sums of products and of codes are int64, and floats come in where the hardware
has them: one float32 rounding for each of sum, scale, bias, factor and division. Two dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import helper

F = np.float32
# TensorRT Developer Guide, "Quantization Schemes": roundWithTiesToEven(clip(x / s, -128, 127))
LOWEST, HIGHEST = -128, 127


@dataclass(frozen=True)
class Coded:
    """A tensor as its kernel reads it: INT8 codes, and what one step is."""

    codes: np.ndarray
    scale: float

    @property
    def real(self) -> np.ndarray:
        return self.codes.astype(F) * F(self.scale)


@dataclass(frozen=True)
class Steps:
    """A result in steps of the input's scale, not yet rounded to codes."""

    values: np.ndarray
    scale: float


def quantise(values: np.ndarray, scale: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        steps = np.rint(np.asarray(values, F) / F(scale))
    return np.clip(steps, LOWEST, HIGHEST).astype(np.int64)


def result_codes(result: Steps | np.ndarray, scale: float) -> np.ndarray:
    """Requantises to the scale of the output."""
    if isinstance(result, Steps):
        if result.scale == scale:
            return quantise(result.values, 1.0)
        result = np.asarray(result.values, F) * F(result.scale)
    return quantise(result, scale)


def weight_codes(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes and one scale per output channel: the largest magnitude / 127, or 1 for zeros."""
    scales = np.empty(weight.shape[axis], F)
    codes = np.zeros(weight.shape, np.int64)
    for channel in range(weight.shape[axis]):
        at = tuple(channel if i == axis else slice(None) for i in range(weight.ndim))
        scale = F(np.abs(weight[at]).max()) / F(127)
        scales[channel] = scale if scale >= np.finfo(F).tiny else F(1)
        codes[at] = np.clip(np.rint(weight[at] / scales[channel]), -127, 127)
    return codes, scales


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def windows(
    size: Sequence[int], kernel: Sequence[int], known: Mapping[str, Any]
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Returns output sizes, strides, dilations, pads before and pads after."""
    strides, dilations = known.get("strides", [1, 1]), known.get("dilations", [1, 1])
    pads = known.get("pads", [0, 0, 0, 0])
    outputs = []
    for axis in range(2):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        free = size[axis] + pads[axis] + pads[axis + 2] - span
        whole = -(-free // strides[axis]) if known.get("ceil_mode") else free // strides[axis]
        outputs.append(whole + 1)
    return outputs, list(strides), list(dilations), list(pads[:2]), list(pads[2:])


def conv(x: np.ndarray, w: np.ndarray, known: Mapping[str, Any]) -> np.ndarray:
    """A convolution, one place of the kernel at a time."""
    groups = known.get("group", 1)
    out, strides, dilations, before, after = windows(x.shape[2:], w.shape[2:], known)
    x = np.pad(x, ((0, 0), (0, 0), (before[0], after[0]), (before[1], after[1])))
    y = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    inner, outer = w.shape[1], w.shape[0] // groups
    for group, i, j in product(range(groups), range(w.shape[2]), range(w.shape[3])):
        rows = slice(i * dilations[0], i * dilations[0] + (out[0] - 1) * strides[0] + 1, strides[0])
        cols = slice(j * dilations[1], j * dilations[1] + (out[1] - 1) * strides[1] + 1, strides[1])
        part = x[:, group * inner : (group + 1) * inner, rows, cols]
        own = slice(group * outer, (group + 1) * outer)
        y[:, own] += np.einsum("nchw,oc->nohw", part, w[own, :, i, j])
    return y


def deconv(x: np.ndarray, w: np.ndarray, known: Mapping[str, Any]) -> np.ndarray:
    """A deconvolution: every input adds its kernel to the output, pads are cut off."""
    groups, strides = known.get("group", 1), known.get("strides", [1, 1])
    dilations, pads = known.get("dilations", [1, 1]), known.get("pads", [0, 0, 0, 0])
    inner, outer = w.shape[0] // groups, w.shape[1]
    sizes = [
        (x.shape[2 + a] - 1) * strides[a] + (w.shape[2 + a] - 1) * dilations[a] + 1 for a in (0, 1)
    ]
    y = np.zeros((x.shape[0], outer * groups, *sizes), np.int64)
    for group, i, j in product(range(groups), range(w.shape[2]), range(w.shape[3])):
        part = x[:, group * inner : (group + 1) * inner]
        taps = w[group * inner : (group + 1) * inner, :, i, j]
        top, left = i * dilations[0], j * dilations[1]
        rows = slice(top, top + (x.shape[2] - 1) * strides[0] + 1, strides[0])
        cols = slice(left, left + (x.shape[3] - 1) * strides[1] + 1, strides[1])
        own = slice(group * outer, (group + 1) * outer)
        y[:, own, rows, cols] += np.einsum("nchw,co->nohw", part, taps)
    return y[:, :, pads[0] : sizes[0] - pads[2], pads[1] : sizes[1] - pads[3]]


def pool(x: np.ndarray, kernel: Sequence[int], known: Mapping[str, Any], average: bool) -> Any:
    """Pools codes: the maximum, or sum and number of places of each window."""
    out, strides, dilations, before, after = windows(x.shape[2:], kernel, known)
    y = np.zeros((*x.shape[:2], *out), np.int64)
    counts = np.zeros(out, np.int64)
    height, width = x.shape[2:]
    include = known.get("count_include_pad", 0)
    for row, col in product(range(out[0]), range(out[1])):
        top, left = row * strides[0] - before[0], col * strides[1] - before[1]
        rows = [top + i * dilations[0] for i in range(kernel[0])]
        cols = [left + j * dilations[1] for j in range(kernel[1])]
        inside = [(r, c) for r in rows for c in cols if 0 <= r < height and 0 <= c < width]
        values = np.stack([x[:, :, r, c] for r, c in inside])
        y[:, :, row, col] = values.sum(0) if average else values.max(0)
        padded = (
            [r for r in rows if r < height + after[0]],
            [c for c in cols if c < width + after[1]],
        )
        counts[row, col] = len(padded[0]) * len(padded[1]) if include else len(inside)
    return (y, counts) if average else y


def weighted(node: onnx.NodeProto, x: Coded, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    known = attributes(node)
    axis = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}.get(node.op_type)
    axis = (0 if known.get("transB") else 1) if axis is None else axis
    codes, scales = weight_codes(w, axis)
    spread = (lambda v: v.reshape(1, -1, 1, 1)) if "Conv" in node.op_type else (lambda v: v)
    alpha, beta = F(known.get("alpha", 1)), F(known.get("beta", 1))
    if node.op_type == "Conv":
        total = conv(x.codes, codes, known)
    elif node.op_type == "ConvTranspose":
        total = deconv(x.codes, codes, known)
        scales = np.tile(scales, known.get("group", 1))
    else:
        left = x.codes.T if known.get("transA") else x.codes
        total = left @ (codes.T if known.get("transB") else codes)
    # int64 to float32 rounds once, half to even
    real = total.astype(F) * spread(scales * (F(x.scale) * alpha))
    return real if bias is None else real + spread(bias) * beta


def average(x: Coded, sums: np.ndarray, counts: Any) -> Steps:
    return Steps(sums.astype(F) / np.asarray(counts, F), x.scale)


def nearest(x: np.ndarray, factor: int) -> np.ndarray:
    return x.repeat(factor, axis=2).repeat(factor, axis=3)


def added(signs: Sequence[int], operands: Sequence[Coded | np.ndarray]) -> Steps | np.ndarray:
    """A sum: of codes where all have one scale, else of values, from left to right."""
    coded = [o for o in operands if isinstance(o, Coded)]
    if len(coded) == len(operands) and len({o.scale for o in coded}) == 1:
        total = sum(sign * o.codes for sign, o in zip(signs, coded, strict=True))
        return Steps(np.asarray(total).astype(F), coded[0].scale)
    values = [o.real if isinstance(o, Coded) else o for o in operands]
    result = values[0]
    for sign, value in zip(signs[1:], values[1:], strict=True):
        result = result + F(sign) * value
    return result


def pooled(node: onnx.NodeProto, x: Coded) -> Steps:
    known = attributes(node)
    if node.op_type == "GlobalAveragePool":
        return average(x, x.codes.sum(axis=(2, 3), keepdims=True), x.codes[0, 0].size)
    if node.op_type == "MaxPool":
        return Steps(pool(x.codes, known["kernel_shape"], known, False).astype(F), x.scale)
    sums, counts = pool(x.codes, known["kernel_shape"], known, True)
    return average(x, sums, counts)


def pointwise(node: onnx.NodeProto, operands: Sequence[Coded | np.ndarray]) -> np.ndarray:
    known = attributes(node)
    values = [o.real if isinstance(o, Coded) else o for o in operands]
    table: dict[str, Callable[[], np.ndarray]] = {
        "Mul": lambda: values[0] * values[1],
        "Max": lambda: np.maximum(values[0], values[1]),
        "Min": lambda: np.minimum(values[0], values[1]),
        "Relu": lambda: np.maximum(values[0], 0),
        "Clip": lambda: np.clip(values[0], values[1], values[2]),
        "LeakyRelu": lambda: np.where(
            values[0] < 0, values[0] * F(known.get("alpha", 0.01)), values[0]
        ),
        "PRelu": lambda: np.where(values[0] < 0, values[0] * values[1], values[0]),
    }
    return np.asarray(table[node.op_type](), F)


def layer(node: onnx.NodeProto, operands: Sequence[Coded | np.ndarray]) -> Steps | np.ndarray:
    """Runs one layer: activations are ``Coded``, weights and constants arrays."""
    first = operands[0]
    op = node.op_type
    if op in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        bias = operands[2] if len(operands) > 2 else None
        return weighted(node, first, operands[1], bias)  # type: ignore[arg-type]
    if op in ("Add", "Sum", "Sub"):
        return added([1, *[-1 if op == "Sub" else 1] * (len(operands) - 1)], operands)
    if "Pool" in op:
        return pooled(node, first)  # type: ignore[arg-type]
    if op == "Concat":
        values = [o.real for o in operands if isinstance(o, Coded)]
        return np.concatenate(values, axis=attributes(node)["axis"])
    if op == "Resize":
        return Steps(nearest(first.codes, int(operands[-1][-1])), first.scale)
    return pointwise(node, operands)
