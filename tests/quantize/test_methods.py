"""Methods: entropy as ONNX Runtime has it, and what each must at least do."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnxruntime.quantization.calibrate import HistogramCollector

from edgekit.quantize.calibration.histograms import (
    FEWEST,
    METHODS,
    choose_amax,
    clipping_edge,
    entropy_if_sure,
    nearest_candidate,
)
from edgekit.quantize.calibration.measure import exact_counts
from tests.quantize.test_histogram import filled
from tests.tries import tries

F = np.float32


def onnxruntime_of(values: np.ndarray, bins: int = 2048) -> tuple[np.ndarray, float]:
    """The histogram and threshold of onnxruntime.quantization, by its own code."""
    collector = HistogramCollector("entropy", False, bins, 128, None, None)
    collector.collect_value({"t": values})
    histogram = collector.histogram_dict["t"]
    low, high = collector.get_entropy_threshold(histogram, 128)
    return histogram[0], max(abs(float(low)), abs(float(high)))


def drawn(kind: str, seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(count)
    return {
        "relu": lambda: np.maximum(normal + rng.uniform(-2, 1), 0),
        "symmetric": lambda: normal,
        "heavy": lambda: normal**3,
        "laplace": lambda: rng.laplace(size=count) * rng.uniform(0.01, 100),
        "far": lambda: rng.normal(rng.uniform(5, 20), 1, count),
        "few values": lambda: rng.choice(rng.standard_normal(6), count),
        "constant": lambda: np.full(count, rng.standard_normal()),
        "softmax": lambda: np.exp(4 * normal) / np.exp(4 * normal).sum(),
        "uniform": lambda: rng.uniform(-1, 0.5, count),
    }[kind]().astype(F)


KINDS = [
    "relu",
    "symmetric",
    "heavy",
    "laplace",
    "far",
    "few values",
    "constant",
    "softmax",
    "uniform",
]


# a small histogram of theirs: their loops take seconds for 2048 bins
@settings(max_examples=tries(20))
@given(st.sampled_from(KINDS), st.integers(0, 1000), st.sampled_from([300, 5000, 60_000]))
def test_the_threshold_of_a_histogram_is_that_of_onnxruntime(
    kind: str, seed: int, count: int
) -> None:
    values = drawn(kind, seed, count)
    counts, expected = onnxruntime_of(values, 384)
    found = clipping_edge(nearest_candidate(counts), float(values.min()), float(values.max()), 384)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["heavy"])
def test_with_2048_bins_too(kind: str) -> None:
    values = drawn(kind, 5, 50_000)
    counts, expected = onnxruntime_of(values)
    found = clipping_edge(nearest_candidate(counts), float(values.min()), float(values.max()))
    assert found == pytest.approx(expected, rel=1e-6)


@settings(max_examples=tries(25))
@given(st.sampled_from(KINDS), st.integers(0, 1000), st.sampled_from([2000, 140_000, 300_000]))
@example("heavy", 72, 140_000)  # a tie that one draw of the counts' errors took for decided
def test_finer_bins_give_the_same_threshold_or_say_that_it_is_open(
    kind: str, seed: int, count: int
) -> None:
    values = drawn(kind, seed, count)
    low, high = float(values.min()), float(values.max())
    amax = max(high, -low)
    exact = clipping_edge(
        nearest_candidate(np.histogram(values, 2048, (-amax, amax))[0]), low, high
    )
    found = entropy_if_sure(filled(values, 3)) if count >= FEWEST else None
    assert found is None or found == pytest.approx(exact, abs=amax / 1024 * 1.01)


@pytest.mark.parametrize("method", METHODS)
def test_no_method_clips_beyond_what_was_seen(method: str) -> None:
    for kind in KINDS:
        values = drawn(kind, 3, 20_000)
        amax = choose_amax(filled(values, 3), method)
        assert 0 < amax <= np.abs(values).max()
    assert choose_amax(filled(np.zeros(5, F)), method) == 0
    tiny = np.array([1e-40, -3e-41], F)
    assert choose_amax(filled(tiny), method) == tiny[0]


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_outliers_are_clipped(method: str) -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(F)
    values[:3] = 60
    assert 2.5 < choose_amax(filled(values), method) < 12


def test_percentile_is_the_value_at_its_rank() -> None:
    values = np.random.default_rng(0).laplace(size=100_000).astype(F)
    histogram = filled(values, 5)
    exact = np.sort(np.abs(values))[int(100_000 * 0.9999) - 1]
    found = choose_amax(histogram, "percentile")
    assert found == pytest.approx(exact, abs=histogram.top / 8000)
    assert found >= exact  # the value at the rank is not clipped itself


def test_mse_beats_no_clipping_where_it_clips() -> None:
    values = np.random.default_rng(0).laplace(size=100_000).astype(F)

    def error(amax: float) -> float:
        scale = amax / 127
        return float(((np.clip(np.rint(values / scale), -127, 127) * scale - values) ** 2).mean())

    histogram = filled(values)
    best = choose_amax(histogram, "mse")
    assert error(best) <= min(error(histogram.amax * part) for part in (1, 0.9, 0.8, 0.5)) * 1.001


@settings(max_examples=tries(40))
@given(st.sampled_from([*KINDS, "edges"]), st.integers(0, 1000), st.integers(-60, 60))
def test_exact_counts_are_those_of_numpy(kind: str, seed: int, exponent: int) -> None:
    if kind == "edges":
        values = np.linspace(-0.3, 0.3, 20_481).astype(F) * F(1 + seed / 1000)
    else:
        values = drawn(kind, seed, 20_000)
    values = values * F(2.0**exponent)
    amax = np.abs(values).max()
    expected = np.histogram(values, 2048, (-amax, amax))[0]
    assert np.array_equal(exact_counts(values, float(amax), 2048), expected)


def test_entropy_keeps_the_whole_range_of_few_values() -> None:
    values = np.random.default_rng(0).standard_normal(FEWEST).astype(F) ** 3
    few, enough = filled(values[:-1]), filled(values)
    assert choose_amax(few, "entropy") == entropy_if_sure(few) == few.amax
    assert choose_amax(enough, "entropy") < enough.amax
    # tensors of light_resnet50 over 64 images have more: there it is ONNX Runtime's method alone
    assert FEWEST < 64 * 1000
