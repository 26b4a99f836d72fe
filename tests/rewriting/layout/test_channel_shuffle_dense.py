"""Channel shuffles between grouped convolutions: one of those takes them in its weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.placement.forecast import forecast
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    weight,
)
from tests.rewriting.zoo import ZOO
from tests.tries import tries

BOTH = ("channel-shuffle", "channel-shuffle-dense")


def block(groups=2, part=3, wide=(2, 2), side=5, middle=(), readers=1, extra=(), seed=0):
    """Grouped Conv, ``middle`` ("c" to "m"), shuffle, and grouped convolutions behind it."""
    channels = groups * part
    before, after = (groups * size for size in wide)
    source = "m" if middle else "c"
    nodes = [
        node("Conv", "x w b", "c", "first", group=groups),
        *middle,
        node("Reshape", f"{source} s1", "a"),
        node("Transpose", "a", "t", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "t s2", "s"),
        *(node("Conv", "s v", f"y{i}", f"last{i}", group=groups) for i in range(readers)),
    ]
    weights = {
        "w": weight(channels, before // groups, 1, 1, seed=seed),
        "b": weight(channels, seed=1),
        "v": weight(after, part, 1, 1, seed=seed + 2),
        "scale": weight(channels, seed=3),
        "shift": weight(channels, seed=4),
        "mean": weight(channels, seed=5),
        "var": np.abs(weight(channels, seed=6)) + 0.5,
        "dw": weight(channels, 1, 3, 3, seed=7),
        "s1": [1, groups, part, side, side],
        "s2": [1, channels, side, side],
    }
    used = {name for item in nodes for name in item.input}
    outputs = [*(f"y{i}" for i in range(readers)), *extra]
    used_weights = {k: v for k, v in weights.items() if k in used}
    return net(nodes, {"x": (1, before, side, side)}, outputs, used_weights)


def groups_of(model):
    return [
        next((a.i for a in item.attribute if a.name == "group"), 1)
        for item in model.proto.graph.node
        if item.op_type == "Conv"
    ]


def test_the_shuffle_is_gone_and_the_cheaper_neighbour_is_dense():
    after = assert_rewrites(block(wide=(2, 5)), *BOTH)
    assert ops(after) == ["Conv", "Conv"]
    assert groups_of(after) == [1, 2]
    assert not refused(after)
    after = assert_rewrites(block(wide=(5, 2)), *BOTH)
    assert groups_of(after) == [2, 1]
    assert [item.name for item in after.proto.graph.node] == ["first", "last0"]


@settings(max_examples=tries(20))
@given(
    groups=st.integers(2, 4),
    part=st.integers(2, 4),
    wide=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    readers=st.integers(1, 2),
)
def test_any_number_of_groups(groups, part, wide, readers):
    model = block(groups, part, wide, side=2, readers=readers)
    assert ops(assert_rewrites(model, *BOTH)) == ["Conv"] * (1 + readers)


def test_others_keep_the_permutation():
    # both the source and the result are needed elsewhere
    model = block(extra=("c", "s"))
    unchanged = assert_rewrites(model, *BOTH)
    assert groups_of(unchanged) == [2, 1, 2]
    assert_untouched(unchanged, "channel-shuffle-dense")
    # a permutation that the model itself stores may change with its weights
    eye = np.eye(4)[[2, 0, 3, 1]].reshape(4, 4, 1, 1)
    nodes = [node("Conv", "x p", "c"), node("Conv", "c v", "y", group=2)]
    stored = net(nodes, {"x": (1, 4, 3, 3)}, ["y"], {"p": eye, "v": weight(4, 2, 1, 1)})
    assert_untouched(stored, "channel-shuffle-dense")


@pytest.mark.parametrize("board", ["jetson-agx-orin-64gb", "jetson-agx-xavier"])
def test_a_shufflenet_unit_is_faster_than_with_the_permutation(board):
    before, target = ZOO["shufflenet-v1-unit"].make(), get(board)
    times = []
    for disable in ([], ["channel-shuffle-dense"]):
        after, applied, *_ = rewrite(
            before,
            target,
            precision="fp16",
            disable=disable,
            cost=lambda network, judgement: forecast(network, judgement, target),
        )
        assert ("channel-shuffle-dense" in {item.rewrite for item in applied}) != bool(disable)
        network = layers(after)
        times.append(forecast(network, judge(network, target, precision="fp16"), target))
    assert times[0].auto_us < times[1].auto_us
    assert times[0].gpu_only_us < times[1].gpu_only_us
