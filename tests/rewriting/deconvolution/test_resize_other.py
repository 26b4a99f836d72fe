"""resize-downscale, resize-1d, resize-channels-last and resize-to-convolution."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.deconvolution.models import found, names, resize
from tests.rewriting.nets import assert_rewrites, assert_same, assert_untouched, ops, rewritten
from tests.tries import tries

DOWN, ANY = "resize-downscale", "resize-to-convolution"
ONE, LAST = "resize-1d", "resize-channels-last"
NEAREST = {"mode": "nearest", "how": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "how": "half_pixel"}


@pytest.mark.parametrize(
    ("words", "factor", "left"),
    [
        (NEAREST, 2, ["MaxPool"]),
        (NEAREST, 32, ["MaxPool", "MaxPool"]),
        ({"mode": "nearest", "how": "half_pixel"}, 3, ["Slice", "MaxPool"]),
        (LINEAR, 2, ["AveragePool"]),
        (LINEAR, 3, ["Slice", "MaxPool"]),
        (LINEAR, 4, ["Slice", "AveragePool"]),
        ({"mode": "linear", "how": "asymmetric"}, 4, ["MaxPool"]),
    ],
)
def test_shrinking_by_a_whole_factor_is_pooling(words, factor, left):
    scales = [1, 1, 1 / factor, 1 / factor]
    # a third is no number of FP32
    sizes = {"sizes": [1, 2, 2, 3]} if factor == 3 else {"scales": scales}
    model = resize((1, 2, 2 * factor, 3 * factor), **sizes, **words)
    assert refused(model) == ["RESIZE"]
    made = assert_rewrites(model, DOWN)
    assert ops(made) == left
    assert refused(made) == refused(made, "jetson-agx-xavier") == []


def test_one_axis_shrinks():
    made = assert_rewrites(resize((1, 2, 8, 5), scales=[1, 1, 0.25, 1], **LINEAR), DOWN)
    assert found(made, "AveragePool")[0]["kernel_shape"] == [2, 1]
    assert refused(made) == []


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
    for item in (DOWN, ANY):
        made = rewritten(model, item)
        assert_same(model, made)
        if made.digest != model.digest:
            assert refused(made) == []


@pytest.mark.parametrize("given_", [{"sizes": [1, 2, 9]}, {"scales": [1, 1, 3]}])
def test_one_dimension_is_a_width_of_1(given_):
    made = assert_rewrites(resize((1, 2, 3), **given_, **NEAREST), ONE)
    assert ops(made) == ["Reshape", "Resize", "Reshape"]
    assert names(made) == ["up:before", "up", "up:after"]
    assert set(refused(rewritten(made, "resize-sizes"))) == {"SHUFFLE"}


@pytest.mark.parametrize(
    ("given_", "before"),
    [
        # TensorFlow's images
        ({"scales": [1, 2, 3, 1]}, [0, 3, 1, 2]),
        ({"sizes": [1, 8, 15, 2]}, [0, 3, 1, 2]),
        ({"scales": [2, 3], "axes": [1, 2], "opset": 18}, [0, 3, 1, 2]),
        ({"scales": [1, 3, 1, 1]}, [0, 3, 1, 2]),
        ({"scales": [1, 2, 1, 2]}, [0, 2, 1, 3]),
    ],
)
def test_other_axes_are_transposed(given_, before):
    model = resize((1, 4, 5, 2), **given_, **NEAREST)
    assert refused(model) == ["RESIZE"]
    made = assert_rewrites(model, LAST)
    assert ops(made) == ["Transpose", "Resize", "Transpose"]
    assert found(made, "Transpose")[0]["perm"] == before
    assert refused(rewritten(made, "resize-sizes")) == []


@settings(max_examples=tries(20))
@given(
    st.tuples(*[st.integers(1, 3)] * 4),
    st.lists(st.sampled_from([0.5, 1.5, 2.0, 3.0]), min_size=1, max_size=2),
    st.permutations([1, 2, 3]),
    st.sampled_from([NEAREST, LINEAR]),
)
def test_any_axes(shape, scales, axes, words):
    factors = [1.0] * 4
    for axis, scale in zip(axes, scales, strict=False):
        factors[axis] = scale
    shape = tuple(2 * size for size in shape)
    if factors[1] != 1 != factors[3]:
        # ONNX Runtime has no linear resizing of these two
        words = NEAREST
    model = resize(shape, scales=factors, **words)
    if factors[1] != 1:
        assert_rewrites(model, LAST)
    else:
        assert_untouched(model, LAST)


def test_what_is_left_alone():
    for words in (NEAREST, LINEAR, LINEAR | {"how": "pytorch_half_pixel"}):
        model = resize((1, 2, 4, 5), scales=[1, 1, 2, 4], **words)
        assert_untouched(model, DOWN, ANY, ONE, LAST)
    assert_untouched(resize((1, 2, 4, 5), sizes=[1, 2, 4, 5], **LINEAR), DOWN, ANY, ONE, LAST)
    # means of more than two, and what runtimes disagree on
    smooth = LINEAR | {"antialias": 1, "opset": 18}
    assert_untouched(resize((1, 2, 4, 6), scales=[1, 1, 0.5, 0.5], **smooth), DOWN, ANY)
    assert_untouched(resize((1, 2, 4, 6), sizes=[1, 2, 3, 5], **LINEAR), DOWN)
    # a stride over the limit with no factors
    assert_untouched(resize((1, 2, 17 * 2, 2), sizes=[1, 2, 2, 2], **NEAREST), DOWN)
    assert_untouched(resize((2, 4, 5, 2), scales=[2, 2, 1, 1], **NEAREST), LAST)
    assert_untouched(resize((1, 4, 5, 2), scales=[1, 2, 2, 2], **NEAREST), LAST, ANY)
    assert_untouched(resize((1, 4, 5), scales=[1, 2, 2], **NEAREST), ONE)
    # coordinates that FP32 does not hold
    assert_untouched(resize((1, 1, 1, 999), sizes=[1, 1, 1, 1400], **LINEAR), ANY)
