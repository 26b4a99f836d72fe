"""1 / (1 + exp(-x)) beside other rewrites, with shared parts, and reciprocals that overflow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.network.session import session
from edgekit.placement.forecast import forecast
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_same, net, node, ops, weight
from tests.tries import tries

SHAPE = (1, 6, 3, 4)
ONES = {"one": np.float32(1), "minus": np.float32(-1)}
ENDS = [node("Exp", "n", "e"), node("Add", "e one", "o")]
ORIN = get("jetson-agx-orin-64gb")


def form(*nodes, outputs=("y",), **weights):
    known = {**ONES, **weights}
    used = {k: v for k, v in known.items() if any(k in n.input for n in nodes)}
    return net(nodes, {"x": SHAPE}, list(outputs), used)


def by_engine(model):
    after, _, notes, *_ = rewrite(
        model,
        ORIN,
        precision="fp16",
        cost=lambda network, verdicts: forecast(network, verdicts, ORIN),
    )
    assert notes == ()
    assert_same(model, after)
    return ops(after)


@pytest.mark.parametrize("turn", [node("Neg", "c", "n"), node("Mul", "c minus", "n")])
@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (node("Reciprocal", "o", "y"), ["Conv", "Sigmoid"]),
        (node("Div", "one o", "y"), ["Conv", "Sigmoid"]),
        (node("Div", "c o", "y"), ["Conv", "Sigmoid", "Mul"]),
    ],
)
def test_the_engine_takes_the_whole_form_before_its_parts(turn, last, expected):
    model = form(node("Conv", "x w", "c"), turn, *ENDS, last, w=weight(6, 6, 1, 1))
    assert by_engine(model) == expected


def test_a_transposition_within_the_form():
    nodes = [
        node("Conv", "x w", "c"), node("Transpose", "c", "t", perm=[0, 3, 1, 2]),
        node("Neg", "t", "n"), *ENDS, node("Reciprocal", "o", "y"),
    ]  # fmt: skip
    made = by_engine(form(*nodes, w=weight(6, 6, 1, 1)))
    assert "Sigmoid" in made
    assert not {"Exp", "Div", "Reciprocal"} & set(made)


@pytest.mark.parametrize("turn", [node("Neg", "x", "n"), node("Mul", "x minus", "n")])
@pytest.mark.parametrize("last", [node("Div", "x o", "y"), node("Div", "one o", "y")])
def test_a_negation_that_others_need_stays(turn, last):
    after = assert_rewrites(form(turn, *ENDS, last, outputs=("y", "n")), "sigmoid-form")
    assert ops(after)[:2] == [turn.op_type, "Sigmoid"]


def test_a_negation_that_is_a_scale_already():
    model = form(node("Neg", "x", "n"), *ENDS, node("Div", "x o", "y"), outputs=("y", "n"))
    after = assert_rewrites(model, "neg", "sigmoid-form")
    assert ops(after) == ["BatchNormalization", "Sigmoid", "Mul"]


def test_without_a_negation_it_is_the_sigmoid_of_the_negative():
    model = form(node("Exp", "x", "e"), node("Add", "one e", "o"), node("Div", "one o", "y"))
    after = assert_rewrites(model, "sigmoid-form", "neg")
    assert ops(after) == ["BatchNormalization", "Sigmoid"]
    assert refused(after) == []


@settings(max_examples=tries(10), derandomize=True)
@given(numerator=st.floats(-9, 9, width=32), big=st.sampled_from([100.0, 1e38, np.inf]))
def test_a_denominator_that_overflows_makes_no_nan(numerator, big):
    ends = [node("Exp", "x", "e"), node("Add", "e one", "o"), node("Div", "c o", "y")]
    model = form(*ends, c=np.float32(numerator))
    after = assert_rewrites(model, "reciprocal")
    x = np.full(SHAPE, big, np.float32)
    old, new = (session(m, optimise=False, threads=1).run(None, {"x": x}) for m in (model, after))
    assert (old[0] == 0).all()
    assert (new[0] == 0).all()
