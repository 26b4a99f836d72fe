"""Pooling, LRN, softmax, resize and reduce: NvInfer.h, guide 8.5, the operator matrix."""

from __future__ import annotations

from typing import Any

from tests.dla.limits.cases import (
    ALWAYS,
    NEVER,
    ON_ORIN,
    ON_XAVIER,
    Case,
    since,
)
from tests.dla.limits.sheet import Branch, op


def _pool(kind: str = "MaxPool", window: tuple[int, ...] = (2, 2), **more: Any) -> Branch:
    return op(kind, (1, 4, *[24] * len(window)), kernel_shape=window, **more)


def _average(**more: Any) -> Branch:
    return _pool("AveragePool", (3, 3), **more)


def _pooling(
    rule: str, inside: Branch, outside: Branch, found: str, limit: str, **more: Any
) -> Case:
    return Case(f"pooling.{rule}", inside, outside, found, limit, **more)


POOLING = [
    _pooling("window", _pool(window=(8, 8)), _pool(window=(9, 8)), "9x8", "1..8"),
    _pooling("window", _pool("AveragePool", (1, 8)), _pool("AveragePool", (1, 9)), "1x9", "1..8"),
    _pooling("padding", _pool(window=(8, 8), pads=[7] * 4),
             _pool(window=(8, 8), pads=[7, 7, 7, 8]), "7x7x7x8", "0..7"),
    _pooling("stride", _pool(strides=[16, 16]), _pool(strides=[16, 17]), "16x17", "1..16"),
    _pooling("dilation", _pool(dilations=[1, 1]), _pool(dilations=[1, 2]), "1x2", "1"),
    _pooling("dims", _pool(), _pool(window=(2, 2, 2)), "3", "2"),
    _pooling("dims", _pool(window=(2,)), _pool("AveragePool", (1, 1, 1)), "3", "2",
             kind="POOLING"),
    _pooling("inclusive", _average(pads=[1] * 4, count_include_pad=1), _average(pads=[1] * 4),
             "= 0", "count_include_pad = 1", breaks=ON_XAVIER),
    _pooling("inclusive", _average(), _average(pads=[0, 0, 0, 1], count_include_pad=0), "= 0",
             "count_include_pad = 1", breaks=ON_XAVIER),
    _pooling("inclusive", _average(auto_pad="VALID"), _average(auto_pad="SAME_UPPER"), "= 0",
             "count_include_pad = 1", breaks=ON_XAVIER),
    _pooling("inclusive", _pool(window=(3, 3), pads=[1] * 4), _average(pads=[1] * 4), "= 0",
             "count_include_pad = 1", breaks=ON_XAVIER),
]  # fmt: skip


def _lrn(size: int) -> Branch:
    return op("LRN", (1, 16, 2, 2), size=size)


LRN = [
    Case("lrn.window", _lrn(inside), _lrn(outside), str(outside), "3, 5, 7, 9")
    for inside, outside in ((3, 1), (5, 4), (7, 8), (9, 11))
]

OTHERS_ONE = since("8.5")  # TensorRT 8.4 wants all dimensions but the axis to be 1


def _softmax(shape: tuple[int, ...], axis: int = 1) -> Branch:
    return op("Softmax", shape, axis=axis)


