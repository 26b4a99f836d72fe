"""Global pools and reductions as windows and convolutions."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.helper import get_attribute_value

from edgekit.network.session import session
from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.step import step_at
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    rewrites_of,
    rewritten,
    weight,
)
from tests.tries import tries

REWRITES = rewrites_of("pools")

BY_NAME = {item.name: item for item in REWRITES}
XAVIER = "jetson-agx-xavier"
NAMES = {
    "ReduceMean": "reduce-mean",
    "ReduceSum": "reduce-sum",
}


def global_net(op, shape):
    return net([node("Relu", "x", "r"), node(op, "r", "y")], {"x": shape}, ["y"])


def reduce_net(op, shape, axes, keepdims=1, opset=13):
    weights, given, read = {}, {"axes": axes}, ["x"]
    if op == "ReduceSum" or opset >= 18:
        weights, given, read = {"axes": np.array(axes)}, {}, ["x", "axes"]
    return net(
        [node(op, read, ["y"], keepdims=keepdims, **given)], {"x": shape}, ["y"], weights, opset
    )


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ((1, 1024, 7, 7), ["AveragePool"]),  # densenet121
        ((1, 1000, 13, 13), ["AveragePool", "Conv"]),  # squeezenet1_0
        ((2, 6, 14, 14), ["AveragePool"] * 2),
        ((1, 8, 7, 13), ["AveragePool", "Conv"]),
        ((1, 8, 56, 56), ["AveragePool"] * 2),
        ((1, 4, 37, 37), ["AveragePool", "Conv"]),
        ((1, 16, 1, 1), ["AveragePool"]),
    ],
)
def test_global_average_pool_ends_on_the_dla(shape, left):
    before = global_net("GlobalAveragePool", shape)
    after = assert_rewrites(before, BY_NAME["global-average-pool"])
    assert ops(after) == ["Relu", *left]
    assert after.proto.graph.node[-1].name == before.proto.graph.node[-1].name
    assert "REDUCE" in refused(before)
    for board in ("jetson-agx-orin-64gb", XAVIER):
        for precision in ("fp16", "int8"):
            assert not refused(after, board, precision)


def test_a_convolution_that_fills_its_buffer_goes_along_one_axis_at_a_time():
    # 31 rows of 1024 channels are more than the buffer holds; one row is not
    before = reduce_net("ReduceSum", (1, 1024, 31, 31), [2, 3])
    after = assert_rewrites(before, BY_NAME["reduce-sum"])
    assert ops(after) == ["Conv", "Conv"]
    assert not refused(after)


def test_zeros_around_a_prime_image_are_pooled_and_weighed_out():
    after = assert_rewrites(
        global_net("GlobalAveragePool", (1, 4, 13, 13)), BY_NAME["global-average-pool"]
    )
    pool, conv = after.proto.graph.node[1:]
    given = {item.name: get_attribute_value(item) for item in pool.attribute}
    # 15 = 5 * 3 with a zero on either side, which counts
    assert given["kernel_shape"] == given["strides"] == [5, 5]
    assert given["pads"] == [1, 1, 1, 1]
    assert given["count_include_pad"] == 1
    values = np.asarray(after.weights[conv.input[1]])
    assert values.shape == (4, 1, 3, 3)
    np.testing.assert_allclose(values, 25 / 169, rtol=1e-6)


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


def test_a_mean_without_its_dimensions_keeps_the_name_at_the_pool():
    after = assert_rewrites(
        reduce_net("ReduceMean", (1, 8, 7, 7), [2, 3], 0), BY_NAME["reduce-mean"]
    )
    assert [(n.op_type, n.name) for n in after.proto.graph.node] == [
        ("AveragePool", "reducemean_y"),
        ("Reshape", "reducemean_y:reshape"),
    ]


def test_a_sum_is_a_convolution_of_ones():
    """A sum is one convolution of ones: no small averages that INT8 would round first."""
    after = assert_rewrites(reduce_net("ReduceSum", (1, 8, 12, 12), [2, 3]), BY_NAME["reduce-sum"])
    assert ops(after) == ["Conv"]
    (values,) = [after.weights[name] for name in after.proto.graph.node[0].input[1:]]
    assert (np.asarray(values) == 1).all()


def test_what_brings_no_weights_along_follows_a_refit():
    """Only numbers that do not come from the model's weights are brought along."""
    found = []
    for seed in (1, 2):
        nodes = [node("Conv", "x w", "c", kernel_shape=[1, 1]), node("GlobalAveragePool", "c", "y")]
        model = net(nodes, {"x": (1, 3, 13, 13)}, ["y"], {"w": weight(4, 3, 1, 1, seed=seed)})
        graph = RewriteGraph(model)
        step = step_at(graph, BY_NAME["global-average-pool"], graph.node("globalaveragepool_y"))
        graph.apply(step)
        assert not graph.recipes()
        found.append([item.value for item in step.fixed])
        assert "w" in assert_rewrites(model, *REWRITES).weights
    np.testing.assert_array_equal(found[0], found[1])


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


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_a_normalization_divides_by_the_norm_and_by_1_where_it_is_0(axis):
    before = norm_net("LpNormalization", axis=axis)
    after = assert_rewrites(before, BY_NAME["l2-norm"])
    assert ops(after) == ["Mul", "ReduceSum", "Sqrt", "Equal", "Cast", "Add", "Div"]
    values = np.random.default_rng(0).standard_normal((2, 8, 6, 5)).astype(np.float32)
    values[1] = 0
    old, new = (session(one, optimise=False).run(None, {"x": values})[0] for one in (before, after))
    np.testing.assert_allclose(new, old, atol=1e-6)
    assert (new[1] == 0).all()


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


def test_every_rewrite_says_why_and_stands_once():
    assert len(BY_NAME) == len(REWRITES)
    for item in REWRITES:
        assert item.reason.strip()
        assert not item.name.startswith("approx-")
    assert {item.name for item in REWRITES if item.enabling} == {"pool-1d", "l2-norm"}
    assert rewritten(global_net("GlobalAveragePool", (1, 4, 7, 7)), *REWRITES).proto.graph.node
