"""deconv-dilation and deconv-1d."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.convolution.refits import assert_refits
from tests.rewriting.deconvolution.models import deconv, found, names
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries

DILATION, ONE = "deconv-dilation", "deconv-1d"


def test_a_dilated_kernel_gets_zeros():
    model = deconv((1, 4, 5, 6), (3, 3), strides=[2, 2], dilations=[2, 3], kernel_shape=[3, 3])
    assert refused(model) == ["DECONVOLUTION"]
    made = assert_rewrites(model, DILATION)
    assert ops(made) == ["ConvTranspose"]
    assert [value.shape for value in made.weights.values() if value.ndim == 4] == [(4, 3, 5, 7)]
    assert refused(made) == refused(made, "jetson-agx-xavier") == []


@settings(max_examples=tries(20))
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([{}, {"pads": [1, 0, 0, 1]}, {"group": 2}]),
)
def test_any_dilation(kernel, dilation, rest):
    model = deconv((1, 2, 3, 4), kernel, strides=[2, 1], dilations=list(dilation), **rest)
    if set(dilation) == {1}:
        assert_untouched(model, DILATION)
    else:
        made = assert_rewrites(model, DILATION)
        assert "dilations" not in found(made, "ConvTranspose")[0]


def test_the_kernel_may_become_as_large_as_the_limit():
    assert_rewrites(deconv((1, 2, 3, 3), (2, 32), dilations=[31, 1]), DILATION)
    assert_untouched(deconv((1, 2, 3, 3), (2, 32), dilations=[32, 1]), DILATION)


def test_dilated_weights_follow_a_refit():
    assert_refits(lambda seed: deconv((1, 2, 3, 3), (3, 2), seed=seed, dilations=[2, 2]), DILATION)


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2], "pads": [1, 1]},
        {"strides": [4], "pads": [2, 1], "output_padding": [1]},
        {"strides": [2], "auto_pad": "SAME_UPPER"},
        {"strides": [2], "output_shape": [15]},
        {"dilations": [2], "group": 2},
    ],
)
def test_one_dimension_is_a_width_of_1(attrs):
    """Vocoders' upsampling: with the padding cut off, nothing but the Reshapes is off the DLA."""
    model = deconv((1, 4, 8), (5,), maps=2, **attrs)
    made = assert_rewrites(model, ONE)
    assert ops(made) == ["Reshape", "ConvTranspose", "Reshape"]
    assert names(made) == ["up:before", "up", "up:after"]
    if "dilations" not in attrs:
        cut = assert_rewrites(model, ONE, "deconv-padding")
        assert set(refused(cut)) == {"SHUFFLE"}


@settings(max_examples=tries(20))
@given(st.data())
def test_any_one_dimensional(data):
    length, kernel = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    stride, dilation = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    extra = data.draw(st.integers(0, stride - 1))
    reach = stride * (length - 1) + dilation * (kernel - 1) + 1 + extra
    begin = data.draw(st.integers(0, min(reach - 1, 2)))
    end = data.draw(st.integers(0, min(reach - 1 - begin, 2)))
    model = deconv(
        (data.draw(st.integers(1, 2)), 2, length), (kernel,), group=data.draw(st.integers(1, 2)),
        bias=data.draw(st.booleans()), strides=[stride], dilations=[dilation],
        output_padding=[extra], pads=[begin, end],
    )  # fmt: skip
    assert_rewrites(model, ONE)


def test_one_dimensional_weights_follow_a_refit():
    assert_refits(lambda seed: deconv((1, 2, 5), (3,), seed=seed), ONE)


def test_what_is_left_alone():
    plain = deconv((1, 4, 5, 6), (3, 3), strides=[2, 2])
    assert_untouched(plain, DILATION, ONE)
    layer = node("ConvTranspose", "x w", "y")
    assert_untouched(net([layer], {"x": (1, 4, 5), "w": (4, 2, 3)}, ["y"]), ONE)
    assert_untouched(deconv((1, 2, 2, 2, 2), (2, 2, 2), dilations=[2, 2, 2]), DILATION, ONE)
