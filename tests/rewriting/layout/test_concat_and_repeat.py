"""Concatenation along H and W, Expand and Tile."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries


def concat(axis, *shapes):
    names = [f"x{index}" for index in range(len(shapes))]
    inputs = dict(zip(names, shapes, strict=True))
    return net([node("Concat", names, ["y"], axis=axis)], inputs, ["y"])


@settings(max_examples=tries(25))
@given(
    axis=st.sampled_from([2, 3]),
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    batch=st.integers(1, 2),
    item=st.sampled_from(["concat-axis", "concat-sum"]),
)
def test_any_parts(axis, sizes, batch, item):
    shapes = [(batch, 3, size, 2) if axis == 2 else (batch, 3, 2, size) for size in sizes]
    assert not refused(assert_rewrites(concat(axis, *shapes), item))


def test_other_concatenations_stay():
    both = "concat-sum", "concat-axis"
    assert_untouched(concat(1, (1, 4, 3, 5), (1, 2, 3, 5)), *both)
    assert_untouched(concat(0, (1, 4, 3, 5), (2, 4, 3, 5)), *both)
    assert_untouched(concat(2, (1, 4, 3), (1, 4, 5)), *both)


def constants_around(axis=1, seed=0):
    """Two computed parts between constants, as coordinates or positions are given."""
    nodes = [node("Concat", "u a b v", "y", axis=axis)]
    fixed = {"u": weight(1, 2, 3, 4, seed=seed), "v": weight(1, 2, 3, 4, seed=seed + 1)}
    return net(nodes, {"a": (1, 2, 3, 4), "b": (1, 2, 3, 4)}, ["y"], fixed)


def test_constant_channels_are_added_to_zeros():
    made = []
    for seed in (0, 5):
        before = constants_around(seed=seed)
        after = assert_rewrites(before, "concat-constant")
        assert ops(after) == ["Concat", "Conv", "Add"]
        assert refused(before) == ["CONSTANT", "CONSTANT"]
        assert not refused(after)
        made.append(after.weights[after.proto.graph.node[-1].input[1]])
        assert np.array_equal(made[-1][:, :2], weight(1, 2, 3, 4, seed=seed).astype("f"))
        assert not made[-1][:, 2:6].any()
    assert not np.array_equal(*made)
    # along H and W between transpositions; without constants there is nothing to do
    after = assert_rewrites(constants_around(2), "concat-sum", "concat-axis", "concat-constant")
    assert not refused(after)
    assert_untouched(concat(1, (1, 2, 3, 4), (1, 2, 3, 4)), "concat-constant")
    assert_untouched(constants_around(0), "concat-constant", "concat-axis")


def expanded(shape, result):
    fixed = {"shape": np.array(result)}
    return net([node("Expand", "x shape", "y")], {"x": shape}, ["y"], fixed)


def tiled(shape, times):
    fixed = {"times": np.array(times)}
    return net([node("Tile", "x times", "y")], {"x": shape}, ["y"], fixed)


def test_an_expansion_of_pooled_channels_is_a_resize():
    before = expanded((1, 6, 1, 1), (1, 6, 36, 7))
    after = assert_rewrites(before, "repeat")
    assert ops(after) == ["Resize", "Resize"]
    assert refused(before) == ["SLICE"]
    assert not refused(after)
    assert_untouched(expanded((1, 6, 1, 1), (1, 6, 37, 7)), "repeat")


@settings(max_examples=tries(25))
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    times=st.tuples(st.just(1), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    expands=st.booleans(),
)
def test_any_repetition(shape, times, expands):
    assume(max(times) > 1)
    if expands:
        shape = tuple(1 if t > 1 else s for s, t in zip(shape, times, strict=True))
        model = expanded(shape, [s * t for s, t in zip(shape, times, strict=True)])
    else:
        model = tiled(shape, times)
    assert not refused(assert_rewrites(model, "repeat"))


def test_a_repeated_batch_and_other_ranks_stay():
    assert_untouched(expanded((1, 3, 4, 4), (2, 3, 4, 4)), "repeat")
    assert_untouched(tiled((1, 3, 4), (1, 2, 1)), "repeat")
    assert_untouched(tiled((1, 3, 4, 4), (1, 1, 1, 1)), "repeat")


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div"])
def test_an_expansion_before_arithmetic_goes_away(op):
    nodes = [node("Expand", "s shape", "e"), node(op, "x e", "y")]
    inputs = {"x": (1, 4, 5, 5), "s": (1, 4, 1, 1)}
    model = net(nodes, inputs, ["y"], {"shape": np.array([1, 4, 5, 5])})
    after = assert_rewrites(model, "drop-expand", "repeat", tolerance=1e-4)
    assert ops(after) == [op]
    assert not refused(after, precision="int8")  # a division in FP16 stays on the GPU
    # what others read too remains for them
    model = net(nodes, inputs, ["y", "e"], {"shape": np.array([1, 4, 5, 5])})
    after = assert_rewrites(model, "drop-expand", tolerance=1e-4)
    assert set(ops(after)) == {"Expand", op}


def test_what_the_dla_does_not_broadcast_stays_expanded():
    nodes = [node("Expand", "s shape", "e"), node("Mul", "x e", "y")]
    fixed = {"shape": np.array([1, 4, 5, 5])}
    rows = net(nodes, {"x": (1, 4, 5, 5), "s": (1, 4, 5, 1)}, ["y"], fixed)
    assert_untouched(rows, "drop-expand")
    # the result has the shape of the expansion only
    grown = net(nodes, {"x": (1, 4, 1, 1), "s": (1, 4, 1, 1)}, ["y"], fixed)
    assert_untouched(grown, "drop-expand")


def test_transpositions_that_move_on_leave_the_concatenation_where_it_is():
    items = "concat-axis", "merge-transposes", "sink-transpose"
    after = assert_rewrites(concat(2, (1, 4, 30, 3), (1, 4, 40, 3)), *items)
    assert ops(after) == ["Transpose", "Transpose", "Concat", "Transpose"]
