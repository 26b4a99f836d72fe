"""Element-wise operators that onnx's reference computes wrong in float64, or copies.

The reference computes Erf, and the 1/6 of HardSwish, in FP32, rounds in a Cast, lacks negative
padding, and copies the elements that Expand repeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper

from edgekit.rewriting.float64.call import Call, OperatorFunction

_PAD_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
_ERF_BLOCK = 1 << 16


def _cast(call: Call) -> Sequence[np.ndarray] | None:
    value = call.array(0)
    if call.op == "CastLike":
        kind = call.array(1).dtype
    else:
        kind = helper.tensor_dtype_to_np_dtype(call.whole("to", 1))
    if kind.kind in "fV":
        # a change of width has no effect in real arithmetic
        return [value if value.dtype.kind in "fV" else value.astype(np.float64)]
    return [value.astype(kind)]


def _expand(call: Call) -> Sequence[np.ndarray]:
    value = call.array(0)
    shape = np.broadcast_shapes(value.shape, tuple(int(size) for size in call.array(1)))
    # a view: repeated elements take no memory
    return [np.broadcast_to(value, shape)]


def _pad(call: Call) -> Sequence[np.ndarray] | None:
    if call.opset < 11:
        return None
    value, pads = call.array(0), call.array(1).reshape(-1).tolist()
    axes = call.optional(3)
    where = list(range(value.ndim)) if axes is None else axes.reshape(-1).tolist()
    widths = [[0, 0] for _ in range(value.ndim)]
    for index, axis in enumerate(where):
        widths[axis] = [pads[index], pads[index + len(where)]]
    # negative pads crop
    parts = tuple(
        slice(max(-begin, 0), size - max(-end, 0))
        for (begin, end), size in zip(widths, value.shape, strict=True)
    )
    value = value[parts]
    widths = [[max(begin, 0), max(end, 0)] for begin, end in widths]
    mode = call.text("mode", "constant")
    if mode == "constant":
        fill = call.optional(2)
        number = 0 if fill is None or not fill.size else fill.reshape(-1)[0]
        return [np.pad(value, widths, constant_values=number)]
    return [np.pad(value, widths, mode=_PAD_MODES[mode])]  # type: ignore[call-overload]


def _error_function(x: np.ndarray) -> np.ndarray:
    # NumPy has no erf; in blocks, since each number becomes a Python object
    y = np.empty(x.shape)
    flat, made = x.reshape(-1), y.reshape(-1)
    for first in range(0, flat.size, _ERF_BLOCK):
        block = flat[first : first + _ERF_BLOCK].tolist()
        made[first : first + _ERF_BLOCK] = list(map(math.erf, block))
    return y


def _gelu(call: Call) -> Sequence[np.ndarray] | None:
    if call.text("approximate", "none") == "tanh":
        return None
    x = call.wide(0)
    return [np.asarray(0.5 * x * (1 + _error_function(x / math.sqrt(2))))]


def _hard_swish(call: Call) -> Sequence[np.ndarray]:
    # the 1/6 is part of the operator's definition, not an attribute
    x = call.wide(0)
    return [x * np.clip(1 / 6 * x + 0.5, 0.0, 1.0)]


KERNELS: Mapping[str, OperatorFunction] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Erf": lambda call: [_error_function(call.wide(0))],
    "Expand": _expand,
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
    "Pad": _pad,
}
