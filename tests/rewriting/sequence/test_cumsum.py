"""Running sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries


def cumsum(shape, axis, **attrs):
    nodes = [node("CumSum", "x axis", "y", **attrs)]
    return net(nodes, {"x": shape}, ["y"], {"axis": np.array(axis)}, opset=14)


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((1, 6, 5, 5), 1, ["Conv"]),
        ((1, 3, 32, 4), 2, ["Conv"]),
        ((1, 3, 4, 40), -1, ["Transpose", "Conv", "Transpose"]),
    ],
)
def test_a_running_sum_is_a_convolution(shape, axis, expected):
    before = cumsum(shape, axis)
    after = assert_rewrites(before, "cumsum")
    assert ops(after) == expected
    assert refused(before)
    assert not refused(after)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_sum_from_the_end(axis, exclusive):
    model = cumsum((1, 6, 5, 5), axis, reverse=1, exclusive=exclusive)
    assert_rewrites(model, "cumsum", gone=["CumSum"])


@settings(max_examples=tries(25))
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    data=st.data(),
    exclusive=st.integers(0, 1),
    reverse=st.integers(0, 1),
)
def test_any_axis_and_direction(shape, data, exclusive, reverse):
    axis = data.draw(st.integers(1, len(shape) - 1))
    model = cumsum(tuple(shape), axis, exclusive=exclusive, reverse=reverse)
    after = assert_rewrites(model, "cumsum", gone=["CumSum"])
    assert set(refused(after)) <= {"SHUFFLE"}


def test_running_sums_that_stay():
    assert_untouched(cumsum((3, 4, 2, 2), 0), "cumsum")
    nodes = [node("CumSum", "x axis", "y")]
    inputs = {"x": (1, 4, 2, 2), "axis": ((), TensorProto.INT64)}
    assert_untouched(net(nodes, inputs, ["y"], opset=14), "cumsum")
    kind = TensorProto.INT64
    whole = net(nodes, {"x": ((1, 4, 2, 2), kind)}, {"y": kind}, {"axis": np.array(1)}, opset=14)
    assert_untouched(whole, "cumsum")
