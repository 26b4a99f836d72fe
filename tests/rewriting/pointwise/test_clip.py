"""Bounds: Clip, Max and Min with constants, leaky ReLU forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.rules.operands import LARGEST_FP16
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    net,
    node,
    ops,
    rewrite_step,
    rewritten,
)
from tests.tries import tries

SHAPE = (1, 6, 3, 4)


def clip_net(low, high, shape=SHAPE, read="x lo hi"):
    weights = {"lo": np.float32(low or 0), "hi": np.float32(high or 0)}
    inputs = ["x", "" if low is None else "lo", "" if high is None else "hi"]
    used = {k: v for k, v in weights.items() if k in inputs}
    while not inputs[-1]:
        inputs.pop()
    return net([node("Clip", inputs, "y")], {"x": shape}, ["y"], used)


def on_dla(model):
    for board in ("jetson-agx-orin-64gb", "jetson-agx-xavier"):
        assert refused(model, board) == []


@pytest.mark.parametrize(
    ("low", "high", "count"),
    [
        (-1, 1, 3),
        (0, 0.5, 3),
        (0, 1000, 3),
        (0, None, 1),
        (-0.25, 0.25, 3),
        (2, 5, 3),
        (None, 1, 3),
        (None, 0, 3),
        (0.5, None, 3),
        (None, -3, 3),
        (-20, 20, 4),
        (-10000, 10000, 6),
        (-10000, 5000, 7),
        (-10000, None, 5),
        (None, 500, 6),
    ],
)
def test_any_clip_becomes_a_clipped_relu(low, high, count):
    after = assert_rewrites(clip_net(low, high), "clip")
    assert len(ops(after)) == count
    assert set(ops(after)) <= {"BatchNormalization", "Clip", "Relu", "Sub"}
    on_dla(after)


def test_far_bounds_keep_what_is_near_zero_in_half_precision():
    after = rewritten(clip_net(-10000, 10000), "clip")
    # shifted by 10000, FP16 would have steps of 8 there
    shifts = [w for n, w in after.weights.items() if n.endswith(":shift")]
    assert all((np.asarray(w) == 0).all() for w in shifts)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 6), (0, 127), (None, None), (1000, 1001)])
def test_what_the_dla_has_and_what_would_cancel_stays(low, high):
    if low is None:
        model = net([node("Clip", "x", "y")], {"x": SHAPE}, ["y"])
    else:
        model = clip_net(low, high)
    assert_untouched(model, "clip")


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1e-5),
        (0, 6e-8),
        (-1e-5, 1e-5),
        (-3e6, 3e6),
        (-1e9, 1e9),
        (0, 1e9),
        (None, 1e9),
        (-1e-6, 9),
        (0, 3e6),
    ],
)
def test_factors_that_fp16_cannot_hold_are_not_written(low, high, kind):
    if kind is np.float16 and high > LARGEST_FP16 and low == 0:
        # in FP16 it is none, so the other one is all there is
        return
    bounds = {"lo": low, "hi": high}
    used = {
        k: np.clip(
            np.float64(v),
            -LARGEST_FP16 if kind is np.float16 else None,
            LARGEST_FP16 if kind is np.float16 else None,
        ).astype(kind)
        for k, v in bounds.items()
        if v is not None
    }
    inputs = ["x", "lo" if low is not None else "", "hi"]
    elem = 10 if kind is np.float16 else 1
    model = net([node("Clip", inputs, "y")], {"x": (SHAPE, elem)}, {"y": elem}, used)
    assert_untouched(model, "clip")


@settings(max_examples=tries(25), derandomize=True)
@given(
    low=st.one_of(st.none(), st.just(0.0), st.floats(-1e7, 1e7, width=32)),
    exponent=st.floats(-8, 8),
)
def test_what_is_written_fp16_can_hold(low, exponent):
    high = np.float32((low or 0) + 10**exponent)
    graph = RewriteGraph(clip_net(low, high, shape=(1, 1, 2, 2)))
    step = rewrite_step(graph, "clip", next(graph.nodes()))
    for item in step.fixed if step else ():
        size = np.abs(item.value)
        own = np.isin(np.float32(size), np.abs(np.float32([low or 0, high])))
        assert ((size == 0) | own | ((size >= 2**-14) & (size <= 65504))).all()


def test_other_ranks_computed_bounds_and_whole_numbers_stay():
    assert_untouched(clip_net(-1, 1, shape=(1, 6)), "clip")
    bounds = [node("ReduceMax", "z", "lo", keepdims=0), node("Clip", ["x", "lo"], "y")]
    assert_untouched(net(bounds, {"x": SHAPE, "z": SHAPE}, ["y"]), "clip")
    integers = net(
        [node("Cast", "x", "i", to=7), node("Clip", "i lo hi", "c"), node("Cast", "c", "y", to=1)],
        {"x": SHAPE},
        ["y"],
        {"lo": -1, "hi": 1},
    )
    assert_untouched(integers, "clip")


@settings(max_examples=tries(25), derandomize=True)
@given(
    low=st.one_of(st.none(), st.floats(-300, 300, width=32)),
    high=st.one_of(st.none(), st.floats(-300, 300, width=32)),
    channels=st.integers(1, 5),
)
def test_clips_of_any_bounds(low, high, channels):
    if low is None and high is None:
        return
    model = clip_net(low, high, shape=(1, channels, 2, 3))
    after = rewritten(model, "clip")
    assert_same(model, after)
    if ops(after) != ["Clip"]:
        on_dla(after)
