"""The accuracy gate tries the other calibration methods before a layer goes to FP16.

One of 16 measured inputs is far out: the method that suits all others clips it, and the gate's SNR,
over all values of all inputs, counts that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.errors import GateError
from edgekit.quantize.calibration.histograms import METHODS
from tests.reference.test_method import BOARD, network, usual


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    x = usual(np.random.default_rng(5), 48)
    x[3, :, 2:5, 2:5] = 12.0
    np.save(folder / "data.npy", x.astype(np.float32))
    network(folder / "net.onnx", clip=False)
    return folder


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "kept"))


def built(folder: Path, method: str = "auto", **gate: Any) -> dict[str, Any]:
    calibration = {"data": str(folder / "data.npy"), "count": 16, "method": method}
    found = edgekit.build(folder / "net.onnx", calibration=calibration, accuracy=gate, **BOARD)
    return found.to_json()


def snr_of(folder: Path) -> dict[str, float]:
    return {name: built(folder, name)["accuracy"]["snr_db"] for name in (*METHODS, "auto")}


def test_a_method_that_misses_the_gate_gives_way_to_the_best_one(folder: Path) -> None:
    snr = snr_of(folder)
    chosen = min(METHODS, key=snr.__getitem__)
    best = max(METHODS, key=snr.__getitem__)
    assert snr["auto"] == snr[chosen] < snr[best] - 6
    found = built(folder, metric="snr_db", min=(snr["auto"] + snr[best]) / 2)
    assert found["accuracy"]["snr_db"] == pytest.approx(snr[best])
    (note,) = [note for note in found["notes"] if note.startswith("Calibration method")]
    assert note.startswith(f"Calibration method: {best}, by the accuracy gate (snr_db on ")
    assert f"{chosen}, the choice by SNR on " in note
    assert "misses snr_db" in note
    assert all(f"{name} {snr[name]:.6g}" in note for name in METHODS)
    assert not any("kept in FP16" in note for note in found["notes"])
    (step,) = [step for step in found["steps"] if step["name"] == "build"]
    assert f"INT8 by {best}, taken by the accuracy gate" in step["detail"]


def test_layers_go_to_fp16_from_the_best_method_only_where_all_miss(folder: Path) -> None:
    snr = snr_of(folder)
    best = max(METHODS, key=snr.__getitem__)
    minimum = snr[best] + 3
    found = built(folder, metric="snr_db", min=minimum)
    assert found["accuracy"]["snr_db"] >= minimum
    (note,) = [note for note in found["notes"] if note.startswith("No calibration method")]
    assert f"continues from the best, {best}" in note
    assert any("kept in FP16" in note for note in found["notes"])


def test_a_run_says_which_method_the_gate_took(folder: Path, tmp_path: Path) -> None:
    snr = snr_of(folder)
    best = max(METHODS, key=snr.__getitem__)
    config = tmp_path / "net.yaml"
    config.write_text(
        f"version: 1\nname: net\nmodel: {{onnx: {folder / 'net.onnx'}}}\n"
        "target: jetson-agx-orin-64gb\nprecision: int8\nrewrite: {enable: none}\n"
        f"calibration: {{data: {folder / 'data.npy'}, count: 16}}\n"
        f"accuracy: {{metric: snr_db, min: {snr[best] - 1}}}\n"
        "bench: {warmup_ms: 0, duration_s: 0, iterations: 2}\n"
    )
    calibration = edgekit.run(config, out=tmp_path / "out").document.calibration
    gate = calibration.choice.gate
    assert calibration.method == gate.method == best != calibration.choice.method
    assert gate.passes
    assert gate.figures == {name: pytest.approx(snr[name]) for name in METHODS}


def test_a_method_that_is_named_stays_and_it_is_said_how_to_try_the_others(folder: Path) -> None:
    snr = snr_of(folder)
    worst = min(METHODS, key=snr.__getitem__)
    found = built(folder, worst, metric="snr_db", min=snr[worst] + 3)
    assert any("calibration: {method: auto}" in note for note in found["notes"])
    assert any("kept in FP16" in note for note in found["notes"])
    with pytest.raises(GateError):
        built(folder, metric="snr_db", min=snr[worst] + 3, fallback="none")
