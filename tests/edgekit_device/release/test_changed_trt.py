"""After an upgrade of TensorRT a release is refused by what changed, with what mends it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.sign import sign
from tests.edgekit_device.device_board import Refused
from tests.edgekit_device.tensorrt.test_commands import TensorRTBoard, trt_bundle
from tests.edgekit_device.tensorrt.toys import SHAPE, full_version, network, reference
from tests.trt_double.board import board_python, offences

X = np.random.default_rng(3).uniform(-1, 1, SHAPE).astype(np.float32)

_EXAMINE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from edgekit_device.deployment.health import examine
from edgekit_device.protocol.codec import write
from edgekit_device.release.policy import Policy
from edgekit_device.store.root import Root
root = Root(Path(sys.argv[2]))
app = root.app(sys.argv[3])
print(json.dumps(write(examine(root, app, app.release(None), Policy(measure_s=0.0)))))
"""


def examine_there(board: TensorRTBoard, app: str) -> dict[str, Any]:
    """What a deployment asks of the current release, in a process of the board's."""
    done = subprocess.run(
        [str(board.python), "-c", _EXAMINE, str(board.loader), str(board.root), app],
        capture_output=True,
        check=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.whole
def test_an_upgraded_tensorrt_is_refused_by_what_changed(
    tmp_path: Path, loader: Path, signer_line: str, signing_key: Path
) -> None:
    # one root below two Pythons: TensorRT 10.3.0, and 10.7.0 as an upgrade brings it
    before, after = (
        TensorRTBoard(tmp_path / "root", loader, board_python(tmp_path / version, version))
        for version in ("10.3.0", "10.7.0")
    )
    before.trust(signer_line)
    fingerprint = {"backend": "tensorrt", "tensorrt": full_version("10.3.0")}
    bundle = trt_bundle("10.3.0", ["STRIP_PLAN"], fingerprint=fingerprint)
    bundle = bundle.signed(sign(bundle.manifest_bytes, signing_key))
    before.install(bundle)
    health = examine_there(before, bundle.name)
    assert (health["backend"], health["clock"]) == ("tensorrt", "board-measured")
    with pytest.raises(Refused) as caught:
        after.infer(bundle.name, x=X)
    assert caught.value.code == "board.changed"
    assert "tensorrt 10.3.0" in caught.value.message
    assert "-> 10.7.0" in caught.value.message
    assert "edgekit deploy CONFIG" in caught.value.hint
    assert not (after.root / "jobs").exists()  # nothing is built or tested there unasked
    # back on the old TensorRT nothing is wrong with it
    np.testing.assert_allclose(before.infer(bundle.name, x=X)["y"], reference(network(), X), 1e-5)
    assert offences(before.python) + offences(after.python) == []