SOFTMAX = [
    Case("softmax.generation", op("Relu", (1, 4, 2, 2)), _softmax((1, 4, 1, 1)), "SOFTMAX",
         "Orin only", breaks=ON_XAVIER),
    Case("softmax.axis", _softmax((1, 8, 1, 1)), _softmax((8, 1, 1, 1), 0), "along N", "C, H or W",
         breaks=ON_ORIN, inside_ok=ON_ORIN, outside_ok=NEVER),
    Case("softmax.axis", _softmax((1, 1, 8, 1), 2), _softmax((8, 1, 1, 1), -4), "along N",
         "C, H or W", breaks=ON_ORIN, inside_ok=ON_ORIN, outside_ok=NEVER),
    *(
        Case("softmax.size", _softmax(inside, axis), _softmax(outside, axis), "1025", "1024",
             breaks=ON_ORIN, inside_ok=ON_ORIN & OTHERS_ONE, outside_ok=NEVER)
        for inside, outside, axis in (
            ((1, 1024, 1, 2), (1, 1025, 1, 2), 1),
            ((1, 2, 1024, 1), (1, 2, 1025, 1), 2),
            ((2, 2, 1, 1024), (2, 2, 1, 1025), -1),
        )
    ),
    # the accurate mode: NvInfer.h asks for ones beside the axis and the batch
    Case("softmax.size", _softmax((2, 8192, 1, 1)), _softmax((2, 8193, 1, 1)), "8193", "8192",
         breaks=ON_ORIN, inside_ok=ON_ORIN & OTHERS_ONE, outside_ok=NEVER),
    Case("softmax.size", _softmax((1, 8192, 1, 1)), _softmax((1, 8193, 1, 1)), "8193", "8192",
         breaks=ON_ORIN, inside_ok=ON_ORIN, outside_ok=NEVER),
    Case("softmax.size", _softmax((1, 1, 1, 8192), 3), _softmax((1, 1, 2, 8192), 3), "8192",
         "1024", breaks=ON_ORIN, inside_ok=ON_ORIN, outside_ok=NEVER),
    Case("softmax.old", _softmax((1, 4, 1, 1)), _softmax((1, 4, 2, 2)), "2", "1",
         breaks=ON_ORIN & ~OTHERS_ONE, inside_ok=ON_ORIN),
    Case("softmax.old", _softmax((1, 1025, 1, 1)), _softmax((2, 4, 1, 1)), "2", "1",
         breaks=ON_ORIN & ~OTHERS_ONE, inside_ok=ON_ORIN),
]  # fmt: skip

NEW_RESIZE = since("8.5.2")


def _resize(
    mode: str,
    *scales: float,
    at: str = "",
    near: str = "",
    sizes: tuple[int, ...] = (),
    shape: tuple[int, ...] = (1, 1, 2, 2),
) -> Branch:
    more: dict[str, Any] = {"mode": mode}
    more["coordinate_transformation_mode"] = at or {"nearest": "asymmetric"}.get(mode, "half_pixel")
    if mode == "nearest":
        more["nearest_mode"] = near or "floor"
    given = [float(scale) for scale in scales]
    constants = [None, None, list(sizes)] if sizes else [None, given]
    return op("Resize", shape, constants=constants, **more)


def _nearest(*scales: float, **more: Any) -> Branch:
    return _resize("nearest", 1, 1, *scales, **more)


def _linear(*scales: float, **more: Any) -> Branch:
    return _resize("linear", 1, 1, *scales, **more)


def _resizing(
    rule: str, inside: Branch, outside: Branch, found: str, limit: str, **more: Any
) -> Case:
    return Case(f"resize.{rule}", inside, outside, found, limit, **more)


RESIZE = [
    _resizing("nearest_scale", _nearest(32, 32), _nearest(32, 33), "32x33", "1..32"),
    _resizing("nearest_scale", _nearest(1, 32), _nearest(0.5, 1), "0.5x1", "1..32"),
    _resizing("linear_scale", _linear(4, 4), _linear(4, 5), "4x5", "1..4", inside_ok=NEW_RESIZE),
    _resizing("linear_scale", _linear(1, 4), _linear(5, 1), "5x1", "1..4", inside_ok=NEW_RESIZE),
    _resizing("integers", _nearest(2, 3), _nearest(2, 1.5), "2x1.5", "whole numbers"),
    _resizing("integers", _linear(2, 3), _linear(2.5, 1), "2.5x1", "whole numbers",
              inside_ok=NEW_RESIZE),
    _resizing("sizes", _nearest(2, 2), _resize("nearest", sizes=(1, 1, 4, 4)), "sizes", "scales"),
    _resizing("scales", _nearest(2, 2), _resize("nearest", 1, 2, 2, 2), "2", "[1, 1, y, x]"),
    _resizing("scales", _nearest(2, 2), _resize("nearest", 2, 1, 2, 2), "2", "[1, 1, y, x]"),
    _resizing("scales", _nearest(2, 2), _resize("nearest", 1, 1, 2, shape=(1, 2, 2)), "1x1x2",
              "[1, 1, y, x]"),
    _resizing("scales", _nearest(2, 2), _resize("nearest", 1, 1, 1, 2, 2, shape=(1, 1, 1, 2, 2)),
              "1x1x1x2x2", "[1, 1, y, x]"),
    _resizing("mode", _nearest(2, 2), _resize("cubic", 1, 1, 2, 2), "CUBIC", "NEAREST, LINEAR"),
    *(
        _resizing("old", _nearest(2, 2), outside, "/", "NEAREST/ASYMMETRIC/FORMULA/FLOOR",
                  breaks=~NEW_RESIZE)
        for outside in (
            _nearest(2, 2, at="half_pixel", near="round_prefer_floor"),
            _nearest(2, 2, at="half_pixel", near="round_prefer_ceil"),
            _linear(2, 2),
            _linear(2, 2, at="pytorch_half_pixel"),
        )
    ),
    *(
        _resizing("combination", inside, outside, found, "NEAREST/ASYMMETRIC/FORMULA/FLOOR",
                  breaks=NEW_RESIZE, inside_ok=where, outside_ok=NEVER)
        for inside, where, outside, found in (
            (_nearest(2, 2), ALWAYS, _nearest(2, 2, near="ceil"), "ASYMMETRIC/FORMULA/CEIL"),
            (_nearest(2, 2, at="half_pixel", near="round_prefer_floor"), NEW_RESIZE,
             _nearest(2, 2, at="half_pixel"), "HALF_PIXEL/FORMULA/FLOOR"),
            (_nearest(2, 2, at="half_pixel", near="round_prefer_ceil"), NEW_RESIZE,
             _nearest(2, 2, near="round_prefer_ceil"), "ASYMMETRIC/FORMULA/HALF_UP"),
            (_linear(2, 2), NEW_RESIZE, _linear(2, 2, at="align_corners"), "ALIGN_CORNERS"),
            (_linear(2, 2, at="pytorch_half_pixel"), NEW_RESIZE, _linear(2, 2, at="asymmetric"),
             "LINEAR/ASYMMETRIC"),
        )
    ),
]  # fmt: skip


