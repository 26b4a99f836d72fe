"""A board's Python and trtexec in processes of their own find the double and keep its offences."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.trt_double.board import board_python, board_trtexec, offences
from tests.trt_double.double_toys import toy

PROGRAM = """
import importlib, json, sys
found = {}
for name in ("tensorrt", "tensorrt_lean", "tensorrt_dispatch", "cuda.bindings.driver", "cuda.cuda"):
    try:
        found[name] = getattr(importlib.import_module(name), "__version__", "")
    except ImportError as error:
        found[name] = error.name
import tensorrt
cores = tensorrt.Builder(tensorrt.Logger()).num_DLA_cores
tensorrt.Runtime(tensorrt.Logger()).DLA_core = 5
print(json.dumps([found, cores]))
"""


def trtexec(folder: Path, version: str, *arguments: str) -> tuple[int, str, str]:
    program = board_trtexec(board_python(folder, version))
    model = folder / "toy.onnx"
    model.write_bytes(toy())
    done = subprocess.run(
        [program, f"--onnx={model}", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_process_finds_what_its_board_has(tmp_path: Path) -> None:
    python = board_python(tmp_path, "10.7.0", ("full", "lean"), cuda="old", dla_cores=1)
    done = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, check=True)
    found, cores = json.loads(done.stdout)
    assert found == {
        "tensorrt": "10.7.0",
        "tensorrt_lean": "10.7.0",
        "tensorrt_dispatch": "tensorrt_dispatch",
        "cuda.bindings.driver": "cuda.bindings",
        "cuda.cuda": "",
    }
    assert cores == 1
    assert offences(python) == ["Runtime.DLA_core = 5 of 1 cores"]


def test_trtexec_takes_its_own_releases_flags(tmp_path: Path) -> None:
    plan, layers = tmp_path / "toy.plan", tmp_path / "layers.json"
    common = (
        f"--saveEngine={plan}",
        f"--exportLayerInfo={layers}",
        "--profilingVerbosity=detailed",
    )
    dla = ("--fp16", "--useDLACore=0", "--allowGPUFallback", "--verbose")
    status, out, _ = trtexec(tmp_path, "10.3.0", *common, *dla, "--skipInference")
    assert status == 0
    assert out.startswith("&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=")
    assert "[V] [TRT] [DlaLayer] {ForeignNode[conv...relu]}" in out
    assert out.splitlines()[-1].startswith("&&&& PASSED TensorRT.trtexec")
    assert bytes(plan.read_bytes()[24:28]) == bytes((10, 3, 0, 30))
    kinds = {one["LayerType"] for one in json.loads(layers.read_text())["Layers"]}
    assert "DLA" in kinds
    status, out, err = trtexec(tmp_path, "10.3.0", "--buildOnly")
    assert (status, "[E] Unknown option: --buildOnly" in err) == (1, True)
    assert out.splitlines()[-1].startswith("&&&& FAILED")
    assert trtexec(tmp_path, "8.6.1", "--buildOnly")[0] == 0


def test_trtexec_refuses_a_loadable_without_formats(tmp_path: Path) -> None:
    flags = ("--fp16", "--useDLACore=0", "--buildDLAStandalone")
    status, _, err = trtexec(tmp_path, "10.3.0", *flags)
    assert status == 1
    assert "I/O formats for safe DLA capability are restricted to" in err
    formats = ("--inputIOFormats=fp16:dla_hwc4", "--outputIOFormats=fp16:dla_linear")
    status, _, err = trtexec(tmp_path, "10.3.0", *flags, *formats)
    assert "Safe DLA is enabled but not all layers are running on DLA." in err
