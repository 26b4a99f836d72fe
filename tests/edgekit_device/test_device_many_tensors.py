"""Networks with more weights than a process may have files open, on a board of few descriptors."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle, Golden, golden_inputs
from edgekit.bundles.pack import pack
from edgekit.bundles.sign import sign
from edgekit.network.model import Network, Tensor
from edgekit.reference.artefacts import Artefacts, EngineSegment, Weight
from edgekit.reference.weights import weight_digest
from tests.bundles import bundle_toys
from tests.edgekit_device.device_board import BoardFolder

_SHM = "/dev/shm"
TENSORS, DESCRIPTORS = 10_000, 256
# most are a few bytes, as biases and scales are, and many of these are the same
LARGE, ELEMENTS, SMALL_VALUES = 600, 1100, 200


def _values(version: int) -> dict[str, np.ndarray]:
    found = {}
    for index in range(TENSORS):
        large = index < LARGE
        value = index if large else LARGE + index % SMALL_VALUES
        # half of them are others in the second version
        seed = float(value + TENSORS * (version if value % 2 else 0))
        found[f"w{index}"] = np.full((1, ELEMENTS if large else 4), seed, np.float32)
    return found


def _bundle(version: int, key: Path) -> Bundle:
    """y = x + the sum of all weights' means, in one engine."""
    values = _values(version)
    node = helper.make_node
    large = [name for name, array in values.items() if array.shape[1] == ELEMENTS]
    small = [name for name in values if name not in set(large)]
    nodes = [
        node("Concat", large, ["l"], "large", axis=1),
        node("Concat", small, ["s"], "small", axis=1),
        node("Concat", ["l", "s"], ["all"], "both", axis=1),
        node("ReduceMean", ["all"], ["mean"], "mean", axes=[1], keepdims=1),
        node("Add", ["x", "mean"], ["y"], "add"),
    ]
    shape = (1, 4)
    graph = helper.make_graph(
        nodes,
        "engine",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info("y", 1, shape)],
        [bundle_toys._stub(name, array) for name, array in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data = model.SerializeToString(deterministic=True)
    engine = hashlib.sha256(data).hexdigest()
    digests = {name: weight_digest(array) for name, array in values.items()}
    artefacts = Artefacts(
        backend="reference",
        lanes=((1.0, (EngineSegment(0, "GPU", ("s2",), ("x",), ("y",), engine),)),),
        engines={engine: data},
        weights={
            name: Weight(name, name, "none", digests[name], "float32", array.shape)
            for name, array in values.items()
        },
        values={digests[name]: array for name, array in values.items()},
        fingerprint={"backend": "reference", "runtime": "onnxruntime", "optimisation": "off"},
    )
    tensors = {name: Tensor(name, shape, "float32") for name in ("x", "y")}
    network = Network("many", (), tensors, ("x",), ("y",))
    ranges = {"x": (-1.0, 1.0)}
    inputs = golden_inputs(network, 1, ranges)
    mean = np.concatenate(list(values.values()), axis=1, dtype=np.float64).mean()
    golden = Golden(1, ranges, {"y": (inputs["x"] + mean).astype(np.float32)}, 1e-3)
    bundle = pack(
        name="many",
        model=bundle_toys.toy_model(version),
        network=network,
        plan=bundle_toys.plan(),
        artefacts=artefacts,
        golden=[golden],
    )
    return bundle.signed(sign(bundle.manifest_bytes, key))


def _few_descriptors() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))


def _install(board: BoardFolder, source: Path, policy: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        board.argv(
            "install", "--from", str(source), "--app", "many", "--policy", json.dumps(policy)
        ),
        capture_output=True,
        check=False,
        preexec_fn=_few_descriptors,
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of fsyncs are not what is tried here."""
    with tempfile.TemporaryDirectory(dir=_SHM if os.access(_SHM, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.whole
def test_ten_thousand_tensors_deploy_refit_and_update_at_256_descriptors(
    memory: Path, loader: Path, signer_line: str, signing_key: Path
) -> None:
    board = BoardFolder(memory / "root", loader)
    board.trust(signer_line)
    sources = []
    for version in (1, 2):
        # a folder: each weight is a file of its own there, too
        sources.append(memory / f"bundle-{version}")
        write(_bundle(version, signing_key), sources[-1], stripped=False)
    first = _install(board, sources[0], {"measure_s": 0})
    second = _install(board, sources[1], {"measure_s": 0})
    assert (first["state"], second["state"]) == ("committed", "committed")
    assert second["previous"] == first["release"]
