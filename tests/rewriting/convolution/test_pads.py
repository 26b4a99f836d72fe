"""Pads before convolutions and elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

FOLD, MOVE = "pad-conv", "pad-to-conv"


def padded(
    around,
    weights=(4, 3, 3, 3),
    shape=(1, 3, 10, 11),
    reader="Conv",
    seed=0,
    opset=13,
    value=None,
    more=(),
    ends=("y",),
    pad=None,
    **attrs,
):
    values = {"p": np.array(around)}
    if value is not None:
        values["v"] = np.float32(value)
    nodes = [node("Pad", "x p v" if value is not None else "x p", "q", name="pad", **(pad or {}))]
    if reader == "Conv":
        values |= {"w": weight(*weights, seed=seed), "b": weight(weights[0], seed=seed + 10)}
        nodes.append(node("Conv", "q w b", "y", name="conv", **attrs))
    else:
        nodes.append(node(reader, "q", "y"))
    return net([*nodes, *more], {"x": shape}, list(ends), values, opset=opset)


@given(
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.integers(1, 4),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.integers(1, 2),
)
@settings(max_examples=tries(25))
def test_any_padding(amounts, kernel, own, stride):
    pads = [0, *amounts[:3], 0, *amounts[3:]]
    weights = (2, 3 + amounts[0] + amounts[3], kernel, kernel)
    model = padded(pads, weights, pads=list(own), strides=[stride] * 2)
    fixed = assert_rewrites(model, FOLD, MOVE, gone=["Pad"])
    if max(own) < kernel:
        assert not refused(fixed)


def test_others_keep_the_pad():
    readers = [node("Relu", "q", "z"), node("Conv", "q w", "z2")]
    model = padded([0, 0, 1, 1, 0, 0, 1, 1], more=readers, ends=("y", "z", "z2"))
    after = assert_rewrites(model, FOLD)
    assert sorted(ops(after)) == ["Conv", "Conv", "Pad", "Relu"]
    assert all("q" not in n.input for n in after.proto.graph.node if n.op_type == "Conv")


@given(st.lists(st.sampled_from([0, 0, 1, 3, 20, 40]), min_size=6, max_size=6))
@settings(max_examples=tries(15))
def test_any_pad_is_convolutions_that_move(amounts):
    model = padded([0, *amounts[:3], 0, *amounts[3:]], reader="Relu")
    if not any(amounts):
        assert_untouched(model, MOVE)
        return
    after = assert_rewrites(model, MOVE, gone=["Pad"])
    assert not refused(after)
    assert not refused(after, "jetson-agx-xavier")


def test_axes_as_an_input():
    nodes = [node("Pad", ["x", "p", "", "a"], "q"), node("Conv", "q w", "y")]
    values = {"p": np.array([1, 2, 0, 1]), "a": np.array([-1, 2]), "w": weight(4, 3, 3, 3)}
    model = net(nodes, {"x": (1, 3, 8, 9)}, ["y"], values, opset=18)
    assert ops(assert_rewrites(model, FOLD)) == ["Conv"]


def test_a_pad_that_a_reader_takes_over_is_not_moved():
    assert_untouched(padded([0, 0, 1, 1, 0, 0, 1, 1]), MOVE)
    pool = node("MaxPool", "q", "z", kernel_shape=[3, 3])
    values = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    nodes = [node("Relu", "x", "r"), node("Pad", "r p", "q"), pool]
    assert_untouched(net(nodes, {"x": (1, 3, 8, 8)}, ["z"], values), MOVE)
    # 60 rows are over the limit of a convolution's padding
    assert "Pad" not in ops(assert_rewrites(padded([0, 0, 60, 1, 0, 0, 60, 1]), MOVE))


@pytest.mark.parametrize(
    "model",
    [
        padded([0, 0, 1, 1, 0, 0, 1, 1], value=1.0),
        padded([0, 0, 1, 1, 0, 0, 1, 1], pad={"mode": "reflect"}),
        padded([0, 0, 1, 1, 0, 0, 1, 1], pad={"mode": "edge"}),
        padded([0, 0, 1, -1, 0, 0, 1, 1]),
        padded([1, 0, 0, 0, 0, 0, 1, 1]),
        net(
            [node("Pad", "x p", "q"), node("Conv", "q w", "y")],
            {"x": (1, 3, 8)},
            ["y"],
            {"p": np.array([0, 0, 1, 0, 0, 1]), "w": weight(4, 3, 3)},
        ),
    ],
)
def test_other_pads_stay(model):
    assert_untouched(model, FOLD, MOVE)


def test_padded_channels_of_groups_and_padding_over_the_limit_stay_for_others():
    groups = padded([0, 1, 0, 0, 0, 0, 0, 0], weights=(4, 2, 3, 3), group=2)
    assert_untouched(groups, FOLD)
    assert_untouched(padded([0, 0, 60, 1, 0, 0, 60, 1]), FOLD)
