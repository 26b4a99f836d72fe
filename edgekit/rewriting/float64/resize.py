"""Resize in float64: one matrix per axis, as the operator is separable.

onnx's reference computes neither Upsample nor a Resize before opset 11, and takes 5 to 18 times as
long for the others (onnx 1.23.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.rewriting.float64.call import Call, OperatorFunction


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis: sizes before and after, their exact or given ratio, and the part that is read."""

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float]


def _resize(call: Call) -> Sequence[np.ndarray] | None:
    if call.opset < 11:
        call = _as_of_11(call)
    x = call.wide(0)
    axes = _axes(call, x)
    how = call.text("coordinate_transformation_mode", "half_pixel")
    mode = call.text("mode", "nearest")
    outside = np.zeros((1,) * x.ndim, bool)
    y = x
    for item in axes:
        at = _coordinates(item, how)
        if how == "tf_crop_and_resize":
            far = (at < 0) | (at > item.size - 1)
            outside = outside | far.reshape([-1 if i == item.axis else 1 for i in range(x.ndim)])
        # an axis that stays, as N and C do mostly
        if item.out == item.size and (at == np.arange(item.size)).all():
            continue
        if mode == "nearest":
            y = np.take(y, _nearest(call, at, item.size), item.axis)
        else:
            weights = _weights(call, at, item, cubic=mode == "cubic")
            y = _product(weights, y, item.axis)
    if outside.any():
        y = np.where(outside, call.real("extrapolation_value", 0.0), y)
    return [np.ascontiguousarray(y)]


def _product(weights: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    """Replaces one axis by the product of ``weights`` (out, size) with it."""
    # tensordot would move the axis, which takes two more copies of a large tensor
    if axis == x.ndim - 1:
        return np.asarray(x @ weights.T)
    made = weights @ x.reshape(math.prod(x.shape[:axis]), x.shape[axis], -1)
    return np.reshape(made, (*x.shape[:axis], len(weights), *x.shape[axis + 1 :]))


def _as_of_11(call: Call) -> Call:
    """Returns Upsample, and Resize of opset 10, as the equivalent Resize of opset 11."""
    scales = call.optional(1)
    if scales is None:
        scales = np.asarray(call.attrs["scales"], np.float64)
    # as onnx's example for opset 10 and ONNX Runtime do (see ``engine.opset``)
    word = "ceil" if (scales < 1).any() else "floor"
    fixed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": word}
    return Call("Resize", (call.inputs[0], None, scales), {**call.attrs, **fixed}, 11)


def _axes(call: Call, x: np.ndarray) -> list[_Axis]:
    where = [axis % x.ndim for axis in call.wholes("axes", range(x.ndim))]
    roi, scales, sizes = (call.optional(index) for index in (1, 2, 3))
    parts = [0.0] * len(where) + [1.0] * len(where)
    if roi is not None and roi.size:
        parts = [float(item) for item in roi]
    from_sizes = sizes is not None and sizes.size > 0
    if from_sizes:
        assert sizes is not None
        outs = [int(size) for size in sizes]
        ratios = [out / x.shape[axis] for out, axis in zip(outs, where, strict=True)]
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(where)
            # ONNX: round_int(scale * size), halves up
            outs = [math.floor(ratio * x.shape[axis] + 0.5) for axis in where]
    else:
        assert scales is not None
        ratios = [float(scale) for scale in scales]
        outs = [math.floor(x.shape[a] * r) for a, r in zip(where, ratios, strict=True)]
    return [
        _Axis(axis, x.shape[axis], out, ratio, (parts[i], parts[i + len(where)]))
        for i, (axis, out, ratio) in enumerate(zip(where, outs, ratios, strict=True))
    ]


def _coordinates(item: _Axis, how: str) -> np.ndarray:
    """Returns the outputs' coordinates in the input."""
    y = np.arange(item.out, dtype=np.float64)
    # if size times scale is not a whole number, runtimes use the rounded size; onnx's reference
    # uses the product
    if how == "align_corners":
        return np.zeros(1) if item.out == 1 else y * (item.size - 1) / (item.out - 1)
    if how == "asymmetric":
        return y / item.scale
    if how == "tf_half_pixel_for_nn":  # opset 11 only
        return (y + 0.5) / item.scale
    if how == "tf_crop_and_resize":
        first, last = item.roi
        if item.out == 1:
            return np.full(1, 0.5 * (first + last) * (item.size - 1))
        return first * (item.size - 1) + y * (last - first) * (item.size - 1) / (item.out - 1)
    if how == "pytorch_half_pixel" and item.out == 1:
        return np.zeros(1)
    at = (y + 0.5) / item.scale - 0.5
    if how == "half_pixel_symmetric":
        at = at + item.size / 2 * (1 - item.out / (item.scale * item.size))
    return np.asarray(at)


def _nearest(call: Call, at: np.ndarray, size: int) -> np.ndarray:
    mode = call.text("nearest_mode", "round_prefer_floor")
    if mode == "floor":
        index = np.floor(at)
    elif mode == "ceil":
        index = np.ceil(at)
    elif mode == "round_prefer_ceil":
        index = np.floor(at + 0.5)
    else:
        index = np.ceil(at - 0.5)
    return np.asarray(np.clip(index, 0, size - 1), np.int64)


def _weights(call: Call, at: np.ndarray, item: _Axis, *, cubic: bool) -> np.ndarray:
    """Returns the matrix from input to output along one axis."""
    # antialias stretches the filter by the factor of shrinking
    narrow = min(item.scale, 1.0) if call.whole("antialias", 0) else 1.0
    reach = 2 if cubic else 1
    first = math.floor(-reach / narrow) + 1
    base = np.ceil(at) - 1
    index = base[:, None] + np.arange(first, 2 - first if narrow < 1 or cubic else 2)
    away = np.abs(index - at[:, None]) * narrow
    made = _cubic(away, call.real("cubic_coeff_a", -0.75)) if cubic else np.clip(1 - away, 0, 1)
    if call.whole("exclude_outside", 0):
        made = made * ((index >= 0) & (index < item.size))
    if narrow < 1 or call.whole("exclude_outside", 0):
        made = made / made.sum(1, keepdims=True)
    matrix = np.zeros((item.out, item.size))
    columns = np.clip(index, 0, item.size - 1).astype(np.int64)
    # clamped columns at a border repeat, and plain assignment would keep the last only
    np.add.at(matrix, (np.arange(item.out)[:, None], columns), made)
    return matrix


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


KERNELS: Mapping[str, OperatorFunction] = {"Resize": _resize, "Upsample": _resize}
