"""`edgekit calibrate --sensitivity`: text and JSON, the proposal, and the file that has it."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.command_line import typed
from tests.pipeline.nets import small_net

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sensitivity")
    small_net(path / "small.onnx")
    return path


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    return lambda *arguments, status=0: typed(*arguments, "-q", status=status)[1:]


BASE = ("calibrate", "small.onnx", "-t", ORIN, "--sensitivity")


def test_the_ranking_is_the_same_in_both_forms(run):
    document = json.loads(run(*BASE, "--json")[0])
    assert document["schema"] == "edgekit.sensitivity/1"
    assert document["proposal"] is None
    ratios = [row["snr_db"] for row in document["kernels"]]
    assert ratios == sorted(ratios)
    text, _ = run(*BASE)
    lines = [line for line in text.splitlines() if re.match(r" *[\d.]+ dB ", line)]
    assert len(lines) == len(ratios)
    for line, row in zip(lines, document["kernels"], strict=True):
        assert line.lstrip().startswith(f"{row['snr_db']:.1f} dB")
        assert row["layers"][0] in line
    assert "conv1 + bn + relu1 (first)" in text
    assert "softmax" in text
    assert "not INT8: softmax: fp16 in the plan" in text
    assert "against the FP32 network on 16 synthetic" in " ".join(text.split())


def test_a_proposal_is_written_and_builds(run, folder):
    int8 = json.loads(run(*BASE, "--accuracy", "cosine=0", "--json")[0])["proposal"]
    assert int8["reached"]
    assert not int8["fp16_layers"]
    wanted = 1 - (1 - int8["int8"]["cosine"]) / 2
    text, _ = run(*BASE, "--accuracy", f"cosine={wanted!r}", "--write-config", "new.yaml")
    assert "each of them is needed" in " ".join(text.split())
    assert "written to new.yaml" in text
    written = yaml.safe_load((folder / "new.yaml").read_text())
    layers = written["calibration"]["fp16_layers"]
    assert layers
    assert written["accuracy"] == {"metric": "cosine", "min": wanted}
    built = json.loads(run("build", "new.yaml", "--json")[0])
    assert built["accuracy"]["cosine"] >= wanted
    # without a file the same lines are for pasting
    text, _ = run(*BASE, "--accuracy", f"cosine={wanted!r}")
    assert yaml.safe_load(text[text.index("\ncalibration:\n") :])["calibration"] == {
        "fp16_layers": layers
    }


def test_what_no_layers_reach_ends_with_1_and_the_numbers(run, folder):
    out, error = run(*BASE, "--accuracy", "snr_db=500", "--write-config", "never.yaml", status=1)
    assert " dB " in out, "the ranking is told all the same"
    assert "in FP16 (minimum 500)" in error
    assert not (folder / "never.yaml").exists()
    out, _ = run(*BASE, "--accuracy", "snr_db=500", "--json", status=1)
    document = json.loads(out)
    assert document["proposal"]["reached"] is False
    assert document["proposal"]["fp16_layers"] == []
    assert "500" in document["shortfall"]


def test_a_configuration_in_another_folder_builds_from_there(run, folder):
    project = folder / "proj"
    project.mkdir()
    (folder / "sub").mkdir()
    small_net(project / "small.onnx")
    (project / "feed.py").write_text(
        "import numpy\n\n\ndef batches():\n"
        "    yield numpy.linspace(0, 1, 768, dtype='float32').reshape(1, 3, 16, 16)\n"
    )
    text = f"version: 1\nname: p\nmodel: {{onnx: small.onnx}}\ntarget: {ORIN}\n"
    (project / "p.yaml").write_text(text + "calibration: {count: 2}\n")
    requested = ("--sensitivity", "--accuracy", "cosine=0", "--write-config")
    run("calibrate", "proj/p.yaml", *requested, "sub/out.yaml")
    assert json.loads(run("plan", "sub/out.yaml", "--json")[0])["schema"]
    (project / "p.yaml").write_text(text + "calibration: {data: 'python:feed:batches'}\n")
    _, error = run("calibrate", "proj/p.yaml", *requested, "sub/out2.yaml", status=2)
    assert "python:feed:batches" in error
    assert not (folder / "sub" / "out2.yaml").exists()
    run("calibrate", "proj/p.yaml", *requested, "proj/out2.yaml")
    assert json.loads(run("plan", "proj/out2.yaml", "--json")[0])["schema"]
