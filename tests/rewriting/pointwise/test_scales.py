"""Arithmetic with constants and its forms as scales."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    net,
    node,
    ops,
    rewritten,
    weight,
)
from tests.tries import tries

SHAPE = (1, 6, 3, 4)


def by_constant(op, part, first=False, shape=SHAPE, seed=0):
    inputs = "c x" if first else "x c"
    value = np.abs(weight(*part, seed=seed)) + 0.5
    return net([node(op, inputs, "y", name="op")], {"x": shape}, ["y"], {"c": value})


def scale_layers(model):
    return refused(model, "jetson-agx-xavier") == [] == refused(model)


@pytest.mark.parametrize("part", [(), (6, 1, 1), (1, 6, 1, 1), (1, 6, 3, 4)])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_scale_layers_stay(op, part):
    assert scale_layers(by_constant(op, part))
    assert_untouched(by_constant(op, part), "scale-form", "scale-chain")


def test_larger_constants_other_ranks_and_numerators_stay():
    assert_untouched(by_constant("Add", (1, 6, 3, 4), shape=(1, 6, 1, 1)), "scale-form")
    assert_untouched(by_constant("Div", (6, 1, 1), first=True), "scale-form")
    assert_untouched(by_constant("Sub", (1,), first=True, shape=(2, 6)), "scale-form")
    assert_untouched(net([node("Sub", "x z", "y")], {"x": SHAPE, "z": SHAPE}, ["y"]), "scale-form")


@settings(max_examples=tries(25), derandomize=True)
@given(
    op=st.sampled_from(["Add", "Mul", "Sub", "Div", "Sum"]),
    first=st.booleans(),
    sizes=st.tuples(st.integers(1, 2), *[st.integers(1, 4)] * 3),
    full=st.tuples(*[st.booleans()] * 4),
    rank=st.integers(0, 4),
)
def test_constants_of_any_form(op, first, sizes, full, rank):
    part = tuple(s if k else 1 for s, k in zip(sizes, full, strict=True))[4 - rank :]
    model = by_constant(op, part, first and op != "Div", sizes)
    after = rewritten(model, "scale-form")
    assert_same(model, after)
    assert refused(after) == []


NORM = {
    "g": np.abs(weight(6, seed=3)) + 1,
    "b": weight(6, seed=4),
    "m": weight(6, seed=5),
    "v": np.abs(weight(6, seed=6)) + 1,
}


def chain_net(*nodes, outputs=("y",), seed=0):
    weights = {
        "k": np.abs(weight(1, 6, 1, 1, seed=seed)) + 0.5,
        "c": np.float32(1.5 + seed),
        "d": weight(6, 1, 1, seed=2 + seed),
        **NORM,
    }
    used = {k: v for k, v in weights.items() if any(k in n.input for n in nodes)}
    return net(list(nodes), {"x": SHAPE}, list(outputs), used)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Mul", "x k", "p"), node("Add", "p d", "y")],
        [node("Sub", "x d", "p"), node("Div", "p k", "y")],
        [node("Add", "c x", "p"), node("Mul", "p k", "q"), node("Sub", "d q", "y")],
        [node("BatchNormalization", "x g b m v", "p"), node("Mul", "p k", "y")],
        [node("Neg", "x", "p"), node("BatchNormalization", "p g b m v", "y", epsilon=0.01)],
        [node("Sub", "c x", "p"), node("Neg", "p", "q"), node("Div", "q c", "y")],
    ],
)
def test_scales_in_a_row_are_one(nodes):
    after = assert_rewrites(chain_net(*nodes), "scale-chain")
    assert ops(after) == ["BatchNormalization"]
    assert scale_layers(after)


def test_a_long_row_comes_to_one_end():
    nodes, source = [], "x"
    for index in range(19):
        target = "y" if index == 18 else f"t{index}"
        nodes.append(node("Mul" if index % 2 else "Add", [source, "c"], [target]))
        source = target
    assert ops(rewritten(chain_net(*nodes), "scale-chain")) == ["BatchNormalization"]


def test_a_scale_that_others_read_ends_the_row():
    nodes = [node("Mul", "x k", "p"), node("Add", "p d", "y")]
    assert_untouched(chain_net(*nodes, outputs=["y", "p"]), "scale-chain")
    element = net(
        [node("Mul", "x k", "p"), node("Add", "p d", "y")],
        {"x": SHAPE},
        ["y"],
        {"k": weight(*SHAPE), "d": weight(6, 1, 1)},
    )
    assert_untouched(element, "scale-chain")


def test_negation():
    after = assert_rewrites(net([node("Neg", "x", "y")], {"x": SHAPE}, ["y"]), "neg")
    assert ops(after) == ["BatchNormalization"]
    assert scale_layers(after)
    assert_untouched(net([node("Neg", "x", "y")], {"x": (2, 6)}, ["y"]), "neg")
