"""Operands that repeat in forms that the DLA does not have."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

SHAPE = (1, 6, 4, 5)


def pair(op, small, large=SHAPE, turned=False):
    inputs = "z x" if turned else "x z"
    return net([node(op, inputs, "y", name="op")], {"x": large, "z": small}, ["y"])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub", "Max", "Min", "Sum"])
def test_a_spatial_attention_map(op, turned):
    model = pair(op, (1, 1, 4, 5), turned=turned)
    assert refused(model) == ["ELEMENTWISE"]
    after = assert_rewrites(model, "broadcast-operand")
    assert ops(after) == ["Conv", op]
    for board in ("jetson-agx-orin-64gb", "jetson-agx-xavier"):
        assert refused(after, board) == []
    assert after.proto.graph.node[-1].name == "op"


@pytest.mark.parametrize(
    ("small", "expected"),
    [
        ((1, 6, 1, 5), ["Resize", "Mul"]),
        ((1, 6, 4, 1), ["Resize", "Mul"]),
        ((1, 1, 1, 5), ["Conv", "Resize", "Mul"]),
        ((1, 1, 4, 1), ["Conv", "Resize", "Mul"]),
    ],
)
def test_rows_and_columns(small, expected):
    after = assert_rewrites(pair("Mul", small), "broadcast-operand")
    assert ops(after) == expected
    for board in ("jetson-agx-orin-64gb", "jetson-agx-xavier"):
        assert refused(after, board) == []


def test_sizes_beyond_one_resize():
    after = assert_rewrites(pair("Mul", (1, 2, 1, 3), (1, 2, 64, 3)), "broadcast-operand")
    assert ops(after) == ["Resize", "Resize", "Mul"]
    assert refused(after) == []
    assert_untouched(pair("Mul", (1, 2, 1, 3), (1, 2, 37, 3)), "broadcast-operand")


def test_both_operands_repeat():
    after = assert_rewrites(pair("Add", (1, 1, 4, 5), (1, 6, 1, 1)), "broadcast-operand")
    assert ops(after) == ["Conv", "Add"]
    assert refused(after) == []
    after = assert_rewrites(pair("Add", (1, 1, 4, 5), (1, 6, 4, 1)), "broadcast-operand")
    assert refused(after) == []


def test_constants_that_are_larger():
    for part in [(1, 6, 4, 5), (4, 5), (1, 1, 4, 1)]:
        model = net([node("Add", "x c", "y")], {"x": (1, 6, 1, 1)}, ["y"], {"c": weight(*part)})
        after = assert_rewrites(model, "broadcast-operand")
        assert ops(after) == ["Resize", "Add"]
        assert refused(after) == []


@pytest.mark.parametrize("small", [SHAPE, (1, 6, 1, 1), (1, 1, 1, 1)])
def test_forms_of_the_dla_stay(small):
    model = pair("Mul", small)
    assert refused(model) == []
    assert_untouched(model, "broadcast-operand")


def test_batches_and_lower_ranks_stay():
    assert_untouched(pair("Mul", (1, 6, 4, 5), (2, 6, 4, 5)), "broadcast-operand")
    assert_untouched(pair("Mul", (4, 5)), "broadcast-operand")
    assert_untouched(pair("Mul", (1, 5), (4, 5)), "broadcast-operand")


@settings(max_examples=tries(25), derandomize=True)
@given(
    sizes=st.tuples(st.integers(1, 2), *[st.integers(1, 5)] * 3),
    left=st.tuples(*[st.booleans()] * 3),
    right=st.tuples(*[st.booleans()] * 3),
    op=st.sampled_from(["Mul", "Add", "Sub", "Max"]),
)
def test_any_two_shapes(sizes, left, right, op):
    parts = [
        (sizes[0], *(s if k else 1 for s, k in zip(sizes[1:], full, strict=True)))
        for full in (left, right)
    ]
    model = pair(op, parts[1], parts[0])
    if refused(model) == []:
        return
    after = assert_rewrites(model, "broadcast-operand")
    assert refused(after) == []


def test_copies_do_not_depend_on_weights():
    model = net(
        [node("Conv", "x w", "a"), node("Mul", "x a", "y")],
        {"x": SHAPE},
        ["y"],
        {"w": weight(1, 6, 1, 1)},
    )
    after = assert_rewrites(model, "broadcast-operand")
    new = set(after.weights) - set(model.weights)
    values = [np.asarray(after.weights[name]) for name in new]
    assert [math.prod(v.shape) for v in values] == [6]
    assert (values[0] == 1).all()
