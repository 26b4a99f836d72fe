"""Selections as products."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.network.session import session
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    node,
    ops,
    rewritten,
    weight,
)
from tests.rewriting.pointwise.truths import SHAPE, compared, truth_net
from tests.tries import tries

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
    after = assert_rewrites(model, "where", gone=["Where"])
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
    after = assert_rewrites(model, "where", "broadcast-operand", gone=["Where"])
    assert len(refused(after)) == 2


@settings(max_examples=tries(20), derandomize=True)
@given(
    full=st.tuples(*[st.booleans()] * 4),
    rank=st.integers(0, 4),
    yes=st.sampled_from(["x", "seven", "channel"]),
    no=st.sampled_from(["w", "zero", "masked", "whole"]),
)
def test_known_conditions(full, rank, yes, no):
    part = tuple(s if k else 1 for s, k in zip(SHAPE, full, strict=True))[4 - rank :]
    used = {k: v for k, v in BRANCHES.items() if k in (yes, no)}
    mask = np.random.default_rng(1).random(part) < 0.5
    where = node("Where", ["c", yes, no], ["y"])
    model = truth_net(where, weights={**used, "c": np.asarray(mask)})
    if not {yes, no} & {"x", "w"}:
        return
    if len({yes, no} & {"x", "w"}) == 1 and yes == "seven" and no == "zero":
        return
    after = rewritten(model, "where")
    assert_same(model, after)
    assert "Where" not in ops(after)
    assert refused(after) == []


def test_what_half_precision_cannot_hold_stays():
    for value in (-np.inf, -3e38, np.nan):
        model = truth_net(*CONDITION, node("Where", "c x v", "y"), weights={"v": np.float32(value)})
        assert_untouched(model, "where")
    wide = truth_net(*CONDITION, node("Where", "c p x", "y"), shapes={"p": (1, 1, 4, 5)})
    flat = {"x": (4, 5), "z": (4, 5), "w": (4, 5)}
    low = truth_net(*CONDITION, node("Where", "c x w", "y"), shapes=flat)
    for model in (wide, low):
        assert_untouched(model, "where")


def test_masked_values_stay_exact():
    model = truth_net(
        *CONDITION, node("Where", "c x masked", "y"), weights={"masked": BRANCHES["masked"]}
    )
    random = np.random.default_rng(0)
    feed = {n: random.standard_normal(SHAPE).astype(np.float32) for n in ("x", "z")}
    old, new = (session(m).run(None, feed)[0] for m in (model, rewritten(model, "where")))
    # nothing of the full values is lost to the large one
    assert (old == new).all()


@pytest.mark.parametrize("masked", [-np.inf, np.nan, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("condition", ["given", "computed"])
def test_arrays_that_fp16_cannot_hold_stay(condition, masked):
    # 0 times minus infinity, as of a causal mask, is no number
    causal = np.where(np.triu(np.ones((1, 1, 4, 5))), masked, 0.0).astype(np.float32)
    used = {"mask": causal}
    given_ = [] if condition == "given" else CONDITION
    if condition == "given":
        used["c"] = np.tril(np.ones((1, 1, 4, 5), bool))
    model = truth_net(*given_, node("Where", ["c", "x", "mask"], ["y"]), weights=used)
    assert_untouched(model, "where")
    used["mask"] = np.clip(np.nan_to_num(causal), -1e4, 1e4)
    allowed = truth_net(*given_, node("Where", ["c", "x", "mask"], ["y"]), weights=used)
    assert_rewrites(allowed, "where", gone=["Where"])
