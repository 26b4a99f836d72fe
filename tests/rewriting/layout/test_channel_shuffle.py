"""Channel shuffles: as a convolution, and folded into the weights of a neighbour."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    weight,
)
from tests.tries import tries


def shuffle(source, output, middle, perm, result, prefix="s"):
    """Reshape, Transpose, Reshape, and the weights that they need."""
    a, b = f"{prefix}_a", f"{prefix}_b"
    nodes = [
        node("Reshape", [source, f"{a}_shape"], [a]),
        node("Transpose", [a], [b], perm=list(perm)),
        node("Reshape", [b, f"{b}_shape"], [output]),
    ]
    return nodes, {f"{a}_shape": np.array(middle), f"{b}_shape": np.array(result)}


def test_a_permutation_within_groups_is_a_grouped_convolution():
    nodes, fixed = shuffle("x", "y", (1, 2, 2, 3, 4, 4), (0, 1, 3, 2, 4, 5), (1, 12, 4, 4))
    after = assert_rewrites(net(nodes, {"x": (1, 12, 4, 4)}, ["y"], fixed), "channel-shuffle")
    (made,) = after.proto.graph.node
    assert [a.i for a in made.attribute if a.name == "group"] == [2]


@settings(max_examples=tries(25))
@given(
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    data=st.data(),
    batch=st.integers(1, 2),
    side=st.integers(1, 3),
)
def test_any_regrouping_of_channels(sizes, data, batch, side):
    order = data.draw(st.permutations(range(1, len(sizes) + 1)))
    channels = int(np.prod(sizes))
    rank = len(sizes)
    nodes, fixed = shuffle(
        "x",
        "y",
        (batch, *sizes, side, 2),
        (0, *order, rank + 1, rank + 2),
        (batch, channels, side, 2),
    )
    model = net(nodes, {"x": (batch, channels, side, 2)}, ["y"], fixed)
    moved = np.arange(channels).reshape(sizes).transpose([d - 1 for d in order]).ravel()
    if (moved == np.arange(channels)).all():
        assert_untouched(model, "channel-shuffle")
    else:
        assert "Transpose" not in ops(assert_rewrites(model, "channel-shuffle"))


@pytest.mark.parametrize(
    ("middle", "perm", "result"),
    [
        ((1, 3, 4, 5, 5), (0, 1, 2, 4, 3), (1, 12, 5, 5)),  # turns H and W
        ((1, 12, 5, 5), (0, 2, 3, 1), (1, 12, 5, 5)),  # mixes C with H and W
        ((1, 6, 50, 1), (0, 2, 1, 3), (1, 12, 5, 5)),  # parts that do not divide C and H
    ],
)
def test_what_moves_more_than_channels_stays(middle, perm, result):
    nodes, fixed = shuffle("x", "y", middle, perm, result)
    model = net(nodes, {"x": (1, 12, 5, 5)}, ["y"], fixed)
    assert_untouched(model, "channel-shuffle", "channel-shuffle-fold")


def test_a_result_in_between_that_others_need_stays():
    nodes, fixed = shuffle("x", "y", (1, 3, 4, 2, 2), (0, 2, 1, 3, 4), (1, 12, 2, 2))
    model = net(nodes, {"x": (1, 12, 2, 2)}, ["y", "s_b"], fixed)
    assert_untouched(model, "channel-shuffle")
    # a shuffle of two images' channels is none of one image's
    nodes, fixed = shuffle("x", "y", (4, 3, 2, 2), (1, 0, 2, 3), (2, 6, 2, 2))
    assert_untouched(net(nodes, {"x": (2, 6, 2, 2)}, ["y"], fixed), "channel-shuffle")


def folded_net(before=True, seed=0):
    """Conv, BatchNormalization, Relu, shuffle, depthwise Conv - or the convolution behind it."""
    middle, fixed = shuffle("r", "s", (1, 2, 4, 6, 6), (0, 2, 1, 3, 4), (1, 8, 6, 6))
    first = node("Conv", "x w b", "c", name="first") if before else node("Relu", "x", "c")
    nodes = [
        first,
        node("BatchNormalization", "c scale shift mean var", "n"),
        node("Relu", "n", "r"),
        *middle,
        node("Conv", "s dw db", "d", name="depthwise", group=8, pads=[1, 1, 1, 1]),
        node("Mul", "factor d", "m"),
        node(
            "Conv", "m lw" if not before else "m gw", "y", name="last", group=1 if not before else 2
        ),
    ]
    weights = {
        "w": weight(8, 5, 3, 3, seed=seed),
        "b": weight(8, seed=1),
        "scale": weight(8, seed=2),
        "shift": weight(8, seed=3),
        "mean": weight(8, seed=4),
        "var": np.abs(weight(8, seed=5)) + 0.5,
        "dw": weight(8, 1, 3, 3, seed=6),
        "db": weight(8, seed=7),
        "factor": weight(1, 8, 1, 1, seed=8),
        "lw": weight(4, 8, 1, 1, seed=9),
        "gw": weight(4, 4, 1, 1, seed=9),
        **fixed,
    }
    used = {name for item in nodes for name in item.input}
    shape = (1, 5, 8, 8) if before else (1, 8, 6, 6)
    return net(nodes, {"x": shape}, ["y"], {k: v for k, v in weights.items() if k in used})


@pytest.mark.parametrize("before", [True, False])
def test_a_shuffle_next_to_an_ungrouped_convolution_costs_nothing(before):
    model = folded_net(before)
    after = assert_rewrites(model, "channel-shuffle-fold", gone=["Transpose", "Reshape"])
    # the same nodes without the shuffle
    shuffle_ops = {"Reshape", "Transpose"}
    names = [item.name for item in model.proto.graph.node if item.op_type not in shuffle_ops]
    assert [item.name for item in after.proto.graph.node] == names
    assert not refused(after)


def test_a_grouped_neighbour_or_another_reader_keeps_the_shuffle():
    middle, fixed = shuffle("c", "s", (1, 2, 4, 6, 6), (0, 2, 1, 3, 4), (1, 8, 6, 6))
    grouped = [node("Conv", "x w", "c", group=2), *middle, node("Conv", "s v", "y", group=2)]
    weights = {"w": weight(8, 4, 1, 1), "v": weight(8, 4, 1, 1), **fixed}
    model = net(grouped, {"x": (1, 8, 6, 6)}, ["y"], weights)
    assert_untouched(model, "channel-shuffle-fold")
    assert ops(assert_rewrites(model, "channel-shuffle")) == ["Conv"] * 3
    # the convolution's own result is returned, and what reads the shuffle is no convolution
    nodes = [node("Conv", "x w", "c"), *middle, node("Relu", "s", "y")]
    weights = {"w": weight(8, 8, 1, 1), **fixed}
    assert_untouched(net(nodes, {"x": (1, 8, 6, 6)}, ["y", "c"], weights), "channel-shuffle-fold")
