"""Histograms: no count is lost, and only the values matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.quantize.calibration.histograms import BINS, ValueHistogram
from tests.tries import tries

F = np.float32


def filled(values: np.ndarray, parts: int = 1) -> ValueHistogram:
    histogram = ValueHistogram()
    for part in np.array_split(values, parts):
        assert histogram.add(part)
    return histogram


@settings(max_examples=tries(60))
@given(seed=st.integers(0, 10_000), parts=st.integers(1, 6), exponent=st.integers(-80, 120))
def test_counts_depend_on_nothing_but_the_values(seed: int, parts: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    growth = np.repeat(2.0 ** rng.integers(0, 6, 6), 50)[:300]
    values = (rng.standard_normal(300) * growth * 2.0**exponent).astype(F)
    values[rng.integers(0, 300, 30)] = 0
    histogram = filled(values, parts)
    assert histogram.amax == np.abs(values).max()
    assert (histogram.low, histogram.high) == (values.min(), values.max())
    assert histogram.amax < histogram.top <= 2 * histogram.amax
    assert histogram.counts is not None
    # floats by powers of two: both sides are exact
    bins = np.floor(values.astype(np.float64) * (BINS / histogram.top)).astype(int) + BINS
    assert (histogram.counts == np.bincount(bins, minlength=2 * BINS)).all()
    other = filled(rng.permutation(values))
    assert other.top == histogram.top
    assert (other.counts == histogram.counts).all()


def test_zeros_before_the_first_value_are_counted() -> None:
    histogram = ValueHistogram()
    histogram.add(np.zeros(10, F))
    histogram.add(np.array([1.0, -2.0], F))
    assert histogram.counts is not None
    assert histogram.counts[BINS] == 10
    assert histogram.total == 12
    assert histogram.magnitudes()[0] == 10


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_added(value: float) -> None:
    histogram = filled(np.ones(3, F))
    assert not histogram.add(np.array([2.0, value], F))
    assert (histogram.amax, histogram.total) == (1.0, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_coarser_grid_keeps_the_counts_and_says_where_it_is_unsure(dtype: type) -> None:
    values = np.random.default_rng(1).standard_normal(20_000).astype(dtype)
    histogram = filled(values, 3)
    counts, unsure = histogram.regrid(256)
    amax = histogram.amax
    exact = np.histogram(values.astype(F), 256, (-amax, amax))[0]
    assert counts.sum() == 20_000
    assert np.abs(np.cumsum(counts) - np.cumsum(exact)).max() <= 8 * unsure.max()
    # edges that are edges of the finer grid are sure: zero, and for a power of two all of them
    assert unsure[128] == 0
    whole = filled(np.append(values[np.abs(values) < 2], dtype(2)))
    assert not whole.regrid(256)[1].any()


def test_values_that_pile_up_in_a_parted_bin_are_unsure() -> None:
    found = [
        filled(np.array([3.1] + [v] * 1000, F)).regrid(2048)[1].max()
        for v in np.linspace(0.5, 1, 97)
    ]
    assert max(found) > 900
