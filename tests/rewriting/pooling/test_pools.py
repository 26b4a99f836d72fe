"""Pools beyond the limits, whose padding does not count, and of one dimension."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    rewrites_of,
    rewritten,
)
from tests.tries import tries

REWRITES = rewrites_of("pools")

BY_NAME = {item.name: item for item in REWRITES}
LARGE = BY_NAME["large-max-pool"]
INCLUSIVE = BY_NAME["average-pool-inclusive"]
ONE = BY_NAME["pool-1d"]
XAVIER = "jetson-agx-xavier"


def pool_net(op, shape, opset=13, **attrs):
    return net([node(op, "x", "y", **attrs)], {"x": shape}, ["y"], opset=opset)


@pytest.mark.parametrize(
    ("attrs", "left"),
    [
        # the three pools of YOLO's SPP: 5x5 fits, 9x9 and 13x13 do not
        ({"kernel_shape": [9, 9], "pads": [4] * 4}, 2),
        ({"kernel_shape": [13, 13], "pads": [6] * 4}, 2),
        ({"kernel_shape": [20, 20]}, 2),
        ({"kernel_shape": [2, 2], "strides": [18, 18]}, 2),
        ({"kernel_shape": [11, 3], "strides": [4, 2], "auto_pad": "SAME_UPPER"}, 2),
        ({"kernel_shape": [9, 9], "strides": [9, 9], "ceil_mode": 1}, 2),
        ({"kernel_shape": [3, 3], "dilations": [2, 2], "strides": [2, 2]}, 2),
    ],
)
def test_large_max_pools_are_cascades(attrs, left):
    before = pool_net("MaxPool", (1, 4, 20, 20), **attrs)
    after = assert_rewrites(before, LARGE)
    assert ops(after) == ["MaxPool"] * left
    assert refused(before)
    assert not refused(after)
    assert not refused(after, XAVIER)


@st.composite
def pools(draw):
    size = [draw(st.integers(1, 14)) for _ in range(2)]
    pads = [draw(st.integers(0, side - 1)) for side in size * 2]
    sides = [draw(st.integers(8, 26)) for _ in range(2)]
    for at in (0, 1):
        assume(sides[at] + pads[at] + pads[at + 2] >= size[at])
    attrs = {
        "kernel_shape": size,
        "pads": pads,
        "strides": [draw(st.sampled_from([1, 2, 3, 4, 12, 18])) for _ in range(2)],
    }
    # a window in the padding altogether has no mean, and exporters write none
    for at in (0, 1):
        left = sides[at] + pads[at] + pads[at + 2] - size[at]
        last = left // attrs["strides"][at] * attrs["strides"][at]
        assume(last < sides[at] + pads[at])
    return (draw(st.integers(1, 2)), 2, *sides), attrs


@given(pools(), st.sampled_from(["MaxPool", "AveragePool"]), st.integers(0, 1))
@settings(max_examples=tries(40))
def test_pools_of_any_window(pool, op, counts):
    shape, attrs = pool
    if op == "AveragePool":
        # larger averages stay on the GPU
        assume(max(attrs["kernel_shape"]) <= 8 and max(attrs["strides"]) <= 16)
        attrs = {**attrs, "count_include_pad": counts}
    before = pool_net(op, shape, **attrs)
    wanted = refused(before, XAVIER)
    if not wanted:
        assert_untouched(before, LARGE, INCLUSIVE)
        return
    after = assert_rewrites(before, LARGE, INCLUSIVE)
    assert not refused(after, XAVIER)
    assert not refused(after)


def test_xavier_counts_padding_and_a_scale_takes_it_out():
    attrs = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}  # InceptionV3
    before = pool_net("AveragePool", (1, 8, 6, 6), **attrs)
    after = assert_rewrites(before, INCLUSIVE)
    assert ops(after) == ["AveragePool", "Mul"]
    assert refused(before, XAVIER) == ["POOLING"]
    assert not refused(after, XAVIER)
    # Orin has it as it is
    assert not refused(before)
    factor = np.asarray(after.weights[after.proto.graph.node[1].input[1]])
    assert factor.shape == (1, 8, 6, 6)
    assert factor[0, 0, 0, 0] == np.float32(9 / 4)
    assert factor[0, 0, 0, 1] == np.float32(9 / 6)
    assert factor[0, 0, 2, 2] == 1


def test_ceil_mode_has_a_map_of_its_own():
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    after = assert_rewrites(pool_net("AveragePool", (1, 4, 8, 8), **attrs), INCLUSIVE)
    assert ops(after) == ["AveragePool", "Mul"]
    # what counts there differs between implementations
    counted = pool_net(
        "AveragePool",
        (1, 4, 30, 30),
        kernel_shape=[12, 12],
        strides=[3, 3],
        pads=[1] * 4,
        ceil_mode=1,
        count_include_pad=1,
    )
    assert_untouched(counted, LARGE)


@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [8, 8], "auto_pad": "VALID"},
    ],
)
def test_pools_that_every_dla_has_are_left_alone(attrs):
    assert_untouched(pool_net("AveragePool", (1, 4, 16, 16), **attrs), *REWRITES)
    attrs = {key: value for key, value in attrs.items() if key != "count_include_pad"}
    assert_untouched(pool_net("MaxPool", (1, 4, 16, 16), **attrs), *REWRITES)


def test_indices_and_other_ranks_are_left_alone():
    model = net(
        [node("MaxPool", "x", "y i", kernel_shape=[9, 9])],
        {"x": (1, 2, 20, 20)},
        {"y": 1, "i": 7},
    )
    assert_untouched(model, *REWRITES)
    assert_untouched(pool_net("MaxPool", (1, 2, 9, 9, 9), kernel_shape=[9, 9, 9]), *REWRITES)
    # 3 at a distance of 2, side by side: no cascade has it
    dilated = pool_net("MaxPool", (1, 2, 20, 20), kernel_shape=[3, 3], dilations=[2, 2])
    assert_untouched(dilated, *REWRITES)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("MaxPool", {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ("MaxPool", {"kernel_shape": [3], "dilations": [2], "ceil_mode": 1, "strides": [2]}),
        ("MaxPool", {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_LOWER"}),
        ("AveragePool", {"kernel_shape": [5], "pads": [2, 1]}),
        ("AveragePool", {"kernel_shape": [5], "pads": [2, 1], "count_include_pad": 1}),
    ],
)
def test_pools_of_one_dimension_have_two(op, attrs):
    after = assert_rewrites(pool_net(op, (2, 3, 21), **attrs), ONE)
    assert ops(after) == ["Reshape", op, "Reshape"]
    assert "POOLING" not in refused(after) or "dilations" in attrs


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("GlobalAveragePool", {}),
        ("MaxPool", {"kernel_shape": [13, 13]}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4}),
    ],
)
def test_half_precision_stays_half_precision(op, attrs):
    half = TensorProto.FLOAT16
    model = net([node(op, "x", "y", **attrs)], {"x": ((1, 4, 13, 13), half)}, {"y": half})
    after = rewritten(model, *REWRITES)
    assert len(ops(after)) == 2
    assert {item.data_type for item in after.proto.graph.initializer} <= {half}
