"""resize-sizes and resize-coordinates: the words that the DLA takes, for the same effect."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.boards import refused
from tests.rewriting.deconvolution.models import COORDINATES, found, resize
from tests.rewriting.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    net,
    node,
    rewritten,
)
from tests.tries import tries

SIZES, WORDS = "resize-sizes", "resize-coordinates"
NEAREST = {"mode": "nearest", "how": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "how": "half_pixel"}


def test_axes_and_the_aspect_ratio_are_written_out():
    given_ = {"axes": [3, 2], "opset": 18, **NEAREST}
    assert refused(assert_rewrites(resize((1, 2, 4, 5), sizes=[15, 8], **given_), SIZES)) == []
    assert refused(assert_rewrites(resize((1, 2, 4, 5), scales=[3, 2], **given_), SIZES)) == []
    options = {"keep_aspect_ratio_policy": "not_larger", "axes": [2, 3], "opset": 18, **NEAREST}
    made = assert_rewrites(resize((1, 2, 4, 5), sizes=[8, 15], **options), SIZES)
    assert found(made, "Resize")[0].keys() == {"mode", COORDINATES, "nearest_mode"}
    # 2.25 times 4 rows are 9, 2.25 times 5 columns 11
    assert_untouched(resize((1, 2, 4, 5), sizes=[9, 15], **options), SIZES)


def test_the_rounded_product_of_a_scale_is_no_size():
    model = resize((1, 2, 4, 5), scales=[1, 1, 2.05, 2.05], **NEAREST)
    assert_untouched(model, SIZES, WORDS)


def test_half_precision_keeps_scales_in_single():
    layer = node(
        "Resize",
        ["x", "", "", "s"],
        "y",
        mode="nearest",
        nearest_mode="floor",
        **{COORDINATES: "asymmetric"},
    )
    outputs = {"y": TensorProto.FLOAT16}
    inputs = {"x": ((1, 2, 3, 4), TensorProto.FLOAT16)}
    model = net([layer], inputs, outputs, {"s": np.array([1, 2, 6, 8])})
    assert refused(assert_rewrites(model, SIZES)) == []


def test_linear_words_for_half_pixel():
    symmetric = {"mode": "linear", "how": "half_pixel_symmetric", "opset": 19}
    made = assert_rewrites(resize((1, 2, 4, 3), scales=[1, 1, 2, 4], **symmetric), WORDS)
    assert found(made, "Resize")[0][COORDINATES] == "half_pixel"
    assert refused(made) == []
    # antialias is for shrinking
    smooth = LINEAR | {"antialias": 1, "opset": 18}
    made = assert_rewrites(resize((1, 2, 4, 3), sizes=[1, 2, 8, 6], **smooth), WORDS)
    assert "antialias" not in found(made, "Resize")[0]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "asymmetric"])
def test_one_element_is_repeated_by_every_mode(mode, how):
    model = resize((1, 2, 1, 1), sizes=[1, 2, 32, 17], mode=mode, how=how)
    made = assert_rewrites(model, WORDS)
    assert found(made, "Resize")[0]["mode"] == "nearest"
    assert refused(made) == []


@settings(max_examples=tries(40))
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]),
    st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.booleans(),
)
def test_whatever_matches_has_the_same_effect(size, factors, how, rounding, mode, by_size):
    words = {"mode": mode, "how": how, "nearest_mode": rounding}
    sizes = [s * f for s, f in zip(size, factors, strict=True)]
    given_ = {"sizes": [1, 1, *sizes]} if by_size else {"scales": [1, 1, *factors]}
    model = resize((1, 1, *size), **given_, **words)
    made = rewritten(model, SIZES, WORDS)
    assert_same(model, made)
    if made.digest != model.digest and found(made, "Resize") != found(model, "Resize"):
        assert refused(made) == []


def test_what_is_left_alone():
    assert_untouched(resize((1, 2, 4, 5), scales=[1, 1, 2, 2], **NEAREST), SIZES, WORDS)
    assert_untouched(resize((1, 2, 4, 5), scales=[1, 1, 2, 2], **LINEAR), SIZES, WORDS)
    assert_untouched(resize((1, 2, 4, 5), sizes=[1, 2, 8, 9], **NEAREST), SIZES, WORDS)
    assert_untouched(resize((1, 2, 4, 5), sizes=[1, 2, 4, 5], **NEAREST), SIZES, WORDS)
    assert_untouched(resize((1, 2, 4), sizes=[1, 2, 8], **NEAREST), SIZES, WORDS)
    # shifted by an element, not only repeated
    shifted = NEAREST | {"nearest_mode": "ceil"}
    assert_untouched(resize((1, 2, 4, 5), scales=[1, 1, 2, 2], **shifted), WORDS)
    corners = LINEAR | {"how": "align_corners"}
    assert_untouched(resize((1, 2, 4, 5), scales=[1, 1, 2, 2], **corners), WORDS)
    region = {"mode": "linear", COORDINATES: "tf_crop_and_resize"}
    layer = node("Resize", ["x", "r", "s"], "y", **region)
    weights = {"s": np.array([1.0, 1, 2, 2]), "r": np.array([0.0, 0, 0, 0, 1, 1, 1, 1])}
    assert_untouched(net([layer], {"x": (1, 2, 4, 5)}, ["y"], weights), SIZES, WORDS)
    whole = net(
        [node("Resize", ["x", "", "", "s"], "y")],
        {"x": ((1, 2, 4, 5), TensorProto.INT32)},
        {"y": TensorProto.INT32},
        {"s": np.array([1, 2, 8, 10])},
    )
    assert_untouched(whole, SIZES, WORDS)
