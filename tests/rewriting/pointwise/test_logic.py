"""Truth values as numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edgekit.network.lowering.layers import layers
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    node,
    ops,
    weight,
)
from tests.rewriting.pointwise.truths import BOOL, LOGIC, compared, truth_net
from tests.tries import tries


@pytest.mark.parametrize(
    "nodes",
    [
        [compared("a"), compared("b", "Less", "x", "w"), node("And", "a b", "m")],
        [compared("a"), compared("b", "Equal", "x", "w"), node("Or", "a b", "m")],
        [compared("a"), compared("b", "Less", "w", "x"), node("Xor", "a b", "m")],
        [compared("a"), node("Not", "a", "m")],
        [compared("m", "GreaterOrEqual")],
        [compared("m", "LessOrEqual")],
        [
            compared("a"),
            compared("b", "LessOrEqual", "w", "x"),
            node("Not", "a", "n"),
            node("And", "n b", "o"),
            node("Xor", "o a", "m"),
        ],
    ],
)
def test_logic_between_comparisons_and_casts(nodes):
    model = truth_net(*nodes, node("Cast", "m", "y", to=1))
    assert refused(model, precision="int8") != []
    after = assert_rewrites(model, "logic", gone=LOGIC)
    # comparisons run in INT8
    assert refused(after, precision="int8") == []


def test_constant_operands_are_factors_and_shifts():
    mask = np.random.default_rng(0).random((1, 1, 4, 5)) < 0.5
    for op in ("And", "Or", "Xor"):
        for order in ("k a", "a k"):
            model = truth_net(
                compared("a"),
                node(op, order, "m"),
                node("Cast", "m", "y", to=1),
                weights={"k": mask},
            )
            after = assert_rewrites(model, "logic", gone=LOGIC)
            kinds = refused(after)
            assert sorted(kinds) == ["CAST", "ELEMENTWISE"]


def test_what_the_graph_returns_is_cast_at_its_end():
    model = truth_net(
        compared("a"), compared("b", "Less", "x", "w"), node("And", "a b", "y"), outputs={"y": BOOL}
    )
    after = assert_rewrites(model, "logic", gone=LOGIC)
    assert ops(after)[-2:] == ["Mul", "Cast"]


def test_inner_truth_values_that_others_read():
    model = truth_net(
        compared("a"),
        compared("b", "Less", "x", "w"),
        node("And", "a b", "m"),
        node("Not", "m", "n"),
        node("Cast", "m", "y", to=1),
        node("Cast", "n", "v", to=1),
        outputs=["y", "v"],
    )
    assert_rewrites(model, "logic", gone=LOGIC)
    twice = truth_net(
        compared("a"),
        compared("b", "LessOrEqual", "x", "w"),
        node("Or", "b a", "c"),
        node("Where", "c x zero", "p"),
        node("Where", "c zero x", "q"),
        node("Xor", "c a", "y"),
        outputs={"p": 1, "q": 1, "y": BOOL, "c": BOOL},
        weights={"zero": np.float32(0)},
    )
    assert_rewrites(twice, "where", "logic", gone=LOGIC)
    assert_rewrites(twice, "logic", "where", gone=LOGIC)


def test_plain_comparisons_and_other_ranks_stay():
    assert_untouched(truth_net(compared("m"), node("Cast", "m", "y", to=1)), "logic")
    flat = {"x": (4, 5), "z": (4, 5)}
    ends = [node("Not", "a", "m"), node("Cast", "m", "y", to=1)]
    assert_untouched(truth_net(compared("a"), *ends, shapes=flat), "logic")
    integer = truth_net(compared("a"), node("Not", "a", "m"), node("Cast", "m", "y", to=7),
                        outputs={"y": TensorProto.INT64})  # fmt: skip
    assert_untouched(integer, "logic")


@pytest.mark.parametrize("op", ["Equal", "Greater", "Less"])
@pytest.mark.parametrize("part", [(), (3, 1, 1)])
@pytest.mark.parametrize("order", ["x k", "k x"])
def test_comparisons_with_constants(op, part, order):
    model = truth_net(
        node(op, order, "c"), node("Cast", "c", "y", to=1), weights={"k": weight(*part)}
    )
    after = assert_rewrites(model, "compare-constant")
    # comparisons run in INT8
    assert refused(after, precision="int8") == []
    assert layers(after).constants == ()
    assert ops(after) == ["BatchNormalization", op, "Cast"]


def test_comparisons_without_a_cast_and_with_activations_stay():
    alone = truth_net(node("Greater", "x k", "y"), outputs={"y": BOOL}, weights={"k": np.zeros(1)})
    both = truth_net(compared("c"), node("Cast", "c", "y", to=1))
    row = truth_net(
        node("Less", "x k", "c"), node("Cast", "c", "y", to=1), weights={"k": weight(5)}
    )
    for model in (alone, both, row):
        assert_untouched(model, "compare-constant")


SIGNS = ["Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


@settings(max_examples=tries(20), derandomize=True)
@given(
    op=st.sampled_from(SIGNS),
    slope=st.one_of(st.none(), st.floats(-2, 2, width=32)),
    zero_first=st.booleans(),
)
def test_selection_by_sign_is_a_relu(op, slope, zero_first):
    positive_first = (op in SIGNS[:2]) != zero_first
    branches = ["x", "zero" if slope is None else "m"]
    nodes = [
        node(op, "zero x" if zero_first else "x zero", "c"),
        node("Where", ["c", *(branches if positive_first else reversed(branches))], ["y"]),
    ]
    weights = {"zero": np.float32(0)}
    if slope is not None:
        nodes.insert(0, node("Mul", "x a", "m"))
        weights["a"] = np.float32(slope)
    after = assert_rewrites(truth_net(*nodes, weights=weights), "relu-form")
    assert ops(after) == ["LeakyRelu" if slope else "Relu"]
    assert refused(after, "jetson-agx-xavier") == []


@pytest.mark.parametrize("shared", ["m", "c"])
@pytest.mark.parametrize("zero_first", [True, False])
def test_a_part_of_a_relu_that_others_read_stays(shared, zero_first):
    nodes = [
        node("Mul", "x a", "m"),
        node("Less", "zero x", "c") if zero_first else node("Greater", "x zero", "c"),
        node("Where", "c x m", "v"),
    ]
    if shared == "m":
        nodes.append(node("Concat", "v m", "y", axis=1))
    else:
        nodes += [node("Cast", "c", "d", to=1), node("Concat", "v d", "y", axis=1)]
    model = truth_net(*nodes, weights={"zero": np.float32(0), "a": np.float32(0.1)})
    after = ops(assert_rewrites(model, "relu-form", gone=("Where",)))
    shared_op = {"m": "Mul", "c": "Less" if zero_first else "Greater"}[shared]
    assert {shared_op, "LeakyRelu"} <= set(after)
    assert not {"Mul", "Less", "Greater"} - {shared_op} & set(after)


def test_other_selections_are_no_relu():
    numbers = {"zero": np.float32(0), "one": np.float32(1), "a": np.float32(0.5)}
    for first, second in (
        (node("Greater", "x one", "c"), node("Where", "c x zero", "y")),
        (node("Greater", "x zero", "c"), node("Where", "c zero x", "y")),
        (node("Greater", "x zero", "c"), node("Where", "c x one", "y")),
        (node("Greater", "x zero", "c"), node("Where", "c w zero", "y")),
    ):
        used = {k: v for k, v in numbers.items() if k in (*first.input, *second.input)}
        assert_untouched(truth_net(first, second, weights=used), "relu-form")
