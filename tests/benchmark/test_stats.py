import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.benchmark.statistics import coefficient_of_variation, mean
from edgekit_device.benchmark.statistics import median, percentile
from edgekit_device.benchmark.statistics import summary as latency_summary

samples = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


def test_percentile_is_trtexecs_rank():
    values = [float(v) for v in range(1, 101)]
    # floor((1 - p) * 100) larger samples are left out, none is interpolated
    assert percentile(values, 90) == 90.0
    assert percentile(values, 99) == 99.0
    assert percentile(values, 50) == 50.0
    assert percentile(values, 99.9) == 100.0
    assert percentile(values, 100) == 100.0
    assert percentile(values, 0) == 1.0


def test_percentile_rank_is_not_spoilt_by_binary_fractions():
    # 1 - 0.9 is a little less than 0.1 in doubles: floor of 10 times that would be 0
    assert percentile([float(v) for v in range(10)], 90) == 8.0
    assert percentile([float(v) for v in range(1000)], 99.9) == 998.0


def test_percentile_sorts_and_refuses_nonsense():
    assert percentile([3.0, 1.0, 2.0], 100) == 3.0
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)
    with pytest.raises(ValueError, match="not in 0 to 100"):
        percentile([1.0], 101)


def test_median_of_even_and_odd_counts():
    assert median([4.0, 1.0, 3.0]) == 3.0
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    with pytest.raises(ValueError, match="no samples"):
        median([])
    with pytest.raises(ValueError, match="no samples"):
        mean([])


def test_coefficient_of_variation():
    assert coefficient_of_variation([5.0, 5.0, 5.0]) == 0.0
    assert coefficient_of_variation([1.0, 3.0]) == pytest.approx(0.5)
    assert coefficient_of_variation([0.0, 0.0]) == 0.0


@given(samples)
def test_summary_is_ordered_and_made_of_samples(values):
    summary = latency_summary(values)
    order = ["min", "p90", "p95", "p99", "p999", "max"]
    numbers = [summary[key] for key in order]
    assert numbers == sorted(numbers)
    assert all(number in values for number in numbers)
    assert summary["p50"] == summary["median"]
    assert summary["min"] <= summary["median"] <= summary["max"]
    assert math.isclose(summary["mean"] * len(values), math.fsum(values), abs_tol=1e-6)


@given(samples, st.integers(0, 1000))
def test_percentile_leaves_enough_samples_below(values, tenths):
    found = percentile(values, tenths / 10)
    below = sum(value <= found for value in values)
    assert 1000 * below >= tenths * len(values)
