"""The shell and Python blocks of pages that need no board run as they stand, in their order."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image

from edgekit.config.loader import parse_config
from edgekit.config.schema import ConfigFile
from edgekit.results.recording import record
from tests.buildlog import timing_log
from tests.docs.pages import ROOT, blocks, lines, run
from tests.network.onnx_making import make
from tests.network.torch_files import dynamo_nodes, lenet
from tests.parsing.parser_module import write_module
from tests.pipeline.nets import small_net
from tests.quantize.qdq_nets import residual
from tests.results.measurements import bench, times

BUILD_LOG = """\
[TRT] ---------- Layers Running on DLA ----------
[TRT] [DlaLayer] {ForeignNode[conv1...pool]}
[TRT] ---------- Layers Running on GPU ----------
[TRT] [GpuLayer] CONVOLUTION: conv2
"""
LOADABLE = "{ForeignNode[conv1...relu2]}"
VECTOR, SUMS = "Int8(36,36:32,6,1)", "Int8(1,1:32,1,1)"


def plain(folder: Path) -> None:
    small_net(folder / "model.onnx")


def build_logs(folder: Path) -> None:
    plain(folder)
    shutil.copy(ROOT / "tests/data/build_logs/trtexec.txt", folder / "build.log")


def calibration(folder: Path) -> None:
    plain(folder)
    random = np.random.default_rng(0)
    np.savez(folder / "samples.npz", x=random.standard_normal((8, 3, 16, 16)).astype(np.float32))
    (folder / "images").mkdir()
    for index in range(3):
        pixels = random.integers(0, 256, (300, 280, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{index}.jpg")
    (code,) = blocks("calibration", "python")
    (folder / "feed.py").write_text(code)


def check(folder: Path) -> None:
    plain(folder)
    lenet(folder, dynamo_nodes()).rename(folder / "lenet.onnx")
    (folder / "build.log").write_text(BUILD_LOG)
    scales = "TRT-100300-EntropyCalibration2\nx: 3c010a14\nc1: 3c010a14\n"
    (folder / "calibration.cache").write_text(scales)
    write_module(folder, "return True")


def ci(folder: Path) -> None:
    plain(folder)
    (folder / "models").mkdir()
    small_net(folder / "models" / "b.onnx")


def open_sizes(folder: Path) -> None:
    dims = ["batch", 3, "height", "width"]
    nodes = [helper.make_node("Relu", ["x"], [name]) for name in ("boxes", "scores")]
    onnx.save(make(nodes, {"x": dims}, ["boxes", "scores"]), folder / "model.onnx")


def history(folder: Path) -> None:
    for seed in range(4):
        record(bench(times(2500, 2.0, seed=seed)))


def profiles(folder: Path) -> None:
    plain(folder)
    log = [
        *timing_log.header(),
        *timing_log.unit(LOADABLE, "DLA", [(["Int8(256,1:4,16,1)"], [VECTOR], 220.0)]),
        *timing_log.unit("gap", "CaskPooling", [([VECTOR], [SUMS], 44.0)]),
    ]
    (folder / "build.log").write_text("\n".join(log))
    rows = [{"name": LOADABLE, "timeMs": 0.22}, {"name": "gap", "timeMs": 0.04}]
    (folder / "profile.json").write_text(json.dumps(rows))
    layers = [{"Name": LOADABLE, "LayerType": "DLA"}]
    (folder / "layers.json").write_text(json.dumps({"Layers": layers, "Bindings": []}))


def quantized(folder: Path) -> None:
    onnx.save(residual(16).proto("last_dq"), folder / "qdq.onnx")
    plain(folder)


def several(folder: Path) -> None:
    small_net(folder / "detect.onnx")
    (folder / "several.yaml").write_text(blocks("several-networks", "yaml")[0])


CONFIGURED = ("benchmarking", "boards", "calibration", "config", "dynamic-shapes", "sensitivity")
CONFIGURED += ("start", "tensorrt")
WHOLE = pytest.mark.whole
PAGES = [
    ("api-stability", plain),
    ("build-logs", build_logs),
    ("calibration", calibration),
    ("check", check),
    ("ci", ci),
    ("cli", plain),
    ("config", plain),
    ("cost-model", plain),
    ("documents", plain),
    ("dynamic-shapes", open_sizes),
    pytest.param("history", history, marks=WHOLE),
    pytest.param("placement", plain, marks=WHOLE),
    ("profiles", profiles),
    ("quantized-models", quantized),
    ("rewrites", plain),
    ("rewriting", plain),
    ("sensitivity", plain),
    pytest.param("several-networks", several, marks=WHOLE),
    ("style", plain),
    ("targets", plain),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    return tmp_path


@pytest.mark.parametrize(("page", "files"), PAGES)
def test_commands(
    page: str, files: Callable[[Path], None], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files(here)
    capsys.readouterr()
    for line in lines(page, without="edgekit bench"):  # measures on a board
        if "to-qdq" in line:  # the commands before wrote the scales of another file
            run("edgekit calibrate model.onnx -t jetson-agx-orin-64gb --save calib.cache -q")
            capsys.readouterr()
        # diff tells by its status that two files differ
        assert run(line) == ("calibrate diff" in line), (line, capsys.readouterr().err)
        shown = capsys.readouterr().out
        assert shown, line
        if "--json" in line.split():
            assert json.loads(shown)["schema"].startswith("edgekit.")
    sys.modules.pop("feed", None)


@pytest.mark.parametrize("page", ["placement", "rewriting", "sensitivity"])
def test_python(page: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain(here)
    (code,) = blocks(page, "python")
    exec(code, {})
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "block"),
    [
        (page, block)
        for page in [
            "benchmarking",
            "boards",
            "calibration",
            "config",
            "dynamic-shapes",
            "sensitivity",
            "start",
            "tensorrt",
        ]
        for block in blocks(page, "yaml")
    ],
)
def test_configurations(page: str, block: str, tmp_path: Path) -> None:
    key = block.partition(":")[0]
    if key not in ConfigFile.model_fields:  # keys of the model
        block = "model:\n  onnx: model.onnx\n" + "".join(f"  {one}\n" for one in block.splitlines())
    rest = {"version": "1", "name": "net", "model": "{onnx: model.onnx}"}
    rest["target"] = "jetson-agx-orin-64gb"
    head = "".join(f"{one}: {rest[one]}\n" for one in rest if f"\n{one}:" not in f"\n{block}")
    assert getattr(parse_config(head + block, "net.yaml", tmp_path).file, key, None) != []
