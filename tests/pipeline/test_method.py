"""``calibration.method: auto`` takes the method that measures best, and says what it compared.

SNRs are those of the reference backend on this CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

import edgekit
from edgekit.quantize import METHODS
from tests.pipeline.nets import small_net

F = np.float32
BOARD = {"target": "jetson-agx-orin-64gb", "rewrite": {"enable": "none"}}


def network(path: Path, *, clip: bool) -> Path:
    """Two convolutions with a residual sum; with ``clip`` the inputs are cut off to +-3 first."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": (rng.standard_normal((16, 4, 3, 3)) / 6).astype(F),
        "w2": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(F),
        "low": np.array(-3, F),
        "high": np.array(3, F),
    }
    first = helper.make_node("Clip", ["x", "low", "high"], ["c"], "clip")
    nodes = [
        *([first] if clip else []),
        helper.make_node("Conv", ["c" if clip else "x", "w1"], ["a"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"], "relu1"),
        helper.make_node("Conv", ["r", "w2"], ["b"], "conv2", pads=[1] * 4),
        helper.make_node("Add", ["b", "r"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["t"], "relu2"),
        helper.make_node("AveragePool", ["t"], ["y"], "pool", kernel_shape=[4, 4], strides=[4, 4]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", 1, [1, 4, 16, 16])],
        [helper.make_tensor_value_info("y", 1, [1, 16, 4, 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def usual(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_normal((count, 4, 16, 16))


def glitches(rng: np.random.Generator, count: int) -> np.ndarray:
    """One value of 10,000 is a glitch, which the network cuts off."""
    x = usual(rng, count)
    spots = rng.random(x.shape) < 5e-5
    spots.flat[:: x.size // 2] = True
    return np.where(spots, 400.0, x)


def peaks(rng: np.random.Generator, count: int) -> np.ndarray:
    """A few large values that carry most of the signal."""
    x = usual(rng, count) * 0.3
    return np.where(rng.random(x.shape) < 3e-3, x * 60, x)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))


def saved(folder: Path, draw: Callable[..., np.ndarray], count: int) -> str:
    np.save(folder / "data.npy", draw(np.random.default_rng(1), count).astype(F))
    return str(folder / "data.npy")


def test_auto_is_at_most_one_db_below_the_best_whatever_the_data_ask_for(tmp_path: Path) -> None:
    chosen = {}
    for draw, clip in ((glitches, True), (peaks, False)):
        path = network(tmp_path / "net.onnx", clip=clip)
        calibration = {"data": saved(tmp_path, draw, 24), "count": 16}
        snr: dict[str, float] = {}
        for method in (*METHODS, "auto"):
            built = edgekit.build(path, calibration={**calibration, "method": method}, **BOARD)
            snr[method] = built["accuracy"]["snr_db"]
        best = max(METHODS, key=snr.__getitem__)
        assert snr["auto"] > snr[best] - 1, (draw, snr)
        chosen[draw] = {method for method in METHODS if snr[method] > snr[best] - 1}
    # no single method would have done
    assert not set.intersection(*chosen.values()), chosen


def test_what_was_compared_is_told(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=True)
    calibration = {"data": saved(tmp_path, glitches, 24), "count": 8}
    found = edgekit.calibrate(path, calibration=calibration, **BOARD)
    choice = found["choice"]
    assert choice["snr_db"].keys() == set(METHODS)
    assert found["method"] == choice["method"] == max(METHODS, key=choice["snr_db"].__getitem__)
    # those behind the first eight of 24
    assert 8 <= choice["held_out"] <= 16
    (note,) = [note for note in found["notes"] if note.startswith("calibration method")]
    assert all(f"{name} {value:.1f}" in note for name, value in choice["snr_db"].items())
    assert "emulated on this machine" in note
    built = edgekit.build(path, calibration=calibration, **BOARD)
    assert note in built["notes"]


def test_a_method_that_is_named_is_taken_without_comparing(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=True)
    calibration = {"data": saved(tmp_path, glitches, 8), "method": "minmax"}
    found = edgekit.calibrate(path, calibration=calibration, **BOARD)
    assert (found["method"], found["choice"]) == ("minmax", None)
    assert not any("calibration method" in note for note in found["notes"])


@pytest.mark.parametrize(("count", "held_out"), [(1, 0), (2, 2), (7, 6)])
def test_data_without_further_samples_are_compared_on_in_halves(
    tmp_path: Path, count: int, held_out: int
) -> None:
    path = network(tmp_path / "net.onnx", clip=True)
    calibration = {"data": saved(tmp_path, glitches, count)}
    choice = edgekit.calibrate(path, calibration=calibration, **BOARD)["choice"]
    assert choice["held_out"] == held_out
    assert choice["inputs"] == max(held_out, 1)


def test_synthetic_inputs_are_held_out_too(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=False)
    choice = edgekit.calibrate(path, calibration={"count": 2}, **BOARD)["choice"]
    assert 8 <= choice["held_out"] <= 16


def test_a_damaged_image_that_was_not_asked_for_is_left_aside(tmp_path: Path) -> None:
    small_net(tmp_path / "small.onnx")
    images = tmp_path / "images"
    images.mkdir()
    for index in range(5):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(images / f"{index}.png")
    (images / "4.png").write_bytes(b"no image")
    calibration = {"data": str(images), "count": 3}
    choice = edgekit.calibrate(tmp_path / "small.onnx", calibration=calibration, **BOARD)["choice"]
    assert choice["held_out"] == 1


def test_calibrate_needs_no_possible_plan(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=False)
    options: dict[str, Any] = {"placement": {"bounds": {"latency_us": 1e-3}}, **BOARD}
    found = edgekit.calibrate(path, calibration={"count": 2}, **options)
    assert found["choice"]["method"] in METHODS
