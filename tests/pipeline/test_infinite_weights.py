"""Weights with infinities: nothing is quantised of them, whatever gives the scales."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit import network
from edgekit.config import open_config
from edgekit.errors import ModelError
from edgekit.pipeline import Cache, Pipeline, from_qdq_document
from edgekit.quantize import cache_of, to_qdq, write_cache
from tests.quantize.qdq_nets import Sheet
from tests.rewrite.nets import net, node, weight

ORIN = "jetson-agx-orin-64gb"
SCALES = {"x": 0.01, "c": 0.02, "y": 0.02}


@pytest.fixture
def model(tmp_path) -> Path:
    values = weight(4, 3, 3, 3)
    values[2, 1, 0, 0] = np.inf
    made = net(
        [node("Conv", "x kernel", "c", "conv"), node("Relu", "c", "y", "relu")],
        {"x": (1, 3, 8, 8)}, ["y"], {"kernel": values},
    )  # fmt: skip
    path = tmp_path / "inf.onnx"
    network.save(made, path)
    write_cache(cache_of(SCALES, "8.5"), tmp_path / "calib.cache")
    return path


def pipeline(model: Path, **options):
    config = open_config(str(model), target=ORIN, **options)
    return Pipeline(config, out=model.parent / "out", cache=Cache(model.parent / "kept"))


@pytest.mark.parametrize("given", [{}, {"calibration": {"cache": "calib.cache"}}])
@pytest.mark.parametrize("ask", ["plan", "calibrate", "build"])
def test_int8_is_refused_with_the_name(model, monkeypatch, ask, given):
    monkeypatch.chdir(model.parent)
    with pytest.raises(ModelError, match="'kernel'") as caught, pipeline(model, **given) as made:
        getattr(made, ask)()
    assert caught.value.code == "model.nonfinite"
    assert "'conv'" in caught.value.message


def test_weights_are_looked_at_once(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("edgekit.quantize.check_weights", lambda model: seen.append(model.digest))
    kernel = {"kernel": weight(4, 3, 3, 3)}
    made = net([node("Conv", "x kernel", "y", "conv")], {"x": (1, 3, 8, 8)}, ["y"], kernel)
    network.save(made, tmp_path / "fine.onnx")
    for _ in range(2):
        with pipeline(tmp_path / "fine.onnx") as one:
            one.plan()
            one.calibrate()
    assert len(seen) == 1


def test_no_infinite_scales_are_written(model):
    loaded = network.load(model)
    with pytest.raises(ModelError, match="'kernel'"):
        to_qdq(loaded, network.layers(loaded), SCALES)


def test_a_qdq_model_of_such_weights_is_not_translated(tmp_path):
    kernel = np.ones((4, 3, 3, 3), np.float32)
    kernel[0, 0, 0, 0] = np.inf
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 3, 8, 8), 0.02)
    y = sheet.node("Conv", f"{x} {sheet.constant('kernel', kernel)}", "conv")
    onnx.save(sheet.proto(sheet.qdq(y, 0.03)), tmp_path / "q.onnx")
    with pytest.raises(ModelError, match="'kernel'"):
        from_qdq_document(tmp_path / "q.onnx", model=tmp_path / "plain.onnx")
    assert not (tmp_path / "plain.onnx").exists()


def test_other_precisions_are_planned(model):
    with pipeline(model, precision="fp16") as made:
        assert made.plan().layers
