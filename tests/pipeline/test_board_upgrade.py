"""A board that was upgraded refuses what it serves until the configuration is deployed again."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from edgekit.errors import BoardError
from tests.pipeline.test_board_build import board, config_of, jobs, pipeline
from tests.trt_double.board import board_python, offences

# a user's own program on the board
_PROGRAM = """
import glob, sys
sys.path.insert(0, sorted(glob.glob(sys.argv[1] + "/bin/*.pyz"))[0])
import numpy as np
import edgekit_device
try:
    model = edgekit_device.load(sys.argv[1] + "/apps/small")
except edgekit_device.DeviceError as error:
    sys.exit(f"{error.code}: {error.message}: {error.hint}")
x = {t.name: np.full(t.shape, 0.25, t.dtype) for t in model.inputs}
np.savez(sys.argv[2], **model(x))
"""


def run(python, tmp_path, name):
    done = subprocess.run(
        [str(python), "-c", _PROGRAM, str(tmp_path / "lab"), str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return dict(np.load(tmp_path / name)) if done.returncode == 0 else done.stderr


@pytest.mark.whole
@pytest.mark.boards
@pytest.mark.slow
def test_the_command_that_the_refusal_names_mends_it(tmp_path):
    with board(tmp_path, "10.3.0") as (deploy, python):
        gates = "  health: {samples: 2, accuracy_min: 0.9}\n"
        path = config_of(tmp_path, deploy + gates, "10.3", "{refit: any}")
        with pipeline(path, tmp_path) as one:
            (first,) = one.deploy().to_json()["releases"]
        current = tmp_path / "lab/apps/small/current"
        health = json.loads((current / "health.json").read_bytes())
        assert health["accuracy"]["value"] >= 0.9
        manifest = json.loads((current / "manifest.json").read_bytes())
        assert {blob["kind"] for blob in manifest["blobs"].values()} == {
            "engine",
            "golden",
            "record",
            "sample",
        }
        before = run(python, tmp_path, "before.npz")
        assert len(jobs(tmp_path)) == 1
        # JetPack brings another TensorRT
        upgraded = board_python(tmp_path / "upgraded", "10.7.0")
        python.write_text(upgraded.read_text())
        refused = run(python, tmp_path, "refused.npz")
        assert refused.startswith("board.changed: ")
        assert "tensorrt 10.3.0" in refused
        assert "edgekit deploy CONFIG" in refused
        assert current.resolve().name == first["release"]
        assert len(jobs(tmp_path)) == 1
        with pipeline(path, tmp_path) as two, pytest.raises(BoardError) as caught:
            two.deploy()
        assert caught.value.code == "board.other-tensorrt"
        assert "tensorrt: 10.7" in caught.value.hint
        path = config_of(tmp_path, deploy + gates, "10.7", "{refit: any}")
        with pipeline(path, tmp_path) as three:
            (second,) = three.deploy().to_json()["releases"]
        assert second["release"] != first["release"]
        assert len(jobs(tmp_path)) == 2
        after = run(python, tmp_path, "after.npz")
        for name, value in before.items():
            np.testing.assert_allclose(after[name], value, atol=0.02 * np.abs(value).max())
        assert offences(upgraded) == []
