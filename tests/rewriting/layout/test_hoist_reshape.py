"""hoist-reshape: where no 4-D tensor stands before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import kinds_off
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

ALL = ("identity-removal", "merge-reshapes", "share-layout", "sink-reshape", "hoist-reshape")


def test_residual_around_a_first_one_dimensional_layer():
    """The input is read in 3-D by the Add and in 4-D by the convolution: one reshape for both."""
    model = net(
        [
            node("Reshape", "x up", "a"),
            node("Conv", "a w", "b", pads=[1, 0, 1, 0]),
            node("Squeeze", "b last", "c"),
            node("Add", "c x", "d"),
            node("Relu", "d", "y"),
        ],
        {"x": (1, 4, 9)},
        ["y"],
        {"up": [1, 4, 9, 1], "last": [3], "w": weight(4, 4, 3, 1)},
    )
    after = assert_rewrites(model, *ALL)
    assert ops(after) == ["Reshape", "Conv", "Add", "Relu", "Reshape"]
    assert kinds_off(after) == ["SHUFFLE", "SHUFFLE"]


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.sampled_from(["Relu", "Add", "Softmax", "Sigmoid"]), min_size=1, max_size=4),
    st.data(),
)
@settings(max_examples=tries(25))
def test_any_chain_before_a_reshape(shape, kinds, data):
    """It ends with the reshape at the input where the operations have such a form."""
    nodes, weights, last = [], {}, "x"
    for index, kind in enumerate(kinds):
        read, more = [last], {}
        if kind == "Add":
            weights[f"k{index}"] = weight(*shape, seed=index)
            read = data.draw(st.permutations([last, f"k{index}"]))
        if kind == "Softmax":
            more["axis"] = data.draw(st.integers(-len(shape), len(shape) - 1))
        nodes.append(node(kind, read, f"t{index}", **more))
        last = f"t{index}"
    ones = data.draw(st.integers(0, 4 - len(shape)))
    weights["up"] = np.array([*[1] * ones, *shape, *[1] * (4 - len(shape) - ones)], np.int64)
    model = net([*nodes, node("Reshape", [last, "up"], "y")], {"x": shape}, ["y"], weights)
    assert ops(assert_rewrites(model, *ALL)) == ["Reshape", *kinds]


@pytest.mark.parametrize(
    ("nodes", "returned"),
    [
        # the result is needed as it is
        ([node("Relu", "x", "r"), node("Reshape", "r up", "y")], ["y", "r"]),
        (
            [node("Relu", "x", "r"), node("Reshape", "r up", "y"), node("Tanh", "r", "z")],
            ["y", "z"],
        ),
        ([node("MatMul", "x k", "r"), node("Reshape", "r up", "y")], ["y"]),
        ([node("Relu", "x", "r"), node("Reshape", "r low", "y")], ["y"]),
    ],
)
def test_left_alone(nodes, returned):
    """Others read the result, it is no such operation, or nothing becomes 4-D."""
    weights = {"k": weight(6, 6), "up": [2, 6, 1, 1], "low": [3, 4]}
    read = {n for item in nodes for n in item.input}
    model = net(nodes, {"x": (2, 6)}, returned, {k: v for k, v in weights.items() if k in read})
    assert_untouched(model, "hoist-reshape")
