"""HardSigmoid, HardSwish and sigmoids in the forms in which exporters write them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries

SHAPE = (1, 6, 3, 4)
SCALARS = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}
SHIFT = [node("Add", "x three", "a"), node("Clip", "a zero six", "c")]


def on_dla(model):
    for board in ("jetson-agx-orin-64gb", "jetson-agx-xavier"):
        assert refused(model, board) == []


@settings(max_examples=tries(25), derandomize=True)
@given(
    alpha=st.floats(-2, 2, width=32),
    beta=st.floats(-2, 2, width=32),
    channels=st.integers(1, 5),
    batch=st.integers(1, 2),
)
def test_hard_sigmoid(alpha, beta, channels, batch):
    model = net(
        [node("HardSigmoid", "x", "y", alpha=alpha, beta=beta)],
        {"x": (batch, channels, 3, 2)},
        ["y"],
    )
    after = assert_rewrites(model, "hard-sigmoid")
    assert ops(after) == ["BatchNormalization", "Clip"]
    on_dla(after)


def test_defaults_and_names():
    model = net([node("HardSigmoid", "x", "y", name="gate")], {"x": SHAPE}, ["y"])
    after = assert_rewrites(model, "hard-sigmoid")
    assert after.proto.graph.node[1].name == "gate"
    assert_untouched(net([node("HardSigmoid", "x", "y")], {"x": (1, 6)}, ["y"]), "hard-sigmoid")


def test_hard_sigmoid_times_x():
    model = net(
        [node("HardSigmoid", "x", "h", alpha=1 / 6), node("Mul", "x h", "y")], {"x": SHAPE}, ["y"]
    )
    after = assert_rewrites(model, "hard-sigmoid", "hard-swish")
    assert ops(after) == ["BatchNormalization", "Clip", "Mul"]
    on_dla(after)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([*SHIFT, node("Div", "c six", "y")], ["y", "a"]),
        ([*SHIFT, node("Div", "c six", "y")], ["y", "c"]),
        ([*SHIFT, node("Mul", "c z", "y")], ["y"]),
        ([node("Clip", "x zero six", "c"), node("Div", "c six", "y")], ["y"]),
        ([*SHIFT, node("Div", "c three", "d"), node("Div", "d three", "y")], ["y"]),
        ([*SHIFT, node("Mul", "x c", "y")], ["y"]),
    ],
)
def test_other_clips_stay(nodes, outputs):
    inputs = {"x": SHAPE, "z": SHAPE} if any("z" in n.input for n in nodes) else {"x": SHAPE}
    used = {k: v for k, v in SCALARS.items() if any(k in n.input for n in nodes)}
    model = net(nodes, inputs, outputs, used)
    if [n.op_type for n in nodes][-2:] == ["Div", "Div"]:
        # the second factor is a scale of its own
        assert ops(assert_rewrites(model, "hard-swish"))[:2] == ["BatchNormalization", "Clip"]
    else:
        assert_untouched(model, "hard-swish")
