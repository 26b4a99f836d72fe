"""Weights with infinities: nothing is quantised of them, whatever gives the scales."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.config.loader import open_config
from edgekit.errors import ModelError
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.writing import save
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.qdq import from_qdq_document
from edgekit.quantize.caches import make_cache, write_cache
from edgekit.quantize.qdq.to_explicit import to_qdq
from tests.quantize.qdq_nets import Sheet
from tests.rewriting.nets import net, node, weight

ORIN = "jetson-agx-orin-64gb"
SCALES = {"x": 0.01, "c": 0.02, "y": 0.02}


@pytest.fixture
def model(tmp_path) -> Path:
    values = weight(4, 3, 3, 3)
    values[2, 1, 0, 0] = np.inf
    made = net(
        [node("Conv", "x kernel", "c", "conv"), node("Relu", "c", "y", "relu")],
        {"x": (1, 3, 8, 8)},
        ["y"],
        {"kernel": values},
    )
    path = tmp_path / "inf.onnx"
    save(made, path)
    write_cache(make_cache(SCALES, "8.5"), tmp_path / "calib.cache")
    return path


def pipeline(model: Path, **options):
    config = open_config(str(model), target=ORIN, **options)
    return Pipeline(config, out=model.parent / "out", cache=Cache(model.parent / "kept"))


@pytest.mark.parametrize("given", [{}, {"calibration": {"cache": "calib.cache"}}])
@pytest.mark.parametrize("query", ["plan", "calibrate", "build"])
def test_int8_is_refused_with_the_name(model, monkeypatch, query, given):
    monkeypatch.chdir(model.parent)
    with pytest.raises(ModelError, match="'kernel'") as caught, pipeline(model, **given) as made:
        getattr(made, query)()
    assert caught.value.code == "model.nonfinite"
    assert "'conv'" in caught.value.message


def test_weights_are_looked_at_once(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "edgekit.quantize.calibration.checks.check_weights", lambda model: seen.append(model.digest)
    )
    kernel = {"kernel": weight(4, 3, 3, 3)}
    made = net([node("Conv", "x kernel", "y", "conv")], {"x": (1, 3, 8, 8)}, ["y"], kernel)
    save(made, tmp_path / "fine.onnx")
    for _ in range(2):
        with pipeline(tmp_path / "fine.onnx") as one:
            one.plan()
            one.calibrate()
    assert len(seen) == 1


def test_no_infinite_scales_are_written(model):
    loaded = load(model)
    with pytest.raises(ModelError, match="'kernel'"):
        to_qdq(loaded, layers(loaded), SCALES)


def test_a_qdq_model_of_such_weights_is_not_translated(tmp_path):
    kernel = np.ones((4, 3, 3, 3), np.float32)
    kernel[0, 0, 0, 0] = np.inf
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 3, 8, 8), 0.02)
    y = sheet.node("Conv", f"{x} {sheet.constant('kernel', kernel)}", "conv")
    onnx.save(sheet.proto(sheet.qdq(y, 0.03)), tmp_path / "q.onnx")
    with pytest.raises(ModelError, match="'kernel'"):
        from_qdq_document(tmp_path / "q.onnx", out=tmp_path / "plain.onnx")
    assert not (tmp_path / "plain.onnx").exists()


def test_other_precisions_are_planned(model):
    with pipeline(model, precision="fp16") as made:
        assert made.plan().layers
