"""resize-nearest-large and resize-linear-in-steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.deconvolution.models import resize
from tests.rewriting.nets import assert_rewrites, assert_same, assert_untouched, ops, rewritten
from tests.tries import tries

LARGE, STEPS = "resize-nearest-large", "resize-linear-in-steps"
NEAREST = {"mode": "nearest", "how": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "how": "half_pixel"}


@pytest.mark.parametrize(
    ("size", "factors", "left"),
    [
        ((2, 3), (64, 2), ["Resize", "Resize"]),
        ((2, 3), (33, 40), ["Resize", "Resize"]),
        ((1, 2), (1, 100), ["Resize", "Resize"]),
        # of one element more may be made than is wanted: 37 is a prime
        ((1, 1), (37, 37), ["Resize", "Resize", "Slice"]),
        ((1, 1), (65, 65), ["Resize", "Resize"]),
        ((1, 3), (37, 2), ["Resize", "Resize", "Slice"]),
    ],
)
def test_elements_are_repeated_in_two_steps(size, factors, left):
    model = resize((1, 1, *size), scales=[1, 1, *factors], **NEAREST)
    assert refused(model) == ["RESIZE"]
    made = assert_rewrites(model, LARGE)
    assert ops(made) == left
    assert refused(made) == refused(made, "jetson-agx-xavier") == []


@pytest.mark.parametrize(
    ("factor", "left"),
    [
        (5, ["Resize", "AveragePool"]),
        (6, ["Resize", "Resize"]),
        (7, ["Resize", "AveragePool"]),
        (8, ["Resize", "AveragePool", "AveragePool"]),
        (12, ["Resize", "Resize"]),
        (15, ["Resize", "AveragePool", "Resize"]),
        (16, ["Resize", "AveragePool", "Resize", "AveragePool", "AveragePool"]),
        (24, ["Resize", "Resize", "AveragePool", "AveragePool"]),
    ],
)
def test_half_pixel_growth_by_more_than_the_limit(factor, left):
    model = resize((1, 2, 3, 4), scales=[1, 1, factor, factor], **LINEAR)
    assert refused(model) == ["RESIZE"]
    made = assert_rewrites(model, STEPS)
    assert ops(made) == left
    assert refused(made) == []


@pytest.mark.parametrize("factor", [2, 3, 4, 6, 8, 9, 64])
def test_asymmetric_growth(factor):
    words = {"mode": "linear", "how": "asymmetric"}
    made = assert_rewrites(resize((1, 1, 3, 2), scales=[1, 1, factor, factor], **words), STEPS)
    assert set(ops(made)) == {"Resize", "AveragePool"}
    assert refused(made) == []


def test_each_axis_in_its_own_way():
    made = assert_rewrites(resize((1, 1, 3, 4), scales=[1, 1, 8, 3], **LINEAR), STEPS)
    assert ops(made) == ["Resize", "AveragePool", "AveragePool", "Resize"]
    made = assert_rewrites(resize((1, 1, 1, 4), sizes=[1, 1, 37, 20], **LINEAR), STEPS)
    assert refused(made) == []


@settings(max_examples=tries(25))
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 18), st.integers(1, 18)),
    st.sampled_from(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]),
    st.booleans(),
)
def test_any_growth(size, factors, how, corners):
    sizes = [
        f * (s - 1) + 1 if corners and s > 1 else f * s for s, f in zip(size, factors, strict=True)
    ]
    model = resize((1, 1, *size), sizes=[1, 1, *sizes], mode="linear", how=how)
    for item in (STEPS, LARGE):
        made = rewritten(model, item)
        assert_same(model, made)
        if made.digest != model.digest:
            assert refused(made) == []


def test_what_is_left_alone():
    for factor in (1, 2, 4):
        assert_untouched(resize((1, 1, 3, 3), scales=[1, 1, 3, factor], **LINEAR), STEPS, LARGE)
    assert_untouched(resize((1, 1, 3, 3), scales=[1, 1, 32, 32], **NEAREST), STEPS, LARGE)
    # a prime over the limits, of several elements
    assert_untouched(resize((1, 1, 3, 3), scales=[1, 1, 37, 2], **NEAREST), LARGE)
    assert_untouched(resize((1, 1, 3, 3), scales=[1, 1, 11, 11], **LINEAR), STEPS)
    corners = {"mode": "linear", "how": "align_corners"}
    assert_untouched(resize((1, 1, 3, 3), scales=[1, 1, 2, 2], **corners), STEPS)
    assert_untouched(resize((1, 1, 3, 3), scales=[1, 1, 5, 5], mode="cubic"), STEPS)
    # so long an axis that FP32 coordinates say something else
    assert_untouched(resize((1, 1, 1, 500), scales=[1, 1, 1, 5], **LINEAR), STEPS)
    assert_rewrites(resize((1, 1, 1, 500), scales=[1, 1, 1, 8], **LINEAR), STEPS)
