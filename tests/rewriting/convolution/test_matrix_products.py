"""Gemm and MatMul as convolutions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edgekit.rewriting.graph import RewriteGraph
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    rewrite_step,
    weight,
)
from tests.tries import tries

GEMM, MATMUL = "gemm-to-conv", "matmul-to-conv"


def gemm(view, shape=(1, 8, 7, 7), columns=5, bias=(5,), seed=0, **attrs):
    depth = int(np.prod(shape[1:]))
    sides = (columns, depth) if attrs.get("transB") else (depth, columns)
    weights = {"w": weight(*sides, seed=seed), "to": np.array([shape[0], -1])}
    if bias is not None:
        weights["b"] = weight(*bias, seed=seed + 10) if bias else np.float32(0.5)
    read = "f w b" if bias is not None else "f w"
    nodes = [node("Gemm", read, "y", name="fc", **attrs)]
    if view:
        nodes.insert(0, node(view, "x to" if view == "Reshape" else "x", "f", name="view"))
    return net(nodes, {"x" if view else "f": shape}, ["y"], weights)


@pytest.mark.parametrize("bias", [None, (), (1,), (5,), (1, 5), (1, 1)])
@pytest.mark.parametrize("turned", [0, 1])
def test_every_bias_and_factor(bias, turned):
    model = gemm("Flatten", shape=(2, 3, 2, 2), bias=bias, transB=turned, alpha=0.5, beta=2.0)
    assert ops(assert_rewrites(model, GEMM)) == ["Conv", "Reshape"]


def test_a_bias_of_factor_zero_is_left_out():
    after = assert_rewrites(gemm("Flatten", beta=0.0), GEMM)
    assert len(after.proto.graph.node[0].input) == 2


@given(
    st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 5)] * 2), st.integers(1, 4), st.booleans()
)
@settings(max_examples=tries(15))
def test_any_window(shape, columns, turned):
    after = assert_rewrites(gemm("Flatten", shape, columns, (columns,), transB=int(turned)), GEMM)
    assert ops(after) == ["Conv", "Reshape"]


def test_a_squeeze_is_seen_through_and_others_keep_what_they_read():
    model = net(
        [node("Squeeze", "x axes", "f"), node("Gemm", "f w", "y"), node("Relu", "f", "z")],
        {"x": (2, 8, 1, 1)},
        ["y", "z"],
        {"w": weight(8, 5), "axes": np.array([2, 3])},
    )
    assert ops(assert_rewrites(model, GEMM)) == ["Squeeze", "Conv", "Reshape", "Relu"]


def step(shape, columns=2):
    """What would be written for a flattened image, without computing it."""
    graph = RewriteGraph(gemm("Flatten", shape, columns, None))
    return rewrite_step(graph, GEMM, graph.node("fc"))


def shape_read(made):
    conv = next(n for n in made.new if n.op == "Conv")
    return made.shapes.get(conv.inputs[0])


def test_a_window_over_the_limit_is_one_only_where_there_are_too_many_rows():
    assert shape_read(step((1, 1, 40, 40))) == (1, 1600, 1, 1)
    assert next(n for n in step((1, 4, 48, 48)).new if n.op == "Conv").attrs["kernel_shape"] == [
        48,
        48,
    ]


def test_rows_longer_than_the_channels_are_columns():
    model = net(
        [node("Gemm", "x w", "y", name="fc")], {"x": (1, 9216)}, ["y"], {"w": weight(9216, 2)}
    )
    graph = RewriteGraph(model)
    assert shape_read(rewrite_step(graph, GEMM, graph.node("fc"))) == (1, 4608, 2, 1)


def test_what_is_no_convolution_stays():
    two = {"x": (4, 4), "v": (4, 4)}
    for inputs, attrs in [("x v w", {}), ("x w v", {}), ("x w", {"transA": 1}), ("w x", {})]:
        read = [name for name in two if name in inputs.split()]
        model = net(
            [node("Gemm", inputs, "y", **attrs)],
            {n: two[n] for n in read},
            ["y"],
            {"w": weight(4, 4)},
        )
        assert_untouched(model, GEMM)
    rows = {"w": weight(4, 4), "b": weight(3, 4)}
    assert_untouched(net([node("Gemm", "x w b", "y")], {"x": (3, 4)}, ["y"], rows), GEMM)


def matmul(shape, matrix, add=None, first=False, seed=0, end="y"):
    weights = {"w": weight(*matrix, seed=seed)}
    nodes = [node("MatMul", "w x" if first else "x w", "m" if add else "y", name="mm")]
    if add:
        weights["b"] = weight(*add, seed=seed + 10)
        nodes.append(node("Add", "b m", "y"))
    return net(nodes, {"x": shape}, [end], weights)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(1, 5), st.booleans())
@settings(max_examples=tries(25))
def test_any_product(shape, columns, first):
    depth = shape[-2] if first else shape[-1]
    matrix = (columns, depth) if first else (depth, columns)
    add = None if first else (columns,)
    after = assert_rewrites(
        matmul(tuple(shape), matrix, add, first), MATMUL, gone=["MatMul", "Add"]
    )
    assert set(refused(after)) <= ({"SHUFFLE"} if len(shape) < 4 else set())


@pytest.mark.parametrize("shape", [(1, 8, 7, 7), (2, 8, 1, 1)])
def test_a_product_of_a_flattened_image_is_one_window(shape):
    depth = shape[1] * shape[2] * shape[3]
    model = net(
        [node("Flatten", "x", "f"), node("MatMul", "f w", "m"), node("Add", "m b", "y")],
        {"x": shape},
        ["y"],
        {"w": weight(depth, 5), "b": weight(5)},
    )
    after = assert_rewrites(model, MATMUL)
    assert ops(after) == ["Conv", "Reshape"]
    assert refused(after) == ["SHUFFLE"]


@pytest.mark.parametrize("first", [False, True])
def test_a_matrix_may_have_dimensions_of_one_before(first):
    matrix = (1, 5, 8) if first else (1, 8, 5)
    shape = (2, 8, 6) if first else (2, 6, 8)
    assert_rewrites(matmul(shape, matrix, first=first), MATMUL, gone=["MatMul"])


def test_a_bias_after_it_is_folded_in_and_another_sum_is_not():
    assert "Add" not in ops(assert_rewrites(matmul((2, 9, 8), (8, 5), (1, 1, 5)), MATMUL))
    assert "Add" in ops(assert_rewrites(matmul((2, 9, 8), (8, 5), (9, 5)), MATMUL))
    assert "Add" in ops(assert_rewrites(matmul((8, 6), (5, 8), (6,), first=True), MATMUL))
    # the product itself is an output
    model = net(
        [node("MatMul", "x w", "m"), node("Add", "m b", "y")],
        {"x": (1, 6, 8)},
        ["m", "y"],
        {"w": weight(8, 5), "b": weight(5)},
    )
    assert "Add" in ops(assert_rewrites(model, MATMUL))


def test_products_of_activations_and_of_a_matrix_for_each_batch_stay():
    assert_untouched(
        net([node("MatMul", "x z", "y")], {"x": (1, 4, 4), "z": (1, 4, 4)}, ["y"]), MATMUL
    )
    assert_untouched(matmul((2, 9, 8), (2, 8, 5)), MATMUL)
    assert_untouched(matmul((8,), (8, 5)), MATMUL)
    assert_untouched(matmul((9, 8), (1, 8, 5)), MATMUL)
    integers = net(
        [node("MatMul", "x w", "y")],
        {"x": ((4, 4), TensorProto.INT64)},
        {"y": TensorProto.INT64},
        {"w": np.eye(4, dtype=np.int64)},
    )
    assert_untouched(integers, MATMUL)
