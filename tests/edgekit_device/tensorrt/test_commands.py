"""The board's commands on a TensorRT bundle: the zipapp in processes that find the double."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundles.manifest import Bundle
from edgekit.bundles.pack import finish
from edgekit.bundles.sign import sign
from edgekit_device.cuda.driver import load_driver
from edgekit_device.protocol.manifest import (
    BlobEntry,
    GoldenCase,
    GoldenOutput,
    ModelSource,
    Range,
    Tolerance,
)
from edgekit_device.runtime.golden import golden_inputs
from tests.edgekit_device.device_board import BoardFolder, Refused, bench_option
from tests.edgekit_device.tensorrt.toys import (
    SHAPE,
    checked,
    entry,
    network,
    plan,
    reference,
    weights_of,
)
from tests.trt_double.board import board_python, offences

RANGES = {"x": (-1.0, 1.0)}


@dataclass(frozen=True)
class TensorRTBoard(BoardFolder):
    """A board whose Python has the double."""

    python: Path = Path()

    def argv(self, command: str, *options: str) -> list[str]:
        return [str(self.python), *super().argv(command, *options)[1:]]


def trt_bundle(version: str, flags: list[str], *, fingerprint: dict[str, str]) -> Bundle:
    """The toy network as a stripped plan, with golden vectors of ONNX Runtime."""
    model, about = network(), entry(version, stripped=True, refit="identical")
    weights, data = weights_of(model, version), plan(version, flags)
    made = checked(data, about, weights=weights, fingerprint=fingerprint).manifest
    wanted = reference(model, golden_inputs(made.inputs, 7, RANGES)["x"])
    digest = hashlib.sha256(wanted.tobytes()).hexdigest()
    case = GoldenCase(
        7,
        {"x": Range(*RANGES["x"])},
        {"y": GoldenOutput(digest, "float32", wanted.shape)},
        Tolerance(1e-4),
    )
    manifest = replace(
        made,
        model=ModelSource("0" * 64, "toy"),
        stripped=True,
        golden=(case,),
        blobs={**made.blobs, digest: BlobEntry(wanted.nbytes, "golden")},
    )
    (engine,) = made.engines
    values = {made.weights[name].digest: array for name, array in weights.items()}
    return finish(manifest, {engine: data, digest: wanted.tobytes()}, values)


Signed = Callable[..., Bundle]


@pytest.fixture
def signed(signing_key: Path) -> Signed:
    def make(version: str, *, fingerprint: dict[str, str] | None = None) -> Bundle:
        bundle = trt_bundle(version, ["STRIP_PLAN"], fingerprint=fingerprint or {})
        return bundle.signed(sign(bundle.manifest_bytes, signing_key))

    return make


def a_board(tmp_path: Path, loader: Path, signer_line: str, version: str) -> TensorRTBoard:
    python = board_python(tmp_path / "python", version)
    board = TensorRTBoard(tmp_path / "root", loader, python)
    board.trust(signer_line)
    return board


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["10.3.0", "11.4.0"])
def test_deploy_selftest_infer_and_bench(
    tmp_path: Path, loader: Path, signer_line: str, signed: Signed, version: str
) -> None:
    board = a_board(tmp_path, loader, signer_line, version)
    bundle = signed(version)
    release = board.install(bundle)
    folder = board.root / "apps" / bundle.name / "releases" / release
    assert len(list((folder / "refitted").glob("*.plan"))) == 1
    assert board.command("selftest", "--app", bundle.name)["ok"] is True
    x = np.random.default_rng(3).uniform(-1, 1, SHAPE).astype(np.float32)
    found = board.infer(bundle.name, x=x)["y"]
    np.testing.assert_allclose(found, reference(network(), x), rtol=1e-5)
    frames = board.infer(bundle.name, "--frames", x=np.stack([x, -x]))["y"]
    np.testing.assert_allclose(frames[1], reference(network(), -x), rtol=1e-5)
    how = bench_option(warmup_ms=0, duration_s=0, iterations=2, profile=True)
    bench = board.command("bench", "--app", bundle.name, how)
    assert (bench["backend"], bench["clock"]) == ("tensorrt", "board-measured")
    assert "conv" in {node["node"] for node in bench["nodes"]}
    assert offences(board.python) == []


@pytest.mark.whole
def test_weights_come_from_an_onnx_file_on_the_board(
    tmp_path: Path, loader: Path, signer_line: str, signed: Signed
) -> None:
    board = a_board(tmp_path, loader, signer_line, "10.3.0")
    bundle = signed("10.3.0")
    board.send(bundle.blobs)
    release = board.stage(bundle)
    file, other = tmp_path / "toy.onnx", tmp_path / "other.onnx"
    file.write_bytes(network().SerializeToString())
    other.write_bytes(network(seed=1).SerializeToString())
    refit = ("refit", "--app", bundle.name, "--release", release)
    with pytest.raises(Refused) as caught:
        board.command(*refit)
    assert caught.value.code == "blob.missing"
    with pytest.raises(Refused, match="conv_w") as caught:
        board.command(*refit, "--onnx", str(other))
    assert caught.value.code == "refit.other-weights"
    assert board.command(*refit, "--onnx", str(file))["weights"] == len(bundle.weights)
    board.command("switch", "--app", bundle.name, "--release", release)
    assert board.command("selftest", "--app", bundle.name)["ok"] is True
    assert offences(board.python) == []


def test_a_bundle_of_another_release_is_refused_by_both_names(
    tmp_path: Path, loader: Path, signer_line: str, signed: Signed
) -> None:
    board = a_board(tmp_path, loader, signer_line, "10.7.0")
    with pytest.raises(Refused) as caught:
        board.install(signed("10.3.0", fingerprint={"tensorrt": "10.3.0.30"}))
    assert caught.value.code == "engine.other-board"
    assert "10.3.0.30" in caught.value.message
    assert "10.7.0" in caught.value.message


@pytest.mark.skipif(load_driver() is not None, reason="this machine has a CUDA driver")
def test_without_a_gpu_nothing_crashes(
    tmp_path: Path, loader: Path, signer_line: str, signed: Signed
) -> None:
    python = board_python(tmp_path / "python", "10.3.0", cuda="none")
    board = TensorRTBoard(tmp_path / "root", loader, python)
    board.trust(signer_line)
    with pytest.raises(Refused) as caught:
        board.install(signed("10.3.0"))
    assert caught.value.code == "board.no-gpu"
