"""Sums of products in float64: matrices, normalisations, convolutions, pools, deconvolutions.

Weights are widened in blocks: onnx's reference would copy whole weights. It takes up to 180 times
as long for a convolution, 1,100 times for a deconvolution and 1,600 times for a pool (onnx 1.23.2,
layers of real exports). Its BatchNormalization normalises by the input, and its Softmax before
opset 13 works on one axis only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.network.windows import split_padding
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.float64.call import Call, OperatorFunction, wide

# elements of float64 that one block of a stored matrix may have
_BLOCK = 1 << 22
# elements of float64 that one block may have: weights are read and widened piece by piece
_WINDOW_BLOCK = 1 << 22
# most elements of an input that is laid out by windows
_LAID_OUT = 1 << 23
# larger weights are widened one place of the window at a time
_WIDENED = 1 << 23


def _multiply_matrices(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns a matrix product, widening a stored matrix in blocks of columns."""
    if b.ndim != 2 or b.size <= _BLOCK or b.dtype == np.float64 or b.dtype.kind not in "fV":
        return np.asarray(np.matmul(wide(a), wide(b)))
    a = wide(a)
    y = np.empty((*a.shape[:-1], b.shape[1]))
    step = max(_BLOCK // b.shape[0], 1)
    for first in range(0, b.shape[1], step):
        y[..., first : first + step] = a @ wide(b[:, first : first + step])
    return y


def _gemm(call: Call) -> Sequence[np.ndarray]:
    a, b, c = call.array(0), call.array(1), call.optional(2)
    a = a.T if call.whole("transA", 0) else a
    b = b.T if call.whole("transB", 0) else b
    y = call.real("alpha", 1.0) * _multiply_matrices(a, b)
    return [y if c is None else y + call.real("beta", 1.0) * wide(c)]


def _softmax(call: Call) -> Sequence[np.ndarray] | None:
    if call.opset >= 13:
        return None
    # the axes from here on are merged, which onnx's reference does not support
    x = call.wide(0)
    shape = x.shape
    first = call.whole("axis", 1) % max(x.ndim, 1)
    x = x.reshape(int(np.prod(shape[:first], dtype=np.int64)), -1)
    # exp of large numbers overflows; the factor cancels
    x = x - x.max(axis=1, keepdims=True)
    total = np.exp(x).sum(axis=1, keepdims=True)
    if call.op == "LogSoftmax":
        return [(x - np.log(total)).reshape(shape)]
    return [(np.exp(x) / total).reshape(shape)]


def _batch_norm(call: Call) -> Sequence[np.ndarray] | None:
    if call.whole("training_mode", 0) or call.outputs > 1:
        return None
    x = call.wide(0)
    by_channel = (-1, *(1,) * (x.ndim - 2))
    scale, bias, mean, var = (wide(call.array(i)).reshape(by_channel) for i in (1, 2, 3, 4))
    factor = scale / np.sqrt(var + call.real("epsilon", 1e-5))
    return [(x - mean) * factor + bias]


MATRIX_KERNELS: Mapping[str, OperatorFunction] = {
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "LogSoftmax": _softmax,
    "MatMul": lambda call: [_multiply_matrices(call.array(0), call.array(1))],
    "Softmax": _softmax,
}


# Convolutions and pools in float64: sums over the window's places, weights widened in blocks.


def _index(*parts: Any) -> Any:
    # NumPy's stubs take no starred tuples
    return parts


@dataclass(frozen=True, slots=True)
class _Window:
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]

    def places(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(size) for size in self.kernel))

    def at(self, place: Sequence[int]) -> Any:
        """Returns the index in the padded input of one place of all windows."""
        parts = zip(place, self.dilation, self.stride, self.out, strict=True)
        return _index(..., *(slice(p * d, p * d + (o - 1) * s + 1, s) for p, d, s, o in parts))

    def all_at(self, x: np.ndarray) -> np.ndarray:
        """Returns the padded input at each place of all windows: a view [N, C, *kernel, *out]."""
        inside = x.strides[2:]
        places = [step * d for step, d in zip(inside, self.dilation, strict=True)]
        moves = [step * s for step, s in zip(inside, self.stride, strict=True)]
        return np.lib.stride_tricks.as_strided(
            x,
            (*x.shape[:2], *self.kernel, *self.out),
            (*x.strides[:2], *places, *moves),
            writeable=False,
        )


