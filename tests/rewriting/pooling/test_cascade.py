"""Windows along one axis taken apart: equal to the window, within the limits."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgekit.dla.rules import rule_range
from edgekit.rewriting.rules.windows import (
    PoolAxis,
    PoolStage,
    conv_stages,
    max_stages,
    mixed_stages,
    pool_stages,
)
from tests.tries import tries


def apply(values, stages, fill):
    for stage in stages:
        values = np.concatenate([[fill] * stage.before, values, [fill] * stage.after])
        first = np.arange(stage.outputs(len(values) - stage.before - stage.after)) * stage.stride
        windows = values[first[:, None] + np.arange(stage.size) * stage.dilation]
        values = windows.mean(1) if fill == 0 else windows.max(1)
    return values


def within(stage):
    family = "convolution" if stage.conv else "pooling"
    name = "kernel" if stage.conv else "window"
    return (
        stage.size <= rule_range(f"{family}.{name}")[1]
        and stage.stride <= rule_range(f"{family}.stride")[1]
        and max(stage.before, stage.after) <= rule_range(f"{family}.padding")[1]
        and max(stage.before, stage.after) < (stage.size - 1) * stage.dilation + 1
        and (stage.conv or stage.dilation == 1)
    )


@st.composite
def axes(draw):
    """An axis as a node of any window, stride, padding, dilation and rounding has it."""
    length, size = draw(st.integers(1, 80)), draw(st.integers(1, 50))
    dilation = draw(st.sampled_from([1, 1, 1, 2, 3]))
    stride = draw(st.one_of(st.integers(1, 8), st.integers(1, 40), st.just(size)))
    before, declared = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
    span = (size - 1) * dilation + 1
    left = length + before + declared - span
    assume(left >= 0)
    count = (-(-left // stride) if draw(st.booleans()) else left // stride) + 1
    after = (count - 1) * stride + span - before - length
    assume(after < span)
    if count == 1 and after >= 0:
        stride = 0
    axis = PoolAxis(length, count, size, stride, before, max(after, 0), dilation)
    assume(min(axis.real()) > 0)
    return axis


@given(axes(), st.integers(0, 99))
@settings(max_examples=tries(150))
def test_stages_are_equal_to_their_window(axis, seed):
    values = np.random.default_rng(seed).standard_normal(axis.length)
    window = [PoolStage(axis.size, axis.stride or 1, axis.before, axis.after, axis.dilation)]
    mean, largest = apply(values, window, 0.0), apply(values, window, -np.inf)
    mixed, factor = mixed_stages(axis) or (None, 1.0)
    for stages, wanted, fill, by in (
        (pool_stages(axis), mean, 0.0, 1.0),
        (conv_stages(axis), mean, 0.0, 1.0),
        (mixed, mean, 0.0, factor),
        (max_stages(axis), largest, -np.inf, 1.0),
    ):
        if stages is not None:
            assert all(within(stage) for stage in stages)
            np.testing.assert_allclose(apply(values, stages, fill) * by, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("length", "pools", "maxima"),
    [(7, 1, 1), (9, 2, 2), (13, None, 2), (56, 2, 2), (63, 3, 2), (112, 3, 3), (512, 3, 3)],
)
def test_a_whole_axis_takes_few_pools(length, pools, maxima):
    axis = PoolAxis(length, 1, length)
    found = pool_stages(axis)
    assert (found and len(found)) == pools
    assert len(max_stages(axis)) == maxima


@pytest.mark.parametrize(("length", "stages"), [(13, 2), (14, 2), (37, 2), (101, 2), (997, 3)])
def test_a_whole_axis_always_ends_in_a_convolution(length, stages):
    found, factor = mixed_stages(PoolAxis(length, 1, length))
    assert len(found) == stages
    assert found[-1].conv
    # primes have no factors: zeros go around them
    assert (factor > 1) == (length != 14)


def test_what_has_no_exact_form_is_left():
    prime = PoolAxis(200, 2, 50, 37)
    assert pool_stages(prime) is None
    assert conv_stages(prime) is None
    assert mixed_stages(prime) is None
    assert max_stages(prime) is None
    # a thousand elements at a stride of 1 take more maxima than are worth it
    assert max_stages(PoolAxis(1100, 101, 1000, 1)) is None
