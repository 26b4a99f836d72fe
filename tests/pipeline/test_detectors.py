"""Detectors in INT8 keep their detections, through the whole way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.build import Runner
from edgekit.config import load_config
from edgekit.network import load, session
from edgekit.pipeline import Cache, Pipeline
from tests.pipeline.detectors import DETECTORS, THRESHOLD, build, images

pytestmark = pytest.mark.slow

CONFIG = """\
version: 1
name: {name}
model: {{onnx: net.onnx}}
target: jetson-agx-orin-64gb
precision: int8
calibration: {{data: images.npz, count: 64}}
bench: {{warmup_ms: 0, duration_s: 0, iterations: 2}}
"""


@pytest.fixture(scope="session")
def detected(tmp_path_factory):
    """Runs a detector once; returns the run's document, its plan, and both kinds of scores."""
    known = {}

    def run(name):
        if name in known:
            return known[name]
        detector = DETECTORS[name]
        folder = tmp_path_factory.mktemp(name)
        build(detector, folder / "net.onnx")
        feeds = images(detector)
        np.savez(folder / "images.npz", images=np.concatenate(feeds))
        (folder / "net.yaml").write_text(CONFIG.format(name=name))
        config, cache = load_config(folder / "net.yaml"), Cache(folder / "cache")
        with Pipeline(config, out=folder / "out", cache=cache) as pipeline:
            document = pipeline.run().document
            built = Runner(pipeline.work.artefacts)
            plan = pipeline.work.plan
        whole = session(load(folder / "net.onnx"))
        names = [value.name for value in whole.get_outputs()]
        wanted, found = [], []
        for x in feeds:
            outputs = dict(zip(names, whole.run(None, {"images": x}), strict=True))
            wanted.append(detector.scores(outputs))
            found.append(detector.scores(built.run({"images": x})))
        known[name] = document, plan, np.concatenate(wanted), np.concatenate(found)
        return known[name]

    return run


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_in_int8_keeps_its_detections(detected, name):
    document, plan, wanted, found = detected(name)
    share = (wanted.max(axis=1) > THRESHOLD).mean()
    assert 0.005 <= share <= 0.02
    # the scores go on through the threshold: no gap makes it easy
    assert ((wanted > THRESHOLD * 0.8) & (wanted <= THRESHOLD)).any()
    assert ((wanted > THRESHOLD) & (wanted < THRESHOLD * 1.2)).any()
    above = wanted > THRESHOLD
    assert above.sum() >= 200
    kept = (above & (found > THRESHOLD)).sum()
    assert kept >= 0.95 * above.sum(), f"{kept} of {above.sum()}"
    assert not document["accuracy"]["failures"]
    report = json.loads(Path(document["files"]["report"]).with_suffix(".json").read_text())
    for key in ("groups", "scores", "failures"):
        assert report["accuracy"][key] == document["accuracy"][key]
    int8 = [layer for layer in plan.layers if layer.precision == "int8"]
    assert len(int8) > len(plan.layers) / 2, "INT8 is what was asked for"
    assert any("the network's end" in note for note in document["notes"])
