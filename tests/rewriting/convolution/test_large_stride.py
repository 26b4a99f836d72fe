"""Convolutions with strides over the DLA's limit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.convolution.models import conv
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries

STRIDE = "large-stride"


def assert_fits(after):
    assert not refused(after)
    assert not refused(after, "jetson-agx-xavier")
    assert_untouched(after, STRIDE)


@pytest.mark.parametrize(
    ("weights", "strides", "made"),
    [
        ((4, 3, 1, 1), [12, 10], ["MaxPool", "Conv"]),
        ((4, 3, 3, 3), [11, 1], ["Conv", "MaxPool"]),
        ((4, 3, 30, 30), [100, 90], ["Slice", "Conv"]),
    ],
)
def test_other_strides(weights, strides, made):
    after = assert_rewrites(conv((2, 3, 36, 33), weights, strides=strides), STRIDE)
    assert ops(after) == made
    assert_fits(after)


@given(
    st.tuples(*[st.integers(1, 18)] * 2),
    st.sampled_from([9, 10, 11, 12, 14, 16, 18, 24, 40]),
    st.sampled_from([1, 2, 3, 8, 9, 15, 16]),
    st.tuples(*[st.integers(0, 17)] * 4),
    st.tuples(*[st.integers(30, 75)] * 2),
    st.booleans(),
)
@settings(max_examples=tries(40))
def test_any_stride(kernel, down, across, pads, size, grouped):
    pads = [min(pad, side - 1) for pad, side in zip(pads, (*kernel, *kernel), strict=True)]
    model = conv(
        (1, 4, *size),
        (6, 2 if grouped else 4, *kernel),
        bias=not grouped,
        strides=[down, across],
        pads=pads,
        group=2 if grouped else 1,
    )
    assert_fits(assert_rewrites(model, STRIDE))


@given(st.integers(1, 3), st.integers(0, 4), st.sampled_from([9, 13, 16]))
@settings(max_examples=tries(10))
def test_dilated_kernels_are_pooled_afterwards(dilation, pad, stride):
    pad = min(pad, 2 * dilation)
    model = conv(
        (1, 2, 30, 31), (2, 2, 3, 3), dilations=[dilation] * 2, pads=[pad] * 4, strides=[stride] * 2
    )
    assert_fits(assert_rewrites(model, STRIDE))


def test_small_strides_and_prime_ones_over_both_limits_stay():
    assert_untouched(conv((1, 3, 40, 40), (4, 3, 8, 8), strides=[8, 8]), STRIDE)
    assert_untouched(conv((1, 3, 80, 80), (4, 3, 3, 3), strides=[17, 1]), STRIDE)
    computed = net(
        [node("Conv", "x v", "y", strides=[16, 16])],
        {"x": (1, 3, 32, 32), "v": (4, 3, 16, 16)},
        ["y"],
    )
    assert_untouched(computed, STRIDE)


@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_that_crops_is_left_alone(side):
    """ONNX Runtime's windows start elsewhere where ONNX's total of padding is below -2."""
    assert_untouched(conv((1, 8, 12, 5), (16, 8, 5, 1), strides=[12, 2], auto_pad=side), STRIDE)
    near = conv((1, 8, 12, 5), (16, 8, 10, 1), strides=[12, 2], auto_pad=side)
    assert_rewrites(near, STRIDE)
