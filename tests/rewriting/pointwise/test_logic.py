"""Truth values as numbers."""

import numpy as np
import pytest
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
    integer = truth_net(
        compared("a"),
        node("Not", "a", "m"),
        node("Cast", "m", "y", to=7),
        outputs={"y": TensorProto.INT64},
    )
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
