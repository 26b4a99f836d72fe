"""Functions in terms of others: Mish, Elu, powers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.knowledge import data_folder, read_knowledge
from edgekit.network.session import session
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    rewritten,
)
from tests.tries import tries

SHAPE = (1, 6, 3, 4)
WIDE = (1, 1, 1, 20001)


def one(op, opset=18, shape=SHAPE, **attrs):
    return net([node(op, "x", "y", **attrs)], {"x": shape}, ["y"], opset=opset)


def largest_difference(model, item):
    """Between a function and what it becomes, from -60 to 60 in FP32."""
    x = np.linspace(-60, 60, WIDE[-1], dtype=np.float32).reshape(WIDE)
    old, new = (session(m).run(None, {"x": x})[0] for m in (model, rewritten(model, item)))
    return np.abs(old - new).max()


def test_mish_in_both_forms():
    for model in (
        one("Mish"),
        net(
            [node("Softplus", "x", "s"), node("Tanh", "s", "t"), node("Mul", "t x", "y")],
            {"x": SHAPE},
            ["y"],
        ),
    ):
        assert refused(model) != []
        after = assert_rewrites(model, "mish", gone=["Mish", "Softplus", "Tanh"])
        assert len(ops(after)) == 6
        # TensorRT 10.3 divides on the DLA, in INT8
        assert refused(after, precision="int8") == []
    assert largest_difference(one("Mish", shape=WIDE), "mish") <= 1e-5


def test_other_uses_of_softplus_stay():
    parts = [node("Softplus", "x", "s"), node("Tanh", "s", "t")]
    for end, outputs in (("t x", ["y", "s"]), ("t z", ["y"])):
        inputs = {"x": SHAPE, "z": SHAPE} if "z" in end else {"x": SHAPE}
        assert_untouched(net([*parts, node("Mul", end, "y")], inputs, outputs), "mish")


@settings(max_examples=tries(25), derandomize=True)
@given(
    op=st.sampled_from(["Elu", "Celu", "Selu"]),
    alpha=st.floats(0.25, 4, width=32),
    gamma=st.floats(0.5, 2, width=32),
    channels=st.integers(1, 5),
)
def test_exponential_units(op, alpha, gamma, channels):
    attrs = {"alpha": alpha, "gamma": gamma} if op == "Selu" else {"alpha": alpha}
    after = assert_rewrites(one(op, shape=(1, channels, 2, 2), **attrs), "elu", gone=[op])
    assert refused(after, precision="int8") == []


@pytest.mark.parametrize("op", ["Elu", "Celu", "Selu"])
def test_exponential_units_far_from_zero(op):
    assert largest_difference(one(op, shape=WIDE), "elu") <= 1e-5
    assert_untouched(one(op, shape=(2, 6)), "elu")


def without():
    """Operators without an exact form, each with the reason."""
    return read_knowledge(data_folder("dla") / "reconstruction.yaml")["without"]
