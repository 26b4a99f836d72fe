"""Global pools and reductions as windows and convolutions."""

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
XAVIER = "jetson-agx-xavier"
NAMES = {
    "ReduceMean": "reduce-mean",
    "ReduceSum": "reduce-sum",
}


def reduce_net(op, shape, axes, keepdims=1, opset=13):
    weights, given, read = {}, {"axes": axes}, ["x"]
    if op == "ReduceSum" or opset >= 18:
        weights, given, read = {"axes": np.array(axes)}, {}, ["x", "axes"]
    return net(
        [node(op, read, ["y"], keepdims=keepdims, **given)], {"x": shape}, ["y"], weights, opset
    )


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 45), st.integers(1, 45)),
    st.sampled_from(sorted(NAMES)),
    st.sampled_from([[2, 3], [-1, -2], [2], [3], [1], [1, 2], [-3, -1], [1, 2, 3]]),
    st.integers(0, 1),
    st.sampled_from([13, 18]),
)
@settings(max_examples=tries(40))
def test_reductions_of_any_axes(shape, op, axes, keepdims, opset):
    before = reduce_net(op, shape, axes, keepdims, opset)
    item = BY_NAME[NAMES[op]]
    # the mean of random numbers may lie so close to zero that FP32 says little; many do not
    remaining = np.prod(
        [size for axis, size in enumerate(shape) if axis not in {a % 4 for a in axes}]
    )
    assume(remaining >= 6)
    after = assert_rewrites(before, item, gone=[op])
    # all that is left for the GPU are the reshapes that drop dimensions
    kinds = ["SHUFFLE"] if keepdims == 0 else []
    assert refused(after) in (kinds, [])
    assert refused(after, XAVIER) in (kinds, [])


def test_a_batch_of_one_may_be_reduced_and_no_other():
    after = assert_rewrites(
        reduce_net("ReduceMean", (1, 4, 7, 7), [0, 1, 2, 3], 0), BY_NAME["reduce-mean"]
    )
    assert ops(after) == ["AveragePool", "Conv", "Reshape"]
    assert_untouched(reduce_net("ReduceMean", (2, 4, 7, 7), [0, 2, 3]), *REWRITES)
    # no axes are all axes, unless the node says that they are none
    every = net([node("ReduceMean", "x", "y")], {"x": (1, 4, 7, 7)}, ["y"])
    assert_rewrites(every, BY_NAME["reduce-mean"], gone=["ReduceMean"])
    none = net([node("ReduceSum", "x", "y", noop_with_empty_axes=1)], {"x": (1, 4, 7, 7)}, ["y"])
    assert_untouched(none, *REWRITES)


def norm_net(op, shape=(2, 8, 6, 5), opset=13, dtype=TensorProto.FLOAT, **given):
    return net([node(op, "x", ["y"], **given)], {"x": (shape, dtype)}, {"y": dtype}, {}, opset)


@pytest.mark.parametrize("axes", [[1], [2, 3], [-3], [1, 2, 3]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_norm_is_the_root_of_a_sum_of_squares(axes, keepdims):
    after = assert_rewrites(norm_net("ReduceL2", axes=axes, keepdims=keepdims), BY_NAME["l2-norm"])
    assert ops(after) == ["Mul", "ReduceSum", "Sqrt"]


def test_a_norm_whose_axes_are_an_input_is_the_same():
    after = assert_rewrites(reduce_net("ReduceL2", (1, 8, 6, 5), [1], opset=18), BY_NAME["l2-norm"])
    assert ops(after) == ["Mul", "ReduceSum", "Sqrt"]


def test_a_normalization_in_fp16_stays_in_fp16():
    before = norm_net("LpNormalization", axis=1, dtype=TensorProto.FLOAT16)
    after = rewritten(before, BY_NAME["l2-norm"])
    assert ops(after)[-1] == "Div"
    assert {after.graph.dtype(name) for name in after.graph.outputs} == {"float16"}


@pytest.mark.parametrize(
    "model",
    [
        norm_net("LpNormalization", axis=1, p=1),
        norm_net("LpNormalization", shape=(1, 6, 5), axis=1),
        norm_net("ReduceL2", shape=(1, 6, 5), axes=[1]),
        net(
            [node("ReduceL2", "x", "y", noop_with_empty_axes=1)],
            {"x": (1, 2, 9, 9)},
            ["y"],
            {},
            18,
        ),
        net([node("GlobalAveragePool", "x", "y")], {"x": (1, 2, 3, 4, 5)}, ["y"]),
        net([node("ReduceMean", "x", "y", axes=[1], keepdims=1)], {"x": (1, 8)}, ["y"]),
        net(
            [node("ReduceMax", "x", "y", axes=[2, 3])],
            {"x": ((1, 2, 9, 9), TensorProto.INT32)},
            {"y": TensorProto.INT32},
        ),
        net([node("ReduceProd", "x", "y", axes=[2, 3])], {"x": (1, 2, 9, 9)}, ["y"]),
        net(
            [node("Relu", "x", "r"), node("AveragePool", "r", "y", kernel_shape=[3, 3])],
            {"x": (1, 2, 9, 9)},
            ["y"],
        ),
    ],
)
def test_others_are_left_alone(model):
    assert_untouched(model, *REWRITES)
