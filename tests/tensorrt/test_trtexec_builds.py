"""The command lines build through the double's trtexec of each release, which is as strict."""

import subprocess

import pytest

from edgekit.buildlog.summary import parse_summary
from edgekit.tensorrt.options import decide
from edgekit.tensorrt.trtexec import trtexec_command
from edgekit_device.build.request import Attempt
from tests.edgekit_device import build_toys as toys
from tests.tensorrt.build_requests import requested_build, spec
from tests.trt_double.board import board_python, board_trtexec, offences

HEADER = {"8.6.1": 8601, "10.3.0": 100300, "10.7.0": 100700, "10.16.1": 101601}


def run(folder, version, engine, attempt, model, *, cores=2):
    """Puts paths in the place of the names in braces, as a board does, and runs the program."""
    script = board_python(folder / "board", version, dla_cores=cores)
    paths = {name: folder / name for name in
             ("model", "engine", "calibration", "timing_cache", "layer_info")}  # fmt: skip
    paths["model"].write_bytes(model)
    if version in HEADER:
        paths["calibration"].write_bytes(toys.cache_text(HEADER[version]))
    if isinstance(attempt, dict):
        attempt = Attempt(tuple(attempt["flags"]), "")
    line = trtexec_command(spec(engine), attempt, version)
    arguments = [argument.format(**paths) for argument in line]
    done = subprocess.run(
        [board_trtexec(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, parse_summary((done.stdout + done.stderr).splitlines()).errors
    assert "&&&& PASSED" in done.stdout
    assert "Engine built in" in done.stdout
    assert offences(script) == []
    return paths


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0"])
def test_hybrid_engines(tmp_path, version):
    (attempt, *_) = decide(requested_build(version)).plans
    paths = run(tmp_path, version, toys.engine(optimization_level=2), attempt, toys.toy_onnx())
    assert paths["engine"].read_bytes().startswith(b"ftrt")
    assert paths["timing_cache"].exists()


def test_the_last_attempt_has_the_engines_layers(tmp_path):
    attempt = decide(requested_build("10.3.0")).plans[-1]
    paths = run(tmp_path, "10.3.0", toys.engine(), attempt, toys.toy_onnx())
    assert '"Layers"' in paths["layer_info"].read_text()


@pytest.mark.parametrize("version", ["8.6.1", "10.7.0"])
def test_loadables(tmp_path, version):
    (attempt,) = decide(requested_build(version, mode="standalone")).loadables
    model = toys.toy_onnx(whole=False)
    paths = run(tmp_path, version, toys.loadable(), attempt, model)
    assert not paths["engine"].read_bytes().startswith(b"ftrt")


def test_a_strongly_typed_engine(tmp_path):
    (attempt, *_) = decide(requested_build("11.4.0", dla=False)).plans
    engine = toys.strong(device="GPU", gpu_fallback=False)
    model = toys.toy_onnx(typed="float16")
    assert run(tmp_path, "11.4.0", engine, attempt, model)["engine"].exists()


def test_a_gpu_engine_of_a_release_without_dla(tmp_path):
    (attempt, *_) = decide(requested_build("10.16.1", dla=False)).plans
    engine = toys.engine(device="GPU", gpu_fallback=False, pools={})
    run(tmp_path, "10.16.1", engine, attempt, toys.toy_onnx(), cores=0)
