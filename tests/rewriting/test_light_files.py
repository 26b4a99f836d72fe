"""What the light models become, as files that others open."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
import pytest

from edgekit.network.loading.load import load
from edgekit.network.model import metadata
from edgekit.network.session import session
from edgekit.network.writing import save
from edgekit.placement.forecast import forecast
from edgekit.rewriting.provenance.record import KEY
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get

LIGHT = Path(os.path.dirname(onnx.backend.test.__file__), "data/light")
ORIN = get("jetson-agx-orin-64gb")
# those of hundreds of megabytes are rewritten in the same ways
NETS = {"squeezenet": 2_000, "inception_v1": 2_000, "shufflenet": 200_000}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_a_light_model_is_valid_the_same_and_hardly_larger(name, tmp_path):
    before = load(LIGHT / f"light_{name}.onnx")
    after, applied, notes, *_ = rewrite(
        before,
        ORIN,
        precision="fp16",
        cost=lambda network, judgement: forecast(network, judgement, ORIN),
    )
    assert applied
    assert notes == ()
    path = tmp_path / "out.onnx"
    save(after, path)
    onnx.checker.check_model(path, full_check=True)
    assert len(metadata(after, KEY).encode()) < NETS[name]
    opened = onnxruntime.InferenceSession(path)  # with all its optimisations
    old = session(before, optimise=False)
    random = np.random.default_rng(0)
    feed = {v.name: random.standard_normal(v.shape).astype(np.float32) for v in old.get_inputs()}
    for a, b in zip(old.run(None, feed), opened.run(None, feed), strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
