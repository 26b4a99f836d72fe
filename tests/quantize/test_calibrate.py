"""Calibration: ranges, methods, ties between tensors, and data that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import DataError, UsageError
from edgekit.network import session
from edgekit.quantize import METHODS, calibrate
from edgekit.quantize._histogram import BINS, Histogram
from edgekit.quantize._methods import amax_of
from tests.quantize.quantize_nets import branches, make, node

F = np.float32
MODEL, NETWORK = branches()


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (1, 3, 8, 8)) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal(shape).astype(F)} for _ in range(count)]


def test_minmax_is_the_largest_magnitude_over_127() -> None:
    data = images(5)
    scales = calibrate(MODEL, NETWORK, data, method="minmax").scales
    runs = [session(MODEL, outputs=["a", "b", "c", "y"]).run(None, feed) for feed in data]
    a, b, c, y = (max(np.abs(run[i]).max() for run in runs) for i in range(4))
    assert scales["x"] == F(max(np.abs(feed["x"]).max() for feed in data) / 127)
    assert scales["c"] == pytest.approx(c / 127, rel=1e-6)
    assert scales["y"] == pytest.approx(y / 127, rel=1e-6)
    # concatenation and pooling: one scale for all that they tie together
    assert a < b / 2
    for name in ("a", "b", "joined", "pooled"):
        assert scales[name] == pytest.approx(b / 127, rel=1e-6)


def test_every_float_tensor_has_a_scale_that_is_a_float32() -> None:
    scales = calibrate(MODEL, NETWORK, images(2))
    assert set(scales.scales) == set(NETWORK.tensors)
    assert all(value == float(F(value)) > 0 for value in scales.scales.values())
    assert scales.missing == ()
    assert scales.data == "2 samples"


def test_the_digest_follows_the_values_and_data_is_read_once() -> None:
    seen: list[int] = []

    def stream() -> Iterator[dict]:
        for index, feed in enumerate(images(3)):
            seen.append(index)
            yield feed

    told: list[tuple[int, int]] = []
    first = calibrate(MODEL, NETWORK, stream(), progress=lambda a, b: told.append((a, b)))
    again = calibrate(MODEL, NETWORK, images(3))
    other = calibrate(MODEL, NETWORK, images(3, seed=1))
    assert seen == [0, 1, 2]
    assert told == [(1, 0), (2, 0), (3, 0)]
    assert first.digest == again.digest != other.digest
    assert dict(first.scales) == dict(again.scales)


def filled(values: np.ndarray, parts: int = 1) -> Histogram:
    histogram = Histogram()
    for part in np.array_split(values, parts):
        assert histogram.add(part)
    return histogram


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), parts=st.integers(1, 6), exponent=st.integers(-130, 120))
def test_a_growing_histogram_loses_no_count(seed: int, parts: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    growth = np.repeat(2.0 ** rng.integers(0, 6, 6), 50)[:300]
    values = (rng.standard_normal(300) * growth * 2.0**exponent).astype(F)
    histogram = filled(values, parts)
    assert histogram.amax == np.abs(values).max()
    if histogram.counts is None:
        assert not values.any()
        return
    assert histogram.counts.sum() == 300
    # cumulative counts agree with the values themselves, up to one bin's rounding
    edges = np.arange(1, BINS + 1) * (histogram.top / BINS)
    exact = np.searchsorted(np.sort(np.abs(values.astype(np.float64))), edges)
    cumulative = np.cumsum(histogram.counts)
    assert (cumulative[:-1] <= np.append(exact, 300)[1:-1]).all()
    assert (cumulative[1:] >= exact[:-1]).all()


def test_zeros_before_the_first_value_are_counted() -> None:
    histogram = Histogram()
    histogram.add(np.zeros(10, F))
    histogram.add(np.array([1.0, -2.0], F))
    assert histogram.counts is not None
    assert histogram.counts[0] == 10
    assert histogram.counts.sum() == 12


@pytest.mark.parametrize("method", METHODS)
def test_no_method_clips_beyond_what_was_seen(method: str) -> None:
    rng = np.random.default_rng(3)
    for values in (
        rng.standard_normal(100_000),
        rng.uniform(-1, 1, 5000),
        np.maximum(rng.standard_normal(10_000), 0),
        np.array([3.0]),
        rng.laplace(size=30_000),
    ):
        amax = amax_of(filled(values.astype(F), 3), method)
        assert 0 < amax <= np.abs(values.astype(F)).max()
    assert amax_of(filled(np.zeros(5, F)), method) == 0


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_outliers_are_clipped(method: str) -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(F)
    values[:3] = 60
    amax = amax_of(filled(values), method)
    assert 2.5 < amax < 12


def test_uniform_values_are_not_clipped_by_entropy() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, 300_000).astype(F)
    assert amax_of(filled(values), "entropy") > 0.97


def slow_entropy(counts: np.ndarray, top: float) -> tuple[float, dict[int, float]]:
    """The published loop: reference P, quantised Q, every candidate on its own."""
    hist = counts.astype(np.float64)
    hist[0] = hist[1]
    last = int(np.flatnonzero(hist)[-1]) + 1
    found = {}
    first = next(e for e in range(last + 1) if hist[:e].sum() >= 0.99 * hist.sum())
    for end in [*range(max(first, 128), last, 4), last]:
        p = hist[:end].copy()
        p[-1] += hist[end:].sum()
        q = np.zeros(end)
        for low, high in pairwise(end * np.arange(129) // 128):
            used = hist[low:high] > 0
            if used.any():
                q[low:high][used] = hist[low:high].sum() / used.sum()
        if q[-1] == 0 and p[-1] > 0:
            found[end] = np.inf
            continue
        p, q = p / p.sum(), q / q.sum()
        used = p > 0
        found[end] = float((p[used] * np.log(p[used] / q[used])).sum())
    best = min(found, key=found.__getitem__)
    return best * top / counts.size, found


@pytest.mark.parametrize("kind", ["normal", "laplace", "relu", "heavy", "far"])
def test_vectorised_entropy_equals_the_published_loop(kind: str) -> None:
    rng = np.random.default_rng(7)
    values = {
        "normal": rng.standard_normal(70_000),
        "laplace": rng.laplace(size=70_000),
        "relu": np.maximum(rng.standard_normal(70_000), 0),
        "heavy": rng.standard_normal(70_000) ** 3,
        "far": rng.normal(10, 1, 70_000),
    }[kind]
    histogram = filled(values.astype(F))
    assert histogram.counts is not None
    expected, table = slow_entropy(histogram.counts, histogram.top)
    found = amax_of(histogram, "entropy")
    if found != pytest.approx(min(expected, histogram.amax)):
        # two candidates may tie up to rounding
        end = round(found / histogram.top * BINS)
        assert table[end] == pytest.approx(min(table.values()), rel=1e-9)


def test_entropy_does_not_clip_away_values_that_lie_far_from_zero() -> None:
    values = np.random.default_rng(0).normal(10, 1, 100_000).astype(F)
    assert amax_of(filled(values), "entropy") > 12


def test_entropy_keeps_the_whole_range_of_few_values() -> None:
    values = np.random.default_rng(0).standard_normal(16_000).astype(F)
    histogram = filled(values)
    assert amax_of(histogram, "entropy") == histogram.amax


def test_mse_beats_no_clipping_where_it_clips() -> None:
    values = np.random.default_rng(0).laplace(size=100_000).astype(F)

    def error(amax: float) -> float:
        scale = amax / 127
        return float(((np.clip(np.rint(values / scale), -127, 127) * scale - values) ** 2).mean())

    histogram = filled(values)
    best = amax_of(histogram, "mse")
    assert error(best) <= min(error(histogram.amax * part) for part in (1, 0.9, 0.8, 0.5)) * 1.001


def test_no_data_unknown_method_and_bad_inputs_are_told() -> None:
    with pytest.raises(DataError, match="no calibration data") as caught:
        calibrate(MODEL, NETWORK, [])
    assert caught.value.code == "calibration.empty"
    with pytest.raises(UsageError, match="'magic'"):
        calibrate(MODEL, NETWORK, images(1), method="magic")
    good = images(1)[0]["x"]
    cases = [
        ({"z": good}, r"unknown inputs 'z'; missing inputs 'x'"),
        ({}, "missing inputs 'x'"),
        ({"x": good[..., :7]}, r"shape \[1, 3, 8, 7\]"),
        ({"x": good.astype(np.complex64)}, "complex64"),
    ]
    for feed, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            calibrate(MODEL, NETWORK, [{"x": good}, feed])
        assert caught.value.where == "calibration sample 1"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.uint8])
def test_other_number_types_are_converted(dtype: type) -> None:
    feed = {"x": np.arange(192).reshape(1, 3, 8, 8).astype(dtype)}
    assert calibrate(MODEL, NETWORK, [feed], method="minmax").scales["x"] == F(191 / 127)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bad_value_in_an_input_is_named(value: float) -> None:
    feed = images(1)[0]
    feed["x"][0, 0, 0, 0] = value
    with pytest.raises(DataError) as caught:
        calibrate(MODEL, NETWORK, [*images(2), feed])
    assert caught.value.code == "calibration.nonfinite"
    assert caught.value.where == "x"
    assert "sample 2" in caught.value.message


def test_the_first_tensor_that_overflows_is_named() -> None:
    nodes = [node("Relu", "x", "fine"), node("Exp", "fine", "huge"), node("Relu", "huge", "y")]
    model, network = make(nodes, {}, {"x": [1, 4]}, ["y"])
    with pytest.raises(DataError) as caught:
        calibrate(model, network, [{"x": np.full((1, 4), 1000, F)}])
    assert caught.value.where == "huge"


def test_a_tensor_of_zeros_gets_a_usable_scale() -> None:
    model, network = make([node("Relu", "x", "y")], {}, {"x": [1, 4]}, ["y"])
    scales = calibrate(model, network, [{"x": np.full((1, 4), -1, F)}]).scales
    assert scales["y"] == F(1 / 127)


def test_outputs_are_taken_in_chunks_when_memory_demands(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = calibrate(MODEL, NETWORK, images(2))
    monkeypatch.setattr("edgekit.quantize._calibrate._CHUNK_BYTES", 1500)
    assert calibrate(MODEL, NETWORK, images(2)).scales == whole.scales
