"""A range of shapes built by TensorRT on a board (the double): an engine for each listed shape, and
one with profiles for the others.
"""

import json

import numpy as np
import pytest

from tests.pipeline.nets import open_config
from tests.pipeline.test_board_build import board, jobs, pipeline


@pytest.mark.boards
@pytest.mark.slow
def test_a_board_builds_and_runs_every_shape(tmp_path):
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = open_config(tmp_path / "config")
        path.write_text(path.read_text() + deploy + 'tensorrt: "10.3"\n')
        with pipeline(path, tmp_path) as one:
            document = one.run().document
        requests = [json.loads(job.read_text())["request"] for job in jobs(tmp_path)]
        manifest = json.loads(
            next((tmp_path / "lab/apps").glob("*/current/manifest.json")).read_text()
        )
        frame = np.zeros((1, 3, 24, 56), np.float32)
        np.savez(tmp_path / "x.npz", x=frame)
        with pipeline(path, tmp_path) as one:
            found = one.infer(tmp_path / "x.npz", tmp_path / "y.npz")
    assert document.backend == "tensorrt"
    engines = [engine for request in requests for engine in request["engines"]]
    assert sorted(engine["device"] for engine in engines) == ["DLA0", "DLA0", "DLA0", "GPU"]
    (ranged,) = [engine for engine in engines if engine["profiles"]]
    assert ranged["profiles"] == [
        {"x": {"min": [1, 3, 16, 16], "opt": [1, 3, 64, 64], "max": [1, 3, 64, 64]}}
    ]
    assert ranged["inputs"][0]["shape"] == [1, 3, -1, -1]
    assert ranged["outputs"][0]["shape"] == [1, 8, -1, -1]
    assert manifest["schema"] == "edgekit.bundle/3"
    golden = manifest["variants"][-1]["golden"]
    assert [case.get("shapes", {}) for case in golden] == [{}, {"x": [1, 3, 16, 16]}]
    assert found.outputs[0].shape == [1, 8, 12, 28]
