"""A range of shapes built by TensorRT on a board (the double): an engine for each listed shape, and
one with profiles for the others.
"""

import json

import numpy as np
import onnx
import pytest

from edgekit_device.build.config import read_scales
from tests.pipeline.nets import open_config
from tests.pipeline.test_board_build import board, jobs, pipeline


def scales_of(folder, engine):
    """The scales of an engine's calibration cache, from the board's store."""
    (blob,) = (folder / "lab").rglob(engine["calibration"])
    return read_scales(blob.read_bytes())


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
    # INT8, calibrated at the best shape, by the names of the file's tensors
    assert ranged["precisions"] == ["fp16", "int8"]
    assert {layer["name"]: layer["precision"] for layer in ranged["layers"]}["conv1"] == "int8"
    assert set(scales_of(tmp_path, ranged)) == {"x", "c1", "r1", "c2", "r2", "y"}
    notes = " ".join(document.notes)
    assert "the engine of the range is INT8, calibrated at 1x3x64x64: there cosine 0.9" in notes
    assert manifest["schema"] == "edgekit.bundle/3"
    golden = manifest["variants"][-1]["golden"]
    assert [case.get("shapes", {}) for case in golden] == [{}, {"x": [1, 3, 16, 16]}]
    assert found.outputs[0].shape == [1, 8, 12, 28]


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_the_engine_of_a_range_has_its_types_where_they_are_strong(tmp_path, precision):
    # the DLA is supported from 11.4.1 on, whose names are those of 11.4.0
    with board(tmp_path, "11.4.0", called="11.4.1.1") as (deploy, _):
        path = open_config(tmp_path / "config", precision=precision)
        path.write_text(path.read_text() + deploy + 'tensorrt: "11.4.1"\n')
        with pipeline(path, tmp_path) as one:
            one.build()
        requests = [json.loads(job.read_text())["request"] for job in jobs(tmp_path)]
        (ranged,) = [e for r in requests for e in r["engines"] if e["profiles"]]
        (blob,) = (tmp_path / "lab").rglob(ranged["model"])
        nodes = onnx.load_from_string(blob.read_bytes()).graph.node
    assert ranged["typing"] == "strong"
    assert ranged["calibration"] is None
    assert ranged["precisions"] == []
    kinds = [node.op_type for node in nodes]
    assert kinds.count("Conv") == 3
    assert ("QuantizeLinear" in kinds) == (precision == "int8")
    assert ("Cast" in kinds) == (precision == "fp16")
