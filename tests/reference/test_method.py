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
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.segments import cut_segments
from edgekit.quantize.calibration.calibrate import scales_from
from edgekit.quantize.calibration.histograms import METHODS
from edgekit.quantize.calibration.measure import measure
from edgekit.quantize.data.load import load_data
from edgekit.reference.accuracy import accuracy
from edgekit.reference.build import build_reference
from tests.pipeline.nets import small_net
from tests.reference.toy_nets import place_all, plan_of

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
        nodes,
        "net",
        [helper.make_tensor_value_info("x", 1, [1, 4, 16, 16])],
        [helper.make_tensor_value_info("y", 1, [1, 16, 4, 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
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


def test_auto_is_at_most_one_db_below_the_best_whatever_the_data_query_for(tmp_path: Path) -> None:
    chosen = {}
    for draw, clip in ((glitches, True), (peaks, False)):
        path = network(tmp_path / "net.onnx", clip=clip)
        calibration = {"data": saved(tmp_path, draw, 24), "count": 16}
        snr: dict[str, float] = {}
        for method in (*METHODS, "auto"):
            built = edgekit.build(
                path, calibration={**calibration, "method": method}, **BOARD
            ).to_json()
            snr[method] = built["accuracy"]["snr_db"]
        best = max(METHODS, key=snr.__getitem__)
        assert snr["auto"] > snr[best] - 1, (draw, snr)
        chosen[draw] = {method for method in METHODS if snr[method] > snr[best] - 1}
    # no single method would have done
    assert not set.intersection(*chosen.values()), chosen


def test_what_was_compared_is_reported(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=True)
    calibration = {"data": saved(tmp_path, glitches, 24), "count": 8}
    found = edgekit.calibrate(path, calibration=calibration, **BOARD).to_json()
    choice = found["choice"]
    assert choice["snr_db"].keys() == set(METHODS)
    best = max(choice["snr_db"].values())
    near = choice["measured_snr_db"] or choice["snr_db"]
    # within 1 dB those count that the accuracy is told of
    assert found["method"] == choice["method"] == max(near, key=near.__getitem__)
    assert choice["snr_db"][choice["method"]] >= best - 1
    # those behind the first eight of 24 come first
    assert 8 <= choice["held_out"] <= 16
    assert choice["held_out"] == min(choice["inputs"], 16)
    (note,) = [note for note in found["notes"] if note.startswith("Calibration method")]
    assert all(f"{name} {value:.1f}" in note for name, value in choice["snr_db"].items())
    assert "emulated on this machine" in note
    built = edgekit.build(path, calibration=calibration, **BOARD).to_json()
    assert note in built["notes"]


def test_a_method_that_is_named_is_taken_without_comparing(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=True)
    calibration = {"data": saved(tmp_path, glitches, 8), "method": "minmax"}
    found = edgekit.calibrate(path, calibration=calibration, **BOARD).to_json()
    assert (found["method"], found["choice"]) == ("minmax", None)
    assert not any("Calibration method" in note for note in found["notes"])


@pytest.mark.parametrize(("count", "held_out"), [(1, 0), (2, 2), (7, 6)])
def test_data_without_further_samples_are_compared_on_in_halves(
    tmp_path: Path, count: int, held_out: int
) -> None:
    path = network(tmp_path / "net.onnx", clip=True)
    calibration = {"data": saved(tmp_path, glitches, count)}
    choice = edgekit.calibrate(path, calibration=calibration, **BOARD).to_json()["choice"]
    assert choice["held_out"] == held_out
    assert choice["inputs"] == max(held_out, 1)


def test_synthetic_inputs_are_held_out_too(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=False)
    choice = edgekit.calibrate(path, calibration={"count": 2}, **BOARD).to_json()["choice"]
    assert choice["held_out"] == choice["inputs"] >= 8


def test_a_damaged_image_that_was_not_requested_is_left_aside(tmp_path: Path) -> None:
    small_net(tmp_path / "small.onnx")
    images = tmp_path / "images"
    images.mkdir()
    for index in range(5):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(images / f"{index}.png")
    (images / "4.png").write_bytes(b"no image")
    calibration = {"data": str(images), "count": 3}
    choice = edgekit.calibrate(tmp_path / "small.onnx", calibration=calibration, **BOARD).to_json()[
        "choice"
    ]
    assert choice["held_out"] == 1


def test_calibrate_needs_no_possible_plan(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", clip=False)
    options: dict[str, Any] = {"placement": {"bounds": {"latency_us": 1e-3}}, **BOARD}
    found = edgekit.calibrate(path, calibration={"count": 2}, **options).to_json()
    assert found["choice"]["method"] in METHODS


def test_one_odd_input_does_not_decide(tmp_path: Path) -> None:
    """Of 80 inputs one has most of the squared error; what suits all others is chosen."""
    path = network(tmp_path / "net.onnx", clip=False)
    rng = np.random.default_rng(5)
    x = usual(rng, 96)
    # measured, and once more among those that are held out: min-max alone does not clip them
    x[3, 0, 0, 0] = x[20, :, 2:5, 2:5] = 90.0
    np.save(tmp_path / "data.npy", x[:80].astype(F))
    np.save(tmp_path / "fresh.npy", x[80:].astype(F))
    calibration = {"data": str(tmp_path / "data.npy"), "count": 16}
    choice = edgekit.calibrate(path, calibration=calibration, **BOARD).to_json()["choice"]
    model, snr = load(path), {}
    network_layers = layers(model)
    ranges = measure(model, load_data(calibration, model), network=network_layers)
    plan = plan_of(place_all(network_layers, "int8", lambda index: 0))
    for method in METHODS:
        scales = scales_from(network_layers, ranges, method)
        built = build_reference(cut_segments(model, network_layers, plan), scales)
        snr[method] = accuracy(model, built, load_data(tmp_path / "fresh.npy", model)).snr_db
    assert snr[choice["method"]] > max(snr.values()) - 1, (choice, snr)
    assert min(snr.values()) < max(snr.values()) - 6, snr


def detector(path: Path) -> Path:
    """Boxes of x, up to 640, and scores of z, which are above 0.25 in few places, in one tensor."""
    rng = np.random.default_rng(0)
    weights = {
        "wx": (rng.standard_normal((4, 4, 3, 3)) / 6).astype(F),
        "wz": np.array([[0.5, 0, 0, 0], [0, 0.5, 0, 0]], F).reshape(2, 4, 1, 1),
        "bz": np.array([-5, -5], F),
        "low": np.array(-3, F),
        "high": np.array(3, F),
        "stride": np.array(80, F),
        "middle": np.array(320, F),
        "flat": np.array([1, -1, 128 * 128]),
    }
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["c"], "clip"),
        helper.make_node("Conv", ["c", "wx"], ["b"], "boxes", pads=[1] * 4),
        helper.make_node("Mul", ["b", "stride"], ["m"], "scaled"),
        helper.make_node("Add", ["m", "middle"], ["a"], "moved"),
        helper.make_node("Conv", ["z", "wz", "bz"], ["l"], "logits"),
        helper.make_node("Sigmoid", ["l"], ["s"], "scores"),
        helper.make_node("Concat", ["a", "s"], ["j"], "joined", axis=1),
        helper.make_node("Reshape", ["j", "flat"], ["y"], "places"),
    ]
    size = [1, 4, 128, 128]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info(name, 1, size) for name in "xz"],
        [helper.make_tensor_value_info("y", 1, [1, 6, 128 * 128])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.whole
def test_a_method_that_loses_a_detectors_scores_does_not_win(tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16, 4, 128, 128))
    # glitches that the network cuts off: boxes are best where they are clipped
    x[rng.random(x.shape) < 5e-5] = 40.0
    # what is detected is as rare: scores are best where nothing is clipped
    z = rng.standard_normal(x.shape) * 0.05
    for sample in z:
        sample.reshape(4, -1)[rng.integers(0, 2, 5), rng.permutation(128 * 128)[:5]] = 20.0
    np.savez(tmp_path / "data.npz", x=x.astype(F), z=z.astype(F))
    calibration = {"data": str(tmp_path / "data.npz"), "count": 8}
    choice = edgekit.calibrate(path, calibration=calibration, **BOARD).to_json()["choice"]
    built = edgekit.build(
        path,
        calibration={**calibration, "method": choice["method"]},
        accuracy={"fallback": "none"},
        **BOARD,
    )
    (scores,) = built.accuracy.scores
    assert scores.above >= 20
    assert scores.kept >= 0.95 * scores.above
    # others lose them, and it is said
    assert choice["failures"]
    assert choice["method"] not in choice["failures"]
    assert choice["snr_db"][choice["method"]] > max(choice["snr_db"][n] for n in choice["failures"])


def test_methods_that_cannot_be_reported_apart_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_net(tmp_path / "net.onnx", scale=0.0)
    (tmp_path / "net.yaml").write_text(
        "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: jetson-agx-orin-64gb\n"
        "precision: int8\ncalibration: {count: 4}\n"
    )
    document = edgekit.build(tmp_path / "net.yaml").to_json()
    (note,) = [note for note in document["notes"] if note.startswith("Calibration method")]
    assert "All methods give the same SNR against FP32 on 8 inputs other than those" in note
    (step,) = [step for step in document["steps"] if step["name"] == "build"]
    assert "INT8 by entropy, because the methods give equal results here" in step["detail"]
    assert "999" not in note + step["detail"]
