"""resize-to-convolution: any resize."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.deconvolution.models import names, resize
from tests.rewriting.nets import assert_rewrites, assert_same, assert_untouched, ops, rewritten
from tests.tries import tries

ANY = "resize-to-convolution"
NEAREST = {"mode": "nearest", "how": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "how": "half_pixel"}


@pytest.mark.parametrize(
    ("sizes", "words", "transposed"),
    [
        # bilinear upsampling of U-Nets with align_corners
        ([1, 2, 8, 10], {"mode": "linear", "how": "align_corners"}, 3),
        ([1, 2, 8, 10], {"mode": "cubic", "how": "half_pixel", "cubic_coeff_a": -0.5}, 3),
        ([1, 2, 8, 10], {"mode": "cubic", "how": "pytorch_half_pixel", "exclude_outside": 1}, 3),
        ([1, 2, 7, 5], LINEAR, 2),
        ([1, 2, 4, 7], NEAREST, 2),
        ([1, 2, 3, 4], {"mode": "cubic", "how": "align_corners"}, 3),
        ([1, 2, 44, 55], LINEAR, 3),
    ],
)
def test_any_resizing_is_products_along_its_axes(sizes, words, transposed):
    model = resize((1, 2, 4, 5), sizes=sizes, **words)
    assert refused(model) == ["RESIZE"]
    made = assert_rewrites(model, ANY)
    assert ops(made).count("Transpose") == transposed
    assert ops(made).count("Conv") == transposed - 1
    assert "up" in names(made)
    assert refused(made) == []


@settings(max_examples=tries(25))
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.booleans(),
)
def test_whatever_matches_has_the_same_effect(size, target, how, mode, exclude):
    words = {"exclude_outside": int(exclude)} if mode == "cubic" else {}
    model = resize((1, 2, *size), sizes=[1, 2, *target], mode=mode, how=how, **words)
    made = rewritten(model, ANY)
    assert_same(model, made)
    if made.digest != model.digest:
        assert refused(made) == []


def test_what_is_left_alone():
    for words in (NEAREST, LINEAR, LINEAR | {"how": "pytorch_half_pixel"}):
        model = resize((1, 2, 4, 5), scales=[1, 1, 2, 4], **words)
        assert_untouched(model, ANY)
    assert_untouched(resize((1, 2, 4, 5), sizes=[1, 2, 4, 5], **LINEAR), ANY)
    # means of more than two, and what runtimes disagree on
    smooth = LINEAR | {"antialias": 1, "opset": 18}
    assert_untouched(resize((1, 2, 4, 6), scales=[1, 1, 0.5, 0.5], **smooth), ANY)
    assert_untouched(resize((1, 4, 5, 2), scales=[1, 2, 2, 2], **NEAREST), ANY)
    # coordinates that FP32 does not hold
    assert_untouched(resize((1, 1, 1, 999), sizes=[1, 1, 1, 1400], **LINEAR), ANY)
