"""Calibration: ranges, methods, ties between tensors, and data that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edgekit.errors import DataError, UsageError
from edgekit.quantize.calibration.calibrate import calibrate
from tests.quantize.quantize_nets import branches, make, node

F = np.float32
MODEL, NETWORK = branches()


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (1, 3, 8, 8)) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal(shape).astype(F)} for _ in range(count)]


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

    progress: list[tuple[int, int]] = []
    first = calibrate(MODEL, NETWORK, stream(), progress=lambda a, b: progress.append((a, b)))
    again = calibrate(MODEL, NETWORK, images(3))
    other = calibrate(MODEL, NETWORK, images(3, seed=1))
    assert seen == [0, 1, 2]
    assert progress[:3] == [(1, 0), (2, 0), (3, 0)]
    assert first.digest == again.digest != other.digest
    assert dict(first.scales) == dict(again.scales)


def test_no_data_unknown_method_and_bad_inputs_are_refused() -> None:
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


def test_a_tensor_of_zeros_gets_a_usable_scale() -> None:
    model, network = make([node("Relu", "x", "y")], {}, {"x": [1, 4]}, ["y"])
    scales = calibrate(model, network, [{"x": np.full((1, 4), -1, F)}]).scales
    assert scales["y"] == F(1 / 127)
