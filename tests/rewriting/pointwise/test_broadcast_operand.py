"""Operands that repeat in forms that the DLA does not have."""

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
