"""The digits example: from training to three deployed INT8 bundles."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

import edgekit_device

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "digits"
# not imported: every worker collects this file, and scikit-learn takes seconds
if importlib.util.find_spec("sklearn") is None:
    pytest.skip("scikit-learn is an extra: pip install -e '.[examples]'", allow_module_level=True)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    yield importlib.import_module("train")
    for name in ("train", "network"):
        sys.modules.pop(name, None)


@pytest.mark.whole
def test_a_loss_of_more_than_one_percent_fails(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.show([("FP32", 0.97), ("a", 0.97), ("b", 0.9601)]) == 0
    assert script.show([("FP32", 0.97), ("a", 0.99), ("b", 0.9599)]) == 1
    assert "NOT within 1% of FP32" in capsys.readouterr().out


@pytest.mark.whole
def test_gradients_are_those_of_the_loss(script: ModuleType) -> None:
    network = script.network
    (x, labels), _ = script.split(0)
    x, labels = x[:6].astype(np.float64), labels[:6]
    params = {name: value.astype(np.float64) for name, value in network.initial(3).items()}
    # away from the corners of ReLU, where there is no gradient
    rng = np.random.default_rng(0)
    params |= {f"b{n}": rng.normal(size=len(params[f"b{n}"])) for n in (1, 2, 3)}

    def loss() -> float:
        logits, _ = network.forward(params, x)
        logits = logits - logits.max(axis=1, keepdims=True)
        shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return float(-shares[np.arange(len(x)), labels].mean())

    found = network.gradients(params, x, labels, None)
    for name, value in params.items():
        at = tuple(int(rng.integers(size)) for size in value.shape)
        value[at] += 1e-6
        above = loss()
        value[at] -= 2e-6
        below = loss()
        value[at] += 1e-6
        assert found[name][at] == pytest.approx((above - below) / 2e-6, rel=1e-3, abs=1e-6)


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
def test_int8_on_the_board_is_within_one_percent(tmp_path: Path) -> None:
    environment = {**os.environ, "EDGEKIT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "train.py"), "--out", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = {
        match[1].strip(): float(match[2]) / 100
        for match in re.finditer(r"^(\S.*?)\s+([\d.]+)%\s+[+-]", done.stdout, re.MULTILINE)
    }
    wanted, *others = table.values()
    assert len(others) == 3
    assert wanted > 0.95
    assert min(others) >= wanted - 0.01
    # counted again, from what the script left on the board
    stored = np.load(tmp_path / "test.npz")
    for (title, share), name in zip(
        list(table.items())[1:], ("digits", "digits-qdq", "digits-qat"), strict=True
    ):
        model = edgekit_device.load(tmp_path / "cache" / "board" / "apps" / name)
        found = [model({"x": x[None]})["logits"].argmax() for x in stored["x"]]
        assert np.mean(found == stored["labels"]) == pytest.approx(share, abs=1e-4), title
        (lane,) = json.loads((tmp_path / name / "plan.json").read_text())["plans"]
        precisions = {layer["name"]: layer["precision"] for layer in lane["layers"]}
        assert precisions["c1"] == precisions["c2"] == "int8"
    pairs = {
        name: sum(n.op_type == "QuantizeLinear" for n in onnx.load(tmp_path / name).graph.node)
        for name in ("digits.onnx", "digits-qdq.onnx", "digits-qat.onnx")
    }
    assert pairs["digits.onnx"] == 0
    assert pairs["digits-qat.onnx"] == 6
    assert pairs["digits-qdq.onnx"] > 3
