"""A board that was upgraded builds its engines again from what came with the bundle, alone."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

from tests.edgekit_device.changed_trt import examine_there
from tests.edgekit_device.test_device_trt_commands import TensorRTBoard
from tests.pipeline.test_board_build import board, config_of, jobs, pipeline
from tests.trt_double.board import board_python, offences

# a user's own program on the board
_PROGRAM = """
import glob, io, sys
sys.path.insert(0, sorted(glob.glob(sys.argv[1] + "/bin/*.pyz"))[0])
import numpy as np
import edgekit_device
model = edgekit_device.load(sys.argv[1] + "/apps/small")
x = {t.name: np.full(t.shape, 0.25, t.dtype) for t in model.inputs}
np.savez(sys.argv[2], **model(x))
print("\\n".join(model.notes))
"""


def run(python, tmp_path, name):
    done = subprocess.run(
        [str(python), "-c", _PROGRAM, str(tmp_path / "lab"), str(tmp_path / name)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(np.load(tmp_path / name)), done.stdout


@pytest.mark.boards
@pytest.mark.slow
def test_what_a_deployment_sends_is_enough_to_build_again(tmp_path):
    with board(tmp_path, "10.3.0") as (deploy, before):
        wishes = "  health: {on_change: rebuild, samples: 2, accuracy_min: 0.9}\n"
        path = config_of(tmp_path, deploy + wishes, "10.3", "{refit: any}")
        with pipeline(path, tmp_path) as one:
            one.deploy()
        manifest = json.loads(
            next((tmp_path / "lab/apps").glob("*/current/manifest.json")).read_bytes()
        )
        kinds = [blob["kind"] for blob in manifest["blobs"].values()]
        assert kinds.count("request") == 1
        assert kinds.count("model") == len(manifest["rebuild"]["blobs"])
        health = json.loads(
            next((tmp_path / "lab/apps").glob("*/current/health.json")).read_bytes()
        )
        assert health["accuracy"]["value"] >= 0.9
        first, notes = run(before, tmp_path, "before.npz")
        assert "built on this board" not in notes
        # the host is gone from here on; the board has another TensorRT
        after = board_python(tmp_path / "upgraded", "10.7.0")
        second, notes = run(after, tmp_path, "after.npz")
        assert "built on this board for TensorRT 10.7.0" in notes
        for name, value in first.items():
            np.testing.assert_allclose(second[name], value, atol=0.02 * np.abs(value).max())
        (home,) = (tmp_path / "lab/apps").glob("*/current/rebuilt/*")
        assert json.loads((home / "build.json").read_bytes())["result"]["tensorrt"].startswith(
            "10.7.0"
        )
        # it is built once, and a deployment of the same bundle tests what it runs now
        loader = next((tmp_path / "lab/bin").glob("*.pyz"))
        there = TensorRTBoard(tmp_path / "lab", loader, after)
        count = len(jobs(tmp_path))
        found = examine_there(there, "small")
        assert found["fingerprint"]["tensorrt"].startswith("10.7.0")
        assert there.ask("selftest", "--app", "small")["ok"] is True
        assert len(jobs(tmp_path)) == count
        # what others may write is not believed: it is built again
        (home / "build.json").chmod(0o666)
        shutil.rmtree(tmp_path / "lab/jobs")
        assert there.ask("selftest", "--app", "small")["ok"] is True
        assert len(jobs(tmp_path)) == 1
        assert offences(after) == []
