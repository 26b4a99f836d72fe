"""Approximate rewrites deviate by what they say."""

import numpy as np
import pytest

from edgekit.network.session import session
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_untouched,
    net,
    node,
    rewrite_of,
    rewrites_of,
    rewritten,
)

REWRITES = rewrites_of("activations", "clips", "arithmetic")

WIDE = (1, 1, 1, 20001)
SMALL = (1, 6, 3, 4)
SILU = [node("Sigmoid", "x", "s"), node("Mul", "s x", "y")]
CASES = [
    ("approx-sigmoid-hard-sigmoid", 0.0692, [node("Sigmoid", "x", "y")], 13),
]


@pytest.mark.parametrize(("item", "most", "nodes", "opset"), CASES)
def test_deviation(item, most, nodes, opset):
    model = net(nodes, {"x": WIDE}, ["y"], opset=opset)
    after = rewritten(model, item, proved=False)
    x = np.linspace(-30, 30, WIDE[-1], dtype=np.float32).reshape(WIDE)
    old, new = (session(m).run(None, {"x": x})[0] for m in (model, after))
    assert 0.97 * most < np.abs(old - new).max() <= most
    item = rewrite_of(item)
    assert item.deviation == most
    assert str(most) in item.reason
    assert str(most) in item.at.__doc__


@pytest.mark.parametrize(("item", "most", "nodes", "opset"), CASES)
def test_the_dla_takes_the_result(item, most, nodes, opset):
    after = rewritten(net(nodes, {"x": SMALL}, ["y"], opset=opset), item, proved=False)
    for board in ("jetson-agx-orin-64gb", "jetson-agx-xavier"):
        assert refused(after, board) == []


def test_two_dimensions_stay():
    flat = net([node("Sigmoid", "x", "y")], {"x": (2, 6)}, ["y"])
    assert_untouched(flat, "approx-sigmoid-hard-sigmoid")


def test_exact_rewrites_leave_the_approximate_ones_alone():
    exact = [item for item in REWRITES if not item.name.startswith("approx-")]
    for nodes, opset in (
        (SILU, 13),
        ([node("Sigmoid", "x", "y")], 13),
        ([node("Gelu", "x", "y")], 20),
    ):
        assert_untouched(net(nodes, {"x": SMALL}, ["y"], opset=opset), *exact)