def _window(call: Call, kernel: Sequence[int], source: Sequence[int]) -> _Window:
    rank = len(kernel)
    stride = call.wholes("strides") or (1,) * rank
    dilation = call.wholes("dilations") or (1,) * rank
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    auto = call.text("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        out = tuple(-(-i // s) for i, s in zip(source, stride, strict=True))
        sides = zip(out, stride, extent, source, strict=True)
        totals = [max((o - 1) * s + e - i, 0) for o, s, e, i in sides]
        pads = split_padding(totals, lower=auto == "SAME_LOWER")
    else:
        pads = (call.wholes("pads") if auto != "VALID" else ()) or (0,) * (2 * rank)
        out = tuple(
            _steps(i, b, e, x, s, ceil=bool(call.whole("ceil_mode", 0)))
            for i, b, e, x, s in zip(source, pads, pads[rank:], extent, stride, strict=False)
        )
    return _Window(tuple(kernel), stride, dilation, pads[:rank], pads[rank:], out)


def _steps(size: int, begin: int, end: int, extent: int, stride: int, *, ceil: bool) -> int:
    free = size + begin + end - extent
    if not ceil:
        return free // stride + 1
    count = -(-free // stride) + 1
    # no window starts in the padding after the end
    return count - 1 if (count - 1) * stride >= size + begin else count


def _padded(x: np.ndarray, window: _Window, fill: float) -> np.ndarray:
    """Returns the padded input, extended if windows reach beyond it (ceil_mode)."""
    widths = [(0, 0), (0, 0)]
    sides = zip(
        x.shape[2:],
        window.begin,
        window.end,
        window.kernel,
        window.dilation,
        window.stride,
        window.out,
        strict=True,
    )
    for size, begin, end, kernel, dilation, stride, out in sides:
        reach = (out - 1) * stride + (kernel - 1) * dilation + 1
        widths.append((begin, max(end, reach - size - begin)))
    if all(width == (0, 0) for width in widths):
        return x
    if min(map(min, widths)) < 0:
        raise MalformedError("negative padding cannot be computed in float64")
    places = [
        (begin, begin + size, end) for (begin, end), size in zip(widths, x.shape, strict=True)
    ]
    filled = np.full([stop + end for _, stop, end in places], fill, x.dtype)
    filled[tuple(slice(start, stop) for start, stop, _ in places)] = x
    return filled


def _conv(call: Call) -> Sequence[np.ndarray]:
    x, w, bias = call.wide(0), call.array(1), call.optional(2)
    groups = call.whole("group", 1)
    window = _window(call, w.shape[2:], x.shape[2:])
    x = _padded(x, window, 0.0)
    positions, places = math.prod(window.out), math.prod(window.kernel)
    # a depthwise convolution would be a small matrix product for each group
    if w.shape[1] > 1 and x.shape[0] * x.shape[1] * places * positions <= _LAID_OUT:
        y = _by_windows(x, w, groups, window)
    else:
        y = _by_places(x, w, groups, window)
    if bias is not None:
        y += wide(bias).reshape(-1, *(1,) * len(window.out))
    return [y]


def _by_windows(x: np.ndarray, w: np.ndarray, groups: int, window: _Window) -> np.ndarray:
    """Computes one matrix product per group and block of output maps, over the input's windows."""
    n, c = x.shape[:2]
    places = math.prod(window.kernel)
    # a 1x1 window needs no copy of the input by places
    if places == 1:
        laid = x[window.at((0,) * len(window.kernel))]
    else:
        laid = np.ascontiguousarray(window.all_at(x))
    depth = (c // groups) * places
    laid = laid.reshape(n, groups, depth, -1)
    maps = w.shape[0] // groups
    y = np.empty((n, w.shape[0], laid.shape[-1]))
    step = max(_WINDOW_BLOCK // max(depth, 1), 1)
    for group in range(groups):
        for first in range(group * maps, (group + 1) * maps, step):
            last = min(first + step, (group + 1) * maps)
            block = wide(w[first:last].reshape(last - first, depth))
            y[:, first:last] = block @ laid[:, group]
    return y.reshape(n, w.shape[0], *window.out)


def _by_places(x: np.ndarray, w: np.ndarray, groups: int, window: _Window) -> np.ndarray:
    """Sums over the window's places, without laying out the input."""
    n, c = x.shape[:2]
    maps, deep = w.shape[0] // groups, c // groups
    y = np.zeros((n, groups, maps, math.prod(window.out)))
    for place in window.places():
        part = x[window.at(place)].reshape(n, groups, deep, -1)
        block = wide(w[_index(slice(None), slice(None), *place)]).reshape(groups, maps, deep)
        y += block * part if deep == 1 else block @ part
    return y.reshape(n, w.shape[0], *window.out)


def _max_pool(call: Call) -> Sequence[np.ndarray] | None:
    if call.outputs > 1:
        return None
    x = call.wide(0)
    window = _window(call, call.wholes("kernel_shape"), x.shape[2:])
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return [_along(_padded(x, window, least), window, np.maximum)]


def _average_pool(call: Call) -> Sequence[np.ndarray]:
    x = call.wide(0)
    window = _window(call, call.wholes("kernel_shape"), x.shape[2:])
    y = _along(_padded(x, window, 0.0), window, np.add)
    whole = bool(call.whole("count_include_pad", 0))
    for axis, size in enumerate(x.shape[2:]):
        counts = _count_elements(window, axis, size, whole)
        y = y / counts.reshape(-1, *(1,) * (len(window.out) - axis - 1))
    return [y]


def _along(x: np.ndarray, window: _Window, join: np.ufunc) -> np.ndarray:
    """Joins each window's elements, axis by axis; returns a view of ``x`` for windows of 1."""
    for axis, kernel in enumerate(window.kernel):
        stride, dilation, out = window.stride[axis], window.dilation[axis], window.out[axis]
        before = (slice(None),) * (axis + 2)
        made = None
        for place in range(kernel):
            first = place * dilation
            part = x[(*before, slice(first, first + (out - 1) * stride + 1, stride))]
            # the first two parts are views of x; their join is a new array, which takes the others
            made = part if made is None else join(made, part, out=made if place > 1 else None)
        x = x if made is None else made
    return x


def _count_elements(window: _Window, axis: int, size: int, whole: bool) -> np.ndarray:
    """Returns the number of elements of each window that count along one axis."""
    starts = np.arange(window.out[axis]) * window.stride[axis] - window.begin[axis]
    at = starts[:, None] + np.arange(window.kernel[axis]) * window.dilation[axis]
    if whole:
        # ceil_mode: elements beyond the declared padding never count
        return np.asarray((at < size + window.end[axis]).sum(1))
    return np.asarray(((at >= 0) & (at < size)).sum(1))


def _global_lp_pool(call: Call) -> Sequence[np.ndarray]:
    # onnx's reference has none
    x, power = np.abs(call.wide(0)), call.whole("p", 2)
    total = (x**power).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    return [total ** (1 / power)]


WINDOW_KERNELS: Mapping[str, OperatorFunction] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "GlobalLpPool": _global_lp_pool,
    "MaxPool": _max_pool,
}


# Deconvolutions in float64: by the kernel's places or the input's, whichever are fewer.


def _conv_transpose(call: Call) -> Sequence[np.ndarray]:
    x, w, bias = call.wide(0), call.array(1), call.optional(2)
    groups = call.whole("group", 1)
    n, c, *source = x.shape
    kernel, rank = w.shape[2:], x.ndim - 2
    stride = call.wholes("strides") or (1,) * rank
    dilation = call.wholes("dilations") or (1,) * rank
    extra = call.wholes("output_padding") or (0,) * rank
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    full = [(i - 1) * s + e for i, s, e in zip(source, stride, extent, strict=True)]
    begin, out = _cropping(call, full, extra, source, stride)
    maps, deep = w.shape[1], c // groups
    # output_padding may reach beyond the kernel's last element
    padded_size = [max(f, b + o) for f, b, o in zip(full, begin, out, strict=True)]
    y = np.zeros((n, groups, maps, *padded_size))
    parts = x.reshape(n, groups, deep, -1)
    if math.prod(source) < math.prod(kernel) and w.size <= _WIDENED:
        _spread(y, parts, wide(w), source, stride, dilation)
    else:
        for place in itertools.product(*(range(size) for size in kernel)):
            block = wide(w[_index(slice(None), slice(None), *place)]).reshape(groups, deep, maps)
            block = block.transpose(0, 2, 1)
            made = block * parts if deep == 1 else block @ parts
            sides = zip(place, dilation, stride, source, strict=True)
            at = tuple(slice(p * d, p * d + (i - 1) * s + 1, s) for p, d, s, i in sides)
            y[_index(..., *at)] += made.reshape(n, groups, maps, *source)
    cropped = tuple(slice(b, b + o) for b, o in zip(begin, out, strict=True))
    y = y[_index(..., *cropped)].reshape(n, groups * maps, *out)
    return [y if bias is None else y + wide(bias).reshape(-1, *(1,) * rank)]


def _spread(
    y: np.ndarray,
    parts: np.ndarray,
    w: np.ndarray,
    source: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> None:
    """Adds a whole kernel per input position, for kernels larger than the input, as in FCN."""
    n, groups, deep, _ = parts.shape
    kernel = w.shape[2:]
    block = w.reshape(groups, deep, -1)
    for number, position in enumerate(itertools.product(*(range(size) for size in source))):
        made = parts[..., None, :, number] @ block
        sides = zip(position, stride, dilation, kernel, strict=True)
        at = tuple(slice(q * s, q * s + (k - 1) * d + 1, d) for q, s, d, k in sides)
        y[_index(..., *at)] += made.reshape(n, groups, -1, *kernel)


def _cropping(
    call: Call,
    full: Sequence[int],
    extra: Sequence[int],
    source: Sequence[int],
    stride: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Returns how much of a deconvolution's result is cut at the begin, and the size left."""
    rank = len(full)
    shape, auto = list(call.wholes("output_shape"))[-rank:], call.text("auto_pad", "NOTSET")
    if not shape and auto in {"SAME_UPPER", "SAME_LOWER"}:
        # a stride over the kernel requires more elements than exist: no runtime supports that
        sides = zip(source, stride, full, extra, strict=True)
        shape = [min(i * s, f + x) for i, s, f, x in sides]
    if not shape:
        pads = (call.wholes("pads") if auto != "VALID" else ()) or (0,) * (2 * rank)
        sides = zip(full, extra, pads, pads[rank:], strict=False)
        return list(pads[:rank]), [f + x - b - e for f, x, b, e in sides]
    totals = [max(f + x - o, 0) for f, x, o in zip(full, extra, shape, strict=True)]
    begin = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    return begin, shape


DECONVOLUTION_KERNELS: Mapping[str, OperatorFunction] = {"ConvTranspose": _conv_transpose}
