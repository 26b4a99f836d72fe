"""Nodes that move numbers about: exact in any width, so weights stay as narrow as stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper

from edgekit.rewriting.float64.call import Call, OperatorFunction

_PAD_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _same(call: Call) -> Sequence[np.ndarray]:
    return [call.array(0)]


def _cast(call: Call) -> Sequence[np.ndarray] | None:
    value = call.array(0)
    if call.op == "CastLike":
        kind = call.array(1).dtype
    else:
        kind = helper.tensor_dtype_to_np_dtype(call.whole("to", 1))
    if kind.kind in "fV":
        # a change of width is none of real arithmetic
        return [value if value.dtype.kind in "fV" else value.astype(np.float64)]
    return [value.astype(kind)]


def _reshape(call: Call) -> Sequence[np.ndarray]:
    value = call.array(0)
    shape = [int(size) for size in call.array(1).reshape(-1)]
    if not call.whole("allowzero", 0):
        shape = [value.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return [value.reshape(shape)]


def _flatten(call: Call) -> Sequence[np.ndarray]:
    value = call.array(0)
    axis = call.whole("axis", 1)
    rows = int(np.prod(value.shape[: axis if axis >= 0 else axis + value.ndim], dtype=np.int64))
    columns = value.size // rows if rows else 0
    return [value.reshape(rows, columns)]


def _squeeze(call: Call) -> Sequence[np.ndarray]:
    return [np.squeeze(call.array(0), call.axes(1))]


def _unsqueeze(call: Call) -> Sequence[np.ndarray]:
    return [np.expand_dims(call.array(0), call.axes(1) or ())]


def _transpose(call: Call) -> Sequence[np.ndarray]:
    return [np.transpose(call.array(0), call.wholes("perm") or None)]


def _concat(call: Call) -> Sequence[np.ndarray]:
    values = [value for value in call.inputs if value is not None]
    return [np.concatenate(values, call.whole("axis", 1))]


def _split(call: Call) -> Sequence[np.ndarray]:
    value, axis = call.array(0), call.whole("axis", 0)
    given = call.optional(1)
    sizes = call.wholes("split") if given is None else tuple(int(i) for i in given)
    if not sizes:
        part = -(-value.shape[axis] // call.outputs)
        sizes = (part,) * (call.outputs - 1)
        sizes = (*sizes, value.shape[axis] - sum(sizes))
    return np.split(value, np.cumsum(sizes)[:-1], axis)


def _slice(call: Call) -> Sequence[np.ndarray] | None:
    if call.opset < 10:
        return None
    value = call.array(0)
    starts, ends = (call.array(i).reshape(-1).tolist() for i in (1, 2))
    axes, steps = call.optional(3), call.optional(4)
    where = range(len(starts)) if axes is None else axes.reshape(-1).tolist()
    by = [1] * len(starts) if steps is None else steps.reshape(-1).tolist()
    parts = [slice(None)] * value.ndim
    for axis, start, end, step in zip(where, starts, ends, by, strict=True):
        size = value.shape[axis]
        first = start + size if start < 0 else start
        last = end + size if end < 0 else end
        if step > 0:
            parts[axis] = slice(min(max(first, 0), size), min(max(last, 0), size), step)
        else:
            stop = min(max(last, -1), size - 1)
            parts[axis] = slice(min(max(first, 0), size - 1), None if stop < 0 else stop, step)
    return [value[tuple(parts)]]


def _gather(call: Call) -> Sequence[np.ndarray]:
    return [np.take(call.array(0), call.array(1), axis=call.whole("axis", 0))]


def _gather_elements(call: Call) -> Sequence[np.ndarray]:
    return [np.take_along_axis(call.array(0), call.array(1), axis=call.whole("axis", 0))]


def _expand(call: Call) -> Sequence[np.ndarray]:
    value = call.array(0)
    shape = np.broadcast_shapes(value.shape, tuple(int(size) for size in call.array(1)))
    return [np.broadcast_to(value, shape)]


def _tile(call: Call) -> Sequence[np.ndarray]:
    return [np.tile(call.array(0), tuple(int(count) for count in call.array(1)))]


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


def _depth_to_space(call: Call) -> Sequence[np.ndarray]:
    value, block = call.array(0), call.whole("blocksize", 1)
    n, c, h, w = value.shape
    part = c // (block * block)
    if call.text("mode", "DCR") == "DCR":
        apart = value.reshape(n, block, block, part, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        apart = value.reshape(n, part, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return [apart.reshape(n, part, h * block, w * block)]


def _space_to_depth(call: Call) -> Sequence[np.ndarray]:
    value, block = call.array(0), call.whole("blocksize", 1)
    n, c, h, w = value.shape
    apart = value.reshape(n, c, h // block, block, w // block, block)
    order = (0, 3, 5, 1, 2, 4) if call.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    apart = apart.transpose(order)
    return [apart.reshape(n, c * block * block, h // block, w // block)]


def _where(call: Call) -> Sequence[np.ndarray]:
    return [np.where(call.array(0), call.array(1), call.array(2))]


def _shape(call: Call) -> Sequence[np.ndarray]:
    shape = call.array(0).shape
    end = call.attrs.get("end")
    return [np.array(shape[call.whole("start", 0) : end], np.int64)]


KERNELS: Mapping[str, OperatorFunction] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Identity": _same,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
