"""Products, sums along axes and normalisations in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.rewrite._float64_call import Call, Kernel, wide

__all__ = ["KERNELS"]

# elements of float64 that one block of a stored matrix may have
_BLOCK = 1 << 22


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A matrix product that widens a stored matrix in blocks of columns."""
    if b.ndim != 2 or b.size <= _BLOCK or b.dtype == np.float64 or b.dtype.kind not in "fV":
        return np.asarray(np.matmul(wide(a), wide(b)))
    a = wide(a)
    y = np.empty((*a.shape[:-1], b.shape[1]))
    step = max(_BLOCK // b.shape[0], 1)
    for first in range(0, b.shape[1], step):
        y[..., first : first + step] = a @ wide(b[:, first : first + step])
    return y


def _matmul(call: Call) -> Sequence[np.ndarray]:
    return [_product(call.array(0), call.array(1))]


def _gemm(call: Call) -> Sequence[np.ndarray]:
    a, b, c = call.array(0), call.array(1), call.optional(2)
    a = a.T if call.whole("transA", 0) else a
    b = b.T if call.whole("transB", 0) else b
    y = call.real("alpha", 1.0) * _product(a, b)
    return [y if c is None else y + call.real("beta", 1.0) * wide(c)]


def _einsum(call: Call) -> Sequence[np.ndarray]:
    values = [call.wide(index) for index in range(len(call.inputs))]
    return [np.asarray(np.einsum(call.text("equation", ""), *values, optimize=True))]


def _reduce(function: Callable[..., Any]) -> Kernel:
    def kernel(call: Call) -> Sequence[np.ndarray]:
        x, axes = call.wide(0), call.axes(1)
        if not axes and call.whole("noop_with_empty_axes", 0):
            # nothing is summed; what is done to each element is
            axes = ()
            return [np.asarray(function(x, axis=axes, keepdims=True))]
        keep = bool(call.whole("keepdims", 1))
        return [np.asarray(function(x, axis=axes or None, keepdims=keep))]

    return kernel


def _log_sum_exp(x: np.ndarray, **options: Any) -> np.ndarray:
    axis = options["axis"]
    largest = x.max(axis=axis, keepdims=True)
    total = np.log(np.exp(x - largest).sum(**options))
    return np.asarray(total + (largest if options["keepdims"] else largest.reshape(total.shape)))


def _arg(function: Callable[..., Any]) -> Kernel:
    def kernel(call: Call) -> Sequence[np.ndarray]:
        x, axis = call.wide(0), call.whole("axis", 0)
        keep = bool(call.whole("keepdims", 1))
        if call.whole("select_last_index", 0):
            flipped = function(np.flip(x, axis), axis=axis, keepdims=keep)
            return [np.asarray(x.shape[axis] - 1 - flipped, np.int64)]
        return [np.asarray(function(x, axis=axis, keepdims=keep), np.int64)]

    return kernel


def _softmax(call: Call) -> Sequence[np.ndarray]:
    x = call.wide(0)
    axis = call.whole("axis", -1 if call.opset >= 13 else 1)
    shape = x.shape
    if call.opset < 13:
        # all axes from this one on are one
        first = axis if axis >= 0 else axis + x.ndim
        x = x.reshape(int(np.prod(shape[:first], dtype=np.int64)), -1)
        axis = 1
    x = x - x.max(axis=axis, keepdims=True)
    if call.op == "LogSoftmax":
        return [(x - np.log(np.exp(x).sum(axis=axis, keepdims=True))).reshape(shape)]
    e = np.exp(x)
    return [(e / e.sum(axis=axis, keepdims=True)).reshape(shape)]


def _channels(value: np.ndarray, rank: int) -> np.ndarray:
    return wide(value).reshape(-1, *(1,) * (rank - 2))


def _batch_norm(call: Call) -> Sequence[np.ndarray] | None:
    if call.whole("training_mode", 0) or call.outputs > 1:
        return None
    x = call.wide(0)
    scale, bias, mean, var = (_channels(call.array(i), x.ndim) for i in (1, 2, 3, 4))
    factor = scale / np.sqrt(var + call.real("epsilon", 1e-5))
    return [(x - mean) * factor + bias]


def _normal(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    x = x - x.mean(axis=axes, keepdims=True)
    return np.asarray(x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + epsilon))


def _instance_norm(call: Call) -> Sequence[np.ndarray]:
    x = call.wide(0)
    y = _normal(x, tuple(range(2, x.ndim)), call.real("epsilon", 1e-5))
    return [y * _channels(call.array(1), x.ndim) + _channels(call.array(2), x.ndim)]


def _layer_norm(call: Call) -> Sequence[np.ndarray] | None:
    if call.outputs > 1:
        return None
    x, bias = call.wide(0), call.optional(2)
    axes = tuple(range(call.whole("axis", -1) % x.ndim, x.ndim))
    y = _normal(x, axes, call.real("epsilon", 1e-5)) * call.wide(1)
    return [y if bias is None else y + wide(bias)]


def _lrn(call: Call) -> Sequence[np.ndarray]:
    x, size = call.wide(0), call.whole("size", 1)
    squares = np.pad(x * x, [(0, 0), ((size - 1) // 2, size // 2)] + [(0, 0)] * (x.ndim - 2))
    total = sum(squares[:, first : first + x.shape[1]] for first in range(size))
    base = call.real("bias", 1.0) + call.real("alpha", 1e-4) / size * total
    return [x / base ** call.real("beta", 0.75)]


def _lp(call: Call) -> Sequence[np.ndarray]:
    x, axis, p = call.wide(0), call.whole("axis", -1), call.whole("p", 2)
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    return [np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)]


def _cumsum(call: Call) -> Sequence[np.ndarray]:
    x, axis = call.wide(0), int(call.array(1).reshape(-1)[0])
    x = np.flip(x, axis) if call.whole("reverse", 0) else x
    y = np.cumsum(x, axis, dtype=x.dtype)
    y = y - x if call.whole("exclusive", 0) else y
    return [np.flip(y, axis) if call.whole("reverse", 0) else y]


KERNELS: Mapping[str, Kernel] = {
    "ArgMax": _arg(np.argmax),
    "ArgMin": _arg(np.argmin),
    "BatchNormalization": _batch_norm,
    "CumSum": _cumsum,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax,
    "LpNormalization": _lp,
    "MatMul": _matmul,
    "ReduceL1": _reduce(lambda x, **o: np.abs(x).sum(**o)),
    "ReduceL2": _reduce(lambda x, **o: np.sqrt((x * x).sum(**o))),
    "ReduceLogSum": _reduce(lambda x, **o: np.log(x.sum(**o))),
    "ReduceLogSumExp": _reduce(_log_sum_exp),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceSumSquare": _reduce(lambda x, **o: (x * x).sum(**o)),
    "Softmax": _softmax,
}
