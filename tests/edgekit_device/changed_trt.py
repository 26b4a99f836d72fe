"""A TensorRT release on a board whose TensorRT is another one from some day on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from edgekit.bundle import Bundle, sign
from tests.edgekit_device import build_toys as toys
from tests.edgekit_device.device_trt_toys import full_version, network
from tests.edgekit_device.test_device_trt_commands import TensorRTBoard, trt_bundle
from tests.trt_double.board import board_python

__all__ = ["examine_there", "folder_of", "two_boards", "upgradable"]

_EXAMINE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from edgekit_device._errors import DeviceError
from edgekit_device._health import examine
from edgekit_device._root import Root
root = Root(Path(sys.argv[2]))
app = root.app(sys.argv[3])
try:
    print(json.dumps(examine(root, app, app.release(None), json.loads(sys.argv[4]))))
except DeviceError as error:
    print(json.dumps(error.to_json()))
"""


def two_boards(tmp_path: Path, loader: Path, signer_line: str) -> tuple[TensorRTBoard, ...]:
    """One root below two Pythons: TensorRT 10.3.0, and 10.7.0 as an upgrade brings it."""
    root = tmp_path / "root"
    boards = tuple(
        TensorRTBoard(root, loader, board_python(tmp_path / version, version))
        for version in ("10.3.0", "10.7.0")
    )
    boards[0].trust(signer_line)
    return boards


def upgradable(key: Path, *, on_change: str, other_weights: bool = False) -> Bundle:
    """The toy as a stripped plan of 10.3, with its ONNX file and the request that built it.

    With ``other_weights`` the ONNX file is of other weights than the golden outputs are.
    """
    bundle = trt_bundle("10.3.0", ["STRIP_PLAN"], fingerprint={
        "backend": "tensorrt", "tensorrt": full_version("10.3.0")})  # fmt: skip
    model = network(seed=int(other_weights)).SerializeToString()
    engine = toys.engine(
        "lane0", model=toys.sha(model), device="GPU", gpu_fallback=False, precisions=[],
        layers=[], calibration=None, pools={}, attempts=[{"flags": [], "gives_up": ""}],
    )  # fmt: skip
    document = toys.request(engine)
    request = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    manifest: dict[str, Any] = json.loads(bundle.manifest_bytes)
    more = {hashlib.sha256(blob).hexdigest(): blob for blob in (request, model)}
    first, second = more
    kinds = {first: "request", second: "model"}
    manifest["blobs"].update(
        {digest: {"bytes": len(blob), "kind": kinds[digest]} for digest, blob in more.items()}
    )
    manifest["requires"] = {
        "backend": "tensorrt", "loader": "edgekit.device/1", "runtime": None,
        "boards": [{"module": "", "l4t": "", "tensorrt": full_version("10.3.0")}],
        "portable": False, "dla_cores": [], "cudla": False, "disk_bytes": 1, "memory_bytes": 1,
        "on_change": on_change,
    }  # fmt: skip
    if on_change == "rebuild":
        manifest["rebuild"] = {"request": first, "blobs": [second], "relative": 0.02}
    text = (json.dumps(manifest, sort_keys=True, separators=(",", ":")) + "\n").encode()
    made = dataclasses.replace(
        bundle, manifest=manifest, manifest_bytes=text, blobs={**bundle.blobs, **more}
    )
    return made.signed(sign(text, key))


def folder_of(board: TensorRTBoard, app: str, release: str) -> Path:
    """The release's folder."""
    return board.root / "apps" / app / "releases" / release


def examine_there(board: TensorRTBoard, app: str, **policy: Any) -> dict[str, Any]:
    """What a deployment asks of the current release, in a process of the board's."""
    done = subprocess.run(
        [str(board.python), "-c", _EXAMINE, str(board.loader), str(board.root), app,
         json.dumps({"measure_s": 0, **policy})],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found
