"""A Pad that one pool reads, as the padding of the pool."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.helper import get_attribute_value

from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries

PAD = "pad-pool"


def padded(op, value, around, before="Relu", opset=13, **attrs):
    weights = {"pads": np.array(around)}
    read = ["r", "pads"]
    if value is not None:
        weights["value"] = np.array(value, np.float32)
        read.append("value")
    nodes = [node(before, "x", "r"), node("Pad", read, ["p"]), node(op, "p", "y", **attrs)]
    return net(nodes, {"x": (1, 3, 10, 12)}, ["y"], weights, opset)


AROUND = [0, 0, 1, 2, 0, 0, 1, 0]


@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.integers(1, 3),
    st.sampled_from(["MaxPool", "AveragePool"]),
)
@settings(max_examples=tries(25))
def test_pads_of_any_size(around, kernel, stride, op):
    top, left, bottom, right = around
    pads = [0, 0, top, left, 0, 0, bottom, right]
    before = padded(op, 0.0, pads, kernel_shape=list(kernel), strides=[stride, stride])
    if top >= kernel[0] or left >= kernel[1]:
        assert_untouched(before, PAD)
    elif bottom < kernel[0] and right < kernel[1]:
        assert_rewrites(before, PAD, gone=["Pad"])


@pytest.mark.parametrize(
    "model",
    [
        # zeros may win over negative numbers
        padded("MaxPool", 0.0, AROUND, "Neg", kernel_shape=[3, 3]),
        padded("MaxPool", 0.5, AROUND, kernel_shape=[3, 3]),
        padded("AveragePool", 1.0, AROUND, kernel_shape=[3, 3]),
        # the pool's own padding does not count, that of the Pad does
        padded("AveragePool", 0.0, AROUND, kernel_shape=[3, 3], pads=[1] * 4),
        padded("MaxPool", 0.0, [0, 1, 0, 0, 0, 0, 0, 0], kernel_shape=[3, 3]),
        padded("MaxPool", 0.0, [0, 0, -1, 0, 0, 0, 0, 0], kernel_shape=[3, 3]),
        padded("MaxPool", 0.0, [0, 0, 4, 0, 0, 0, 0, 0], kernel_shape=[3, 3]),
    ],
)
def test_pads_that_show_are_left_alone(model):
    assert_untouched(model, PAD)


def test_a_pad_that_others_read_is_left_alone():
    nodes = [
        node("Relu", "x", "r"),
        node("Pad", "r pads", "p"),
        node("MaxPool", "p", "y", kernel_shape=[3, 3]),
        node("Neg", "p", "z"),
    ]
    model = net(nodes, {"x": (1, 3, 10, 12)}, ["y", "z"], {"pads": np.array(AROUND)})
    assert_untouched(model, PAD)


def test_what_stands_before_the_pad_may_have_other_readers():
    nodes = [
        node("Relu", "x", "r"),
        node("Pad", "r pads", "p"),
        node("MaxPool", "p", "y", kernel_shape=[3, 3], strides=[2, 2]),
        node("Neg", "r", "z"),
    ]
    model = net(nodes, {"x": (1, 3, 10, 12)}, ["y", "z", "r"], {"pads": np.array(AROUND)})
    after = assert_rewrites(model, PAD, gone=["Pad"])
    assert sorted(ops(after)) == ["MaxPool", "Neg", "Relu"]
    assert {item.name for item in after.proto.graph.node} == {"relu_r", "maxpool_y", "neg_z"}


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_a_pad_may_name_its_axes(opset):
    weights = {"pads": np.array([1, 0, 0, 1]), "axes": np.array([-1, 2]), "zero": np.array(0.0)}
    if opset < 18:
        weights = {"pads": np.array([0, 0, 0, 1, 0, 0, 1, 0])}
    read = ["x", "pads", "zero", "axes"] if opset >= 18 else ["x", "pads"]
    nodes = [node("Pad", read, ["p"]), node("AveragePool", "p", "y", kernel_shape=[2, 3])]
    after = assert_rewrites(net(nodes, {"x": (1, 2, 6, 7)}, ["y"], weights, opset), PAD)
    assert ops(after) == ["AveragePool"]
    given = {item.name: get_attribute_value(item) for item in after.proto.graph.node[0].attribute}
    assert given["pads"] == [0, 1, 1, 0]
