"""Truth values as numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edgekit.network import layers, session
from edgekit.rewrite.pointwise._broadcast_operand import BroadcastOperand
from edgekit.rewrite.pointwise._compare_constant import CompareConstant
from edgekit.rewrite.pointwise._logic import Logic
from edgekit.rewrite.pointwise._relu_form import ReluForm
from edgekit.rewrite.pointwise._where import Where
from tests.rewrite.boards import refused
from tests.rewrite.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    net,
    node,
    ops,
    rewritten,
    weight,
)

SHAPE = (1, 3, 4, 5)
LOGIC = ["And", "Or", "Xor", "Not", "Where", "GreaterOrEqual", "LessOrEqual"]
BOOL = TensorProto.BOOL


def compared(name, op="Greater", left="x", right="z"):
    return node(op, [left, right], [name])


def truth_net(*nodes, outputs=("y",), shapes=None, weights=None, opset=16):
    inputs = {"x": SHAPE, "z": SHAPE, "w": SHAPE, **(shapes or {})}
    used = {k: s for k, s in inputs.items() if any(k in n.input for n in nodes)}
    ends = outputs if isinstance(outputs, dict) else list(outputs)
    return net(list(nodes), used, ends, weights, opset)


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
    after = assert_rewrites(model, Logic(), gone=LOGIC)
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
            after = assert_rewrites(model, Logic(), gone=LOGIC)
            kinds = refused(after)
            assert sorted(kinds) == ["CAST", "ELEMENTWISE"]


def test_what_the_graph_returns_is_cast_at_its_end():
    model = truth_net(
        compared("a"), compared("b", "Less", "x", "w"), node("And", "a b", "y"), outputs={"y": BOOL}
    )
    after = assert_rewrites(model, Logic(), gone=LOGIC)
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
    assert_rewrites(model, Logic(), gone=LOGIC)
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
    assert_rewrites(twice, Where(), Logic(), gone=LOGIC)
    assert_rewrites(twice, Logic(), Where(), gone=LOGIC)


def test_plain_comparisons_and_other_ranks_stay():
    assert_untouched(truth_net(compared("m"), node("Cast", "m", "y", to=1)), Logic())
    flat = {"x": (4, 5), "z": (4, 5)}
    ends = [node("Not", "a", "m"), node("Cast", "m", "y", to=1)]
    assert_untouched(truth_net(compared("a"), *ends, shapes=flat), Logic())
    integer = truth_net(compared("a"), node("Not", "a", "m"), node("Cast", "m", "y", to=7),
                        outputs={"y": TensorProto.INT64})  # fmt: skip
    assert_untouched(integer, Logic())


CONDITION = [compared("c")]
BRANCHES = {
    "zero": np.float32(0),
    "masked": np.float32(-1e4),
    "seven": np.float32(7),
    "channel": weight(3, 1, 1),
    "whole": weight(1, 3, 4, 5),
    "row": weight(5),
}


@pytest.mark.parametrize(
    ("yes", "no", "layers"),
    [
        ("x", "w", 4),
        ("x", "zero", 1),
        ("zero", "x", 2),
        ("x", "masked", 3),
        ("seven", "x", 4),
        ("seven", "masked", 1),
        ("x", "channel", 4),
        ("row", "x", 4),
        ("whole", "zero", 1),
        ("whole", "channel", 4),
    ],
)
def test_selection(yes, no, layers):
    used = {k: v for k, v in BRANCHES.items() if k in (yes, no)}
    model = truth_net(*CONDITION, node("Where", ["c", yes, no], ["y"]), weights=used)
    after = assert_rewrites(model, Where(), gone=["Where"])
    assert len(ops(after)) == layers + 2
    assert set(refused(after)) <= {"ELEMENTWISE", "CAST"}
    assert len(refused(after)) == 2
    assert refused(after, precision="int8") == refused(
        truth_net(*CONDITION, node("Cast", "c", "y", to=1)), precision="int8"
    )


@pytest.mark.parametrize("shape", [(1, 1, 4, 5), (1, 3, 1, 1), (1, 1, 1, 1), (1, 1, 1, 5)])
@pytest.mark.parametrize("branches", ["x w", "x masked", "channel masked", "whole x"])
def test_small_conditions(shape, branches):
    used = {k: v for k, v in BRANCHES.items() if k in branches.split()}
    model = truth_net(
        node("Greater", "p q", "c"),
        node("Where", f"c {branches}", "s"),
        node("Add", "s x", "y"),
        shapes={"p": shape, "q": shape},
        weights=used,
    )
    after = assert_rewrites(model, Where(), BroadcastOperand(), gone=["Where"])
    assert len(refused(after)) == 2


def test_conditions_of_logic_go_along():
    model = truth_net(
        compared("a"),
        compared("b", "GreaterOrEqual", "x", "w"),
        node("And", "a b", "o"),
        node("Not", "o", "c"),
        node("Where", "c x zero", "y"),
        weights={"zero": np.float32(0)},
    )
    assert_rewrites(model, Where(), gone=LOGIC)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    kept=st.tuples(*[st.booleans()] * 4),
    rank=st.integers(0, 4),
    yes=st.sampled_from(["x", "seven", "channel"]),
    no=st.sampled_from(["w", "zero", "masked", "whole"]),
)
def test_known_conditions(kept, rank, yes, no):
    part = tuple(s if k else 1 for s, k in zip(SHAPE, kept, strict=True))[4 - rank :]
    used = {k: v for k, v in BRANCHES.items() if k in (yes, no)}
    mask = np.random.default_rng(1).random(part) < 0.5
    where = node("Where", ["c", yes, no], ["y"])
    model = truth_net(where, weights={**used, "c": np.asarray(mask)})
    if not {yes, no} & {"x", "w"}:
        return
    if len({yes, no} & {"x", "w"}) == 1 and yes == "seven" and no == "zero":
        return
    after = rewritten(model, Where())
    assert_same(model, after)
    assert "Where" not in ops(after)
    assert refused(after) == []


def test_masks_come_from_the_weights_of_a_refit():
    made = []
    for seed in (1, 2):
        mask = np.random.default_rng(seed).random((1, 1, 4, 5)) < 0.5
        model = truth_net(
            node("Where", "c x zero", "y"), weights={"c": mask, "zero": np.float32(0)}
        )
        made.append(rewritten(model, Where()).weights)
    assert set(made[0]) == set(made[1])
    assert any((np.asarray(made[0][n]) != np.asarray(made[1][n])).any() for n in made[0])


def test_what_half_precision_cannot_hold_stays():
    for value in (-np.inf, -3e38, np.nan):
        model = truth_net(*CONDITION, node("Where", "c x v", "y"), weights={"v": np.float32(value)})
        assert_untouched(model, Where())
    wide = truth_net(*CONDITION, node("Where", "c p x", "y"), shapes={"p": (1, 1, 4, 5)})
    flat = {"x": (4, 5), "z": (4, 5), "w": (4, 5)}
    low = truth_net(*CONDITION, node("Where", "c x w", "y"), shapes=flat)
    for model in (wide, low):
        assert_untouched(model, Where())


def test_masked_values_stay_exact():
    model = truth_net(
        *CONDITION, node("Where", "c x masked", "y"), weights={"masked": BRANCHES["masked"]}
    )
    random = np.random.default_rng(0)
    feed = {n: random.standard_normal(SHAPE).astype(np.float32) for n in ("x", "z")}
    old, new = (session(m).run(None, feed)[0] for m in (model, rewritten(model, Where())))
    # nothing of the kept values is lost to the large one
    assert (old == new).all()


@pytest.mark.parametrize("op", ["Equal", "Greater", "Less"])
@pytest.mark.parametrize("part", [(), (3, 1, 1)])
@pytest.mark.parametrize("order", ["x k", "k x"])
def test_comparisons_with_constants(op, part, order):
    model = truth_net(
        node(op, order, "c"), node("Cast", "c", "y", to=1), weights={"k": weight(*part)}
    )
    after = assert_rewrites(model, CompareConstant())
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
        assert_untouched(model, CompareConstant())


SIGNS = ["Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


@settings(max_examples=20, deadline=None, derandomize=True)
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
    after = assert_rewrites(truth_net(*nodes, weights=weights), ReluForm())
    assert ops(after) == ["LeakyRelu" if slope else "Relu"]
    assert refused(after, "jetson-agx-xavier") == []


def test_other_selections_are_no_relu():
    numbers = {"zero": np.float32(0), "one": np.float32(1), "a": np.float32(0.5)}
    for first, second in (
        (node("Greater", "x one", "c"), node("Where", "c x zero", "y")),
        (node("Greater", "x zero", "c"), node("Where", "c zero x", "y")),
        (node("Greater", "x zero", "c"), node("Where", "c x one", "y")),
        (node("Greater", "x zero", "c"), node("Where", "c w zero", "y")),
    ):
        used = {k: v for k, v in numbers.items() if k in (*first.input, *second.input)}
        assert_untouched(truth_net(first, second, weights=used), ReluForm())
