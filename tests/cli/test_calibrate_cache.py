"""`edgekit calibrate show|diff|merge`, and plans and checks by a calibration cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from edgekit.network.loading.load import load
from edgekit.quantize.caches import load_cache, make_cache, write_cache
from tests.command_line import typed
from tests.pipeline.nets import CONFIG, small_net

ORIN = "jetson-agx-orin-64gb"
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    small_net(tmp_path / "small.onnx")
    names = ["x", *(node.output[0] for node in load(tmp_path / "small.onnx").proto.graph.node)]
    write_cache(make_cache(dict.fromkeys(names, 0.5), "10.3"), tmp_path / "small.cache")

    def output_of(*arguments: object, status: int = 0) -> str:
        found = typed(*arguments, status=status)
        return found.out + found.err

    return output_of


def flat(text: str) -> str:
    return " ".join(text.split())


def test_show_reports_who_reads_a_tensor_and_what_is_missing(run: Run) -> None:
    text = run("calibrate", "show", "small.cache")
    assert text.startswith("TRT-100300-EntropyCalibration2, 11 tensors\n")
    assert "no scales are missing" in run(
        "calibrate", "show", "small.cache", "--model", "small.onnx"
    )
    run("calibrate", "merge", "small.cache", "-o", "part.cache", "--drop", "[cr]2", "--set", "z=1")
    text = run("calibrate", "show", "part.cache", "--model", "small.onnx")
    assert "p1 0.5 63.5 pool conv2" in flat(text)
    assert "z 0.007874016 1 - no such tensor" in flat(text)
    assert "missing: r2, needed by conv2, relu2, gap" in flat(text)
    document = json.loads(run("calibrate", "show", "part.cache", "--model", "small.onnx", "--json"))
    assert document["schema"] == "edgekit.cache/1"
    assert document["missing"] == [{"tensor": "r2", "layers": ["conv2", "relu2", "gap"]}]
    assert document["unknown"] == ["z"]
    (row,) = [row for row in document["tensors"] if row["name"] == "p1"]
    assert row == {
        "name": "p1",
        "scale": 0.5,
        "amax": 63.5,
        "writer": "pool",
        "readers": ["conv2"],
        "known": True,
    }


def test_diff_has_the_exit_code_of_diff(run: Run) -> None:
    assert "0 changed, 11 equal" in run("calibrate", "diff", "small.cache", "small.cache")
    run(
        "calibrate",
        "merge",
        "small.cache",
        "-o",
        "other.cache",
        "--set",
        "p1=127",
        "--drop",
        "c1",
        "--rename",
        "y=z",
        "--tensorrt",
        "8.6.2",
    )
    text = run("calibrate", "diff", "small.cache", "other.cache", status=1)
    assert "TRT-100300-EntropyCalibration2 -> TRT-8602-EntropyCalibration2" in text
    assert "~ p1 0.5 1 x 2" in flat(text)
    assert "1 added, 2 removed, 1 changed, 8 equal" in text
    document = json.loads(
        run("calibrate", "diff", "small.cache", "other.cache", "--json", status=1).splitlines()[0]
    )
    assert document["changed"] == [{"name": "p1", "old": 0.5, "new": 1.0, "ratio": 2.0}]
    assert [row["name"] for row in document["removed"]] == ["c1", "y"]
    run("calibrate", "merge", "small.cache", "-o", "header.cache", "--tensorrt", "8.6.2")
    run("calibrate", "diff", "small.cache", "header.cache", status=1)
    run("calibrate", "diff", "small.cache", "header.cache", "--ignore-header")
    run("calibrate", "merge", "small.cache", "-o", "near.cache", "--set", "p1=64")
    run("calibrate", "diff", "small.cache", "near.cache", "--tolerance", "0.01")


def test_merge_replaces_an_input_and_keeps_it_where_something_is_wrong(run: Run) -> None:
    before = Path("small.cache").read_bytes()
    for bad in (
        ["--drop", "none"],
        ["--set", "p1"],
        ["--set", "p1=-1"],
        ["--rename", "p1=r1"],
        ["--rename", "=x"],
        ["--drop", "*"],
        ["--tensorrt", "ten"],
    ):
        out = run("calibrate", "merge", "small.cache", "-o", "small.cache", *bad, status=2)
        assert "hint:" in out
        assert Path("small.cache").read_bytes() == before
    run("calibrate", "merge", "small.cache", "none.cache", "-o", "small.cache", status=2)
    Path("b.cache").write_text("TRT-8600-EntropyCalibration2\np1: 40000000\nextra: 3f800000\n")
    out = run(
        "calibrate",
        "merge",
        "small.cache",
        "b.cache",
        "-o",
        "small.cache",
        "--policy",
        "error",
        status=2,
    )
    assert "'p1' has the scale 0.5 in small.cache and 2 in b.cache" in out
    assert Path("small.cache").read_bytes() == before
    out = run(
        "calibrate", "merge", "small.cache", "b.cache", "-o", "small.cache", "--policy", "max"
    )
    assert "12 tensors" in out
    assert "scales differ for 'p1'" in out
    assert load_cache("small.cache").scales["p1"] == 2.0
    assert not [path for path in Path().iterdir() if path.name.startswith(".tmp")]


def test_a_missing_scale_stops_a_plan_until_it_is_allowed(run: Run) -> None:
    plan = ("plan", "small.onnx", "-t", ORIN, "-q", "--cache", "part.cache")
    run("calibrate", "merge", "small.cache", "-o", "part.cache", "--drop", "[cr]2", "--drop", "f")
    out = run(*plan, "--json", status=2)
    error = json.loads(out.splitlines()[0])
    assert error["error"]["code"] == "cache.missing"
    (missing,) = error["missing"]
    assert missing["tensor"] == "r2"
    layers_ = {row["layer"]: row["runs"] for row in missing["layers"]}
    assert layers_["conv2"] == layers_["relu2"] == "FP16 on the DLA"
    allowed = json.loads(run(*plan, "--missing", "fp16", "--json").splitlines()[0])
    precision = {row["name"]: row["precision"] for row in allowed["layers"]}
    assert precision["conv2"] == precision["relu2"] == "fp16"
    assert precision["conv1"] == "int8"
    assert any("'r2'" in note for note in allowed["notes"])
    # a check tells of it and goes on
    checked = json.loads(run("check", "small.onnx", "-t", ORIN, "--cache", "part.cache", "--json"))
    assert any("'r2'" in warning for warning in checked["warnings"])
    whole = json.loads(run(*plan[:-1], "small.cache", "--json").splitlines()[0])
    assert {row["precision"] for row in whole["layers"] if row["name"] != "softmax"} == {"int8"}


def test_a_build_runs_in_int8_what_the_plan_says(run: Run) -> None:
    text = CONFIG.format(target=ORIN, precision="int8", objective="latency")
    run("calibrate", "merge", "small.cache", "-o", "part.cache", "--drop", "[cr]2")
    config = text.replace("{method: entropy, count: 3}", "{cache: part.cache}")
    Path("small.yaml").write_text(config)
    assert "r2" in run("build", "small.yaml", "-q", status=2)
    document = json.loads(run("build", "small.yaml", "-q", "--missing", "fp16", "--json"))
    # the build falls back for nothing that the plan has in INT8
    assert not [note for note in document["notes"] if "INT8 layers run in FP16" in note]
    assert any("'r2'" in note for note in document["notes"])
    out = run("calibrate", "small.yaml", "-q", "--json", status=2)
    assert json.loads(out.splitlines()[0])["error"]["code"] == "cache.missing"


def test_a_header_that_tensorrt_would_not_take_is_reported(run: Run) -> None:
    run("calibrate", "merge", "small.cache", "-o", "old.cache", "--tensorrt", "8.6.2")
    out = run("plan", "small.onnx", "-t", ORIN, "-q", "--cache", "old.cache")
    assert "calibrate again" in flat(out)
    assert "--tensorrt 10.3" in flat(out)


def test_a_measured_cache_serves_the_file_as_it_came_too(run: Run) -> None:
    run("calibrate", "small.onnx", "-t", ORIN, "-q", "--save", "own.cache")
    saved = load_cache("own.cache").scales
    graph = load("small.onnx").proto.graph
    assert saved.keys() > {out for node in graph.node for out in node.output}
    assert "no scales are missing" in run("calibrate", "show", "own.cache", "--model", "small.onnx")
    # and the network that edgekit makes of it
    plan = run("plan", "small.onnx", "-t", ORIN, "-q", "--cache", "own.cache", "--json")
    assert not any("bounds" in note for note in json.loads(plan.splitlines()[0])["notes"])


def test_show_takes_the_sizes_that_a_file_leaves_open(run: Run, tmp_path: Path) -> None:
    model = onnx.load(tmp_path / "small.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    onnx.save(model, tmp_path / "open.onnx")
    requested = ("calibrate", "show", "small.cache", "--model", "open.onnx")
    assert "--shape" in run(*requested, status=2)
    assert "no scales are missing" in run(*requested, "--shape", "x:1x3x16x16")
    document = json.loads(run(*requested, "--shape", "x:1x3x16x16", "--outputs", "r1", "--json"))
    assert {row["name"] for row in document["tensors"] if row["known"]} == {"x", "c1", "b1", "r1"}
    assert "--model" in run("calibrate", "show", "small.cache", "--outputs", "r1", status=2)
