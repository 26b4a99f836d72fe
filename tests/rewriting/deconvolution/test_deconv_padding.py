"""deconv-padding: crops become slices, however they are asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.deconvolution.models import deconv, names
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

PADDING = "deconv-padding"


@pytest.mark.parametrize(
    ("kernel", "attrs", "left"),
    [
        # U-Net and GAN decoders
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, ["ConvTranspose", "Slice"]),
        (
            (3, 3),
            {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
            ["ConvTranspose", "Slice"],
        ),
        ((3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, ["ConvTranspose", "Slice"]),
        ((3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}, ["ConvTranspose", "Slice"]),
        ((4, 3), {"strides": [2, 2], "output_shape": [9, 12]}, ["ConvTranspose", "Slice"]),
        # the kernel ends where the crop does
        ((2, 2), {"strides": [2, 2], "pads": [0, 1, 0, 1]}, ["ConvTranspose", "Slice"]),
        # rows that no tap of the kernel reaches: zeros behind the kernel
        ((2, 2), {"strides": [3, 3], "output_padding": [2, 1]}, ["ConvTranspose"]),
        (
            (2, 2),
            {"strides": [3, 3], "output_padding": [2, 2], "dilations": [2, 3]},
            ["ConvTranspose", "Slice"],
        ),
    ],
)
def test_padding_becomes_a_slice(kernel, attrs, left):
    made = assert_rewrites(deconv((1, 4, 5, 6), kernel, **attrs), PADDING)
    assert ops(made) == left
    assert names(made)[0] == "up"
    if "dilations" not in attrs:
        assert refused(made) == []
        assert refused(made, "jetson-agx-xavier") == []


@settings(max_examples=tries(25))
@given(st.data())
def test_any_padding(data):
    def number(low, high):
        return data.draw(st.integers(low, high))

    size, kernel = [number(1, 5) for _ in range(2)], [number(1, 4) for _ in range(2)]
    stride, dilation = [number(1, 4) for _ in range(2)], [number(1, 2) for _ in range(2)]
    extra = [number(0, s - 1) for s in stride]
    reach = [
        s * (i - 1) + d * (k - 1) + 1 + e
        for s, i, d, k, e in zip(stride, size, dilation, kernel, extra, strict=True)
    ]
    begin = [number(0, min(r - 1, 3)) for r in reach]
    end = [number(0, min(r - 1 - b, 3)) for r, b in zip(reach, begin, strict=True)]
    groups = number(1, 2)
    model = deconv(
        (number(1, 2), 2, *size),
        kernel,
        maps=2,
        bias=data.draw(st.booleans()),
        group=groups,
        strides=stride,
        dilations=dilation,
        pads=[*begin, *end],
        output_padding=extra,
    )
    if any((*begin, *end, *extra)):
        assert_rewrites(model, PADDING)
    else:
        assert_untouched(model, PADDING)


def test_what_is_left_alone():
    assert_untouched(deconv((1, 4, 5, 6), (3, 3), strides=[2, 2]), PADDING)
    assert_untouched(deconv((1, 4, 5, 6), (3, 3), auto_pad="VALID"), PADDING)
    assert_untouched(deconv((1, 4, 6), (4,), strides=[2], pads=[1, 1]), PADDING)
    # ONNX allows it, ONNX Runtime does not
    beyond = {"dilations": [2, 2], "output_padding": [1, 0]}
    assert_untouched(deconv((1, 4, 5, 6), (3, 3), **beyond), PADDING)
    # weights that are computed while running
    layer = node("ConvTranspose", "x w", "y", pads=[1] * 4)
    assert_untouched(net([layer], {"x": (1, 4, 5, 6), "w": (4, 2, 3, 3)}, ["y"]), PADDING)
    layer = node("ConvTranspose", "x w b", "y", pads=[1] * 4)
    inputs = {"x": (1, 4, 5, 6), "b": (2,)}
    assert_untouched(net([layer], inputs, ["y"], {"w": weight(4, 2, 3, 3)}), PADDING)


@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_of_a_stride_over_the_kernel(side):
    """There the result is as large as the kernel reaches, less than the stride times the input."""
    model = deconv((1, 3, 8, 3), (5, 4), strides=[2, 9], auto_pad=side)
    assert_rewrites(model, PADDING)