def _upsample(mode: str) -> Branch:
    return op("Upsample", (1, 1, 2, 2), constants=[[1.0, 1.0, 2.0, 2.0]], mode=mode)


UPSAMPLE = [
    _resizing(
        "combination",
        _upsample("nearest"),
        _upsample("linear"),
        "LINEAR/ASYMMETRIC",
        "LINEAR/HALF_PIXEL",
        breaks=NEW_RESIZE,
        outside_ok=NEVER,
        opset=9,
    ),
]

WITH_REDUCE = since("8.6.12")


def _reduce(kind: str, axes: list[int], keepdims: int = 1) -> Branch:
    return op(kind, (2, 4, 6, 6), axes=axes, keepdims=keepdims)


GLOBAL_MAX = op("GlobalMaxPool", (1, 4, 6, 6))
GLOBAL_AVERAGE = op("GlobalAveragePool", (1, 4, 6, 6))


def _reducing(rule: str, outside: Branch, found: str, limit: str, **more: Any) -> Case:
    return Case(f"reduce.{rule}", GLOBAL_MAX, outside, found, limit, inside_ok=WITH_REDUCE, **more)


REDUCE = [
    _reducing("function", GLOBAL_AVERAGE, "AVG", "MAX"),
    _reducing("function", _reduce("ReduceMean", [2, 3]), "AVG", "MAX"),
    _reducing("function", _reduce("ReduceMin", [2, 3]), "MIN", "MAX"),
    Case("reduce.since", _pool(window=(6, 6)), GLOBAL_MAX, "MAX", "8.6.12", breaks=~WITH_REDUCE),
    Case("reduce.since", _pool(window=(6, 6)), _reduce("ReduceMax", [1]), "MAX", "8.6.12",
         breaks=~WITH_REDUCE),
    _reducing("rank", _reduce("ReduceMax", [2, 3], keepdims=0), "to 2x4", "4",
              disputed=WITH_REDUCE),
    _reducing("rank", op("ReduceMax", (4, 6, 6), axes=[0]), "4x6x6 to", "4", disputed=WITH_REDUCE),
    _reducing("axes", _reduce("ReduceMax", [0]), "N", "C, H and W"),
    Case("reduce.axes", _reduce("ReduceMax", [1, 2, 3]), _reduce("ReduceMax", [0, 1]), "N and C",
         "C, H and W", inside_ok=WITH_REDUCE),
    _reducing("max_unsure", _reduce("ReduceMax", [-1]), "ReduceMax", "GlobalMaxPool",
              breaks=WITH_REDUCE & ~since("10.7"), risk=True),
]  # fmt: skip

CASES = [*POOLING, *LRN, *SOFTMAX, *RESIZE, *UPSAMPLE, *REDUCE]
