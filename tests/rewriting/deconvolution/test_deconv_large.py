"""deconv-large-kernel and deconv-large-stride: FCN's upsampling and what else is too large."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.rules import exceptions, limit
from tests.rewriting.boards import refused
from tests.rewriting.convolution.refits import assert_refits
from tests.rewriting.deconvolution.models import deconv, found
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

KERNEL, STRIDE, PADDING = "deconv-large-kernel", "deconv-large-stride", "deconv-padding"


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "left"),
    [
        # FCN-16s and FCN-32s end in these
        (32, 16, 8, ["Conv", "ConvTranspose", "Slice"]),
        (64, 32, 16, ["ConvTranspose", "Conv", "ConvTranspose", "Slice"]),
        (31, 31, 0, ["ConvTranspose", "ConvTranspose", "Slice"]),
        (48, 24, 0, ["ConvTranspose", "Conv", "ConvTranspose"]),
        (24, 12, 0, ["ConvTranspose", "Slice"]),
        # two crops are one
        (24, 12, 6, ["ConvTranspose", "Slice"]),
        (80, 40, 20, ["ConvTranspose", "Conv", "ConvTranspose", "Slice"]),
    ],
)
def test_square_kernels_and_strides(kernel, stride, pad, left):
    model = deconv((1, 2, 3, 3), (kernel,) * 2, maps=2, strides=[stride] * 2, pads=[pad] * 4)
    assert refused(model) == ["DECONVOLUTION"]
    made = assert_rewrites(model, PADDING, STRIDE, KERNEL)
    assert ops(made) == left
    assert refused(made) == refused(made, "jetson-agx-xavier") == []


@pytest.mark.parametrize(
    ("kernel", "stride"), [((40, 7), (1, 2)), ((3, 50), (2, 5)), ((33, 33), (16, 3))]
)
def test_one_side_too_large(kernel, stride):
    made = assert_rewrites(deconv((1, 2, 3, 3), kernel, strides=list(stride)), KERNEL)
    assert refused(made) == []


@settings(max_examples=tries(20))
@given(st.data())
def test_any_large_kernel(data):
    stride = [data.draw(st.integers(1, 20)) for _ in range(2)]
    kernel = [data.draw(st.integers(20, 45)) for _ in range(2)]
    size = [data.draw(st.integers(1, 3)) for _ in range(2)]
    bias = data.draw(st.booleans())
    model = deconv((1, 2, *size), kernel, maps=1, bias=bias, strides=stride)
    if refused(model):
        assert refused(assert_rewrites(model, KERNEL)) == []
    else:
        assert_untouched(model, KERNEL)


@settings(max_examples=tries(20))
@given(st.data())
def test_any_large_stride(data):
    side = st.integers(20, 40)
    stride = (
        [data.draw(side)] * 2 if data.draw(st.booleans()) else [data.draw(side), data.draw(side)]
    )
    size, kernel = [data.draw(st.integers(1, 3)) for _ in range(2)], data.draw(st.integers(1, 4))
    model = deconv((1, 2, *size), (kernel, 3), maps=1, strides=stride)
    primes_over = any(s in {37} for s in stride)
    if not refused(model) or primes_over:
        assert_untouched(model, STRIDE)
    else:
        assert refused(assert_rewrites(model, STRIDE)) == []


def test_parts_of_the_weights_follow_a_refit():
    assert_refits(lambda seed: deconv((1, 2, 2, 2), (40, 3), maps=1, seed=seed), KERNEL)
    assert_refits(lambda seed: deconv((1, 2, 2, 2), (24, 24), maps=1, seed=seed), KERNEL)


def test_the_stride_of_the_last_is_what_is_left():
    made = assert_rewrites(deconv((1, 2, 2, 2), (3, 3), strides=[32, 32]), STRIDE)
    assert [attrs["strides"] for attrs in found(made, "ConvTranspose")] == [[1, 2], [32, 16]]


def test_what_is_left_alone():
    for kernel, stride in (
        ((32, 31), (2, 2)),
        ((1, 64), (1, 2)),
        ((96, 1), (2, 1)),
        ((22, 22), (9, 9)),
    ):
        assert_untouched(deconv((1, 1, 2, 2), kernel, maps=1, strides=list(stride)), KERNEL, STRIDE)
    # first without padding, groups and dilation: other rewrites
    padded = {"strides": [16, 16], "pads": [8] * 4}
    assert_untouched(deconv((1, 1, 2, 2), (32, 32), maps=1, **padded), KERNEL)
    assert_untouched(deconv((1, 2, 2, 2), (32, 32), maps=1, strides=[16, 16], group=2), KERNEL)
    # a part has at least the stride's rows
    assert_untouched(deconv((1, 1, 2, 2), (37, 2), maps=1, strides=[37, 2]), KERNEL, STRIDE)


def test_slices_that_are_no_crops_stay():
    layer = node("ConvTranspose", "x w", "h", "up", strides=[12, 12])
    weights = {
        "w": weight(2, 2, 24, 24),
        "b": [0],
        "e": [1],
        "c": [1],
        "f": [-1],
        "r": [2],
        "t": [2],
    }
    for numbers in ("b e c", "b f r t"):
        model = net(
            [layer, node("Slice", f"h {numbers}", "y")], {"x": (1, 2, 2, 2)}, ["y"],
            {key: weights[key] for key in {"w", *numbers.split()}},
        )  # fmt: skip
        assert ops(assert_rewrites(model, KERNEL)) == ["ConvTranspose", "Slice", "Slice"]
    twice = [layer, node("Slice", "h b e r", "y"), node("Relu", "h", "z")]
    model = net(twice, {"x": (1, 2, 2, 2)}, ["y", "z"], {k: weights[k] for k in "wber"})
    assert ops(assert_rewrites(model, KERNEL)) == ["ConvTranspose", "Slice", "Slice", "Relu"]


def test_limits_come_from_the_rules():
    assert limit("deconvolution.kernel") == (1, 32)
    assert limit("deconvolution.square_stride") == (23, 32)
    assert (1, 64) in exceptions("deconvolution.kernel")
    assert (64, 64) not in exceptions("deconvolution.kernel")
    assert exceptions("pooling.window") == frozenset()
    with pytest.raises(KeyError):
        limit("resize.sizes")
