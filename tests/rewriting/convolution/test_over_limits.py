"""Convolutions beyond the DLA's limits of kernel and dilation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.rules import rule_range
from edgekit.rewriting.rules.convolutions import KernelAxis, ways
from tests.rewriting.boards import refused
from tests.rewriting.convolution.refits import assert_refits
from tests.rewriting.nets import (
    assert_rewrites,
    assert_untouched,
    net,
    node,
    ops,
    weight,
)
from tests.tries import tries

KERNEL, DILATION = ALL = "large-kernel", "large-dilation"
BOARDS = ("jetson-agx-orin-64gb", "jetson-agx-xavier")


def conv(shape, weights, bias=True, seed=0, **attrs):
    values = {"w": weight(*weights, seed=seed)}
    if bias:
        values["b"] = weight(weights[0], seed=seed + 10)
    read = "x w b" if bias else "x w"
    return net([node("Conv", read, "y", name="conv", **attrs)], {"x": shape}, ["y"], values)


def assert_fits(after):
    for board in BOARDS:
        assert not refused(after, board), ops(after)
    assert_untouched(after, *ALL)


def test_the_kernels_of_slak_are_two_convolutions_without_a_slice():
    model = conv((1, 4, 40, 40), (4, 1, 51, 5), group=4, pads=[25, 2, 25, 2])
    after = assert_rewrites(model, KERNEL)
    assert [n.name for n in after.proto.graph.node] == ["conv", "conv:part", "conv:sum"]
    assert_fits(after)


def test_a_window_over_the_whole_image_is_sliced():
    after = assert_rewrites(conv((2, 2, 40, 64), (5, 2, 40, 64)), KERNEL)
    assert ops(after).count("Conv") == 4
    assert_fits(after)


def test_padding_over_the_limit_comes_before():
    after = assert_rewrites(conv((1, 2, 40, 9), (2, 2, 65, 1), pads=[32, 0, 32, 0]), KERNEL)
    assert "conv:zeros" in [n.name for n in after.proto.graph.node]
    assert_fits(after)


def test_parts_of_a_large_kernel_leave_room_in_the_buffer():
    # two parts of 24 rows each would take all 16 banks in FP16, which a board refused
    after = assert_rewrites(conv((1, 256, 50, 40), (1, 256, 48, 1)), KERNEL)
    assert ops(after).count("Conv") == 3
    assert_fits(after)


@given(
    st.integers(33, 80),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 2),
    st.tuples(*[st.integers(0, 45)] * 2),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=tries(25))
def test_any_large_kernel(large, small, stride, dilation, pads, along_width, grouped):
    size = max((large - 1) * dilation + 1 - sum(pads), 1) + 7
    turn = (lambda pair: pair[::-1]) if along_width else (lambda pair: pair)
    model = conv(
        (1, 2, *turn((size, 8))),
        (2, 1 if grouped else 2, *turn((large, small))),
        bias=not grouped,
        strides=list(turn((stride, 1))),
        dilations=list(turn((dilation, 1))),
        pads=[*turn((pads[0], small // 2)), *turn((pads[1], 0))],
        group=2 if grouped else 1,
    )
    after = assert_rewrites(model, KERNEL)
    limited = [rule for rule in refused(after) if rule == "CONVOLUTION"]
    assert not limited or stride > rule_range("convolution.stride")[1]


def test_a_dilation_over_the_limit_becomes_single_taps():
    model = conv((1, 3, 60, 50), (4, 3, 3, 2), pads=[40, 0, 40, 0], dilations=[40, 36])
    after = assert_rewrites(model, DILATION)
    assert ops(after).count("Add") == 5
    assert_fits(after)


@given(st.integers(33, 40), st.integers(1, 3), st.integers(0, 40), st.integers(1, 2))
@settings(max_examples=tries(15))
def test_any_large_dilation(dilation, taps, pad, stride):
    size = (taps - 1) * dilation + 3
    model = conv(
        (1, 2, size, 5),
        (2, 2, taps, 3),
        dilations=[dilation, 2],
        pads=[pad, 1, 0, 1],
        strides=[stride, 1],
    )
    assert_fits(assert_rewrites(model, DILATION))


@pytest.mark.parametrize("item", ALL)
def test_what_the_dla_takes_stays(item):
    assert_untouched(conv((1, 4, 20, 20), (4, 4, 3, 3), pads=[6] * 4, dilations=[6, 6]), item)
    assert_untouched(conv((1, 4, 40, 40), (4, 4, 32, 32), pads=[31] * 4), item)
    assert_untouched(conv((1, 4, 90), (4, 4, 40), pads=[50, 50]), item)
    computed = net(
        [node("Conv", "x v", "y", pads=[40] * 4)], {"x": (1, 1, 40, 40), "v": (1, 1, 35, 35)}, ["y"]
    )
    assert_untouched(computed, item)


def test_parts_that_read_only_padding_are_left_out():
    # three outputs of 64 taps over 5 rows, 60 zeros before them
    axis = KernelAxis(size=5, out=2, kernel=64, stride=1, dilation=1, before=60, after=0)
    _, parts = next(iter(ways(axis.padded(29, 0))))
    assert sum(part.stop - part.first for part in parts) <= 64
    assert all(part.start < part.end for part in parts)


def test_weights_are_derived():
    assert_refits(lambda s: conv((1, 2, 50, 9), (2, 2, 51, 3), pads=[25, 1, 25, 1], seed=s), KERNEL)
    assert_refits(lambda s: conv((1, 2, 80, 9), (2, 2, 3, 1), dilations=[36, 1], seed=s), DILATION)
