"""`edgekit calibrate to-qdq`: text and JSON, the file, and what it refuses."""

import json
import re

import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.network.loading.load import load
from edgekit.quantize.qdq.to_implicit import from_qdq
from tests.command_line import typed
from tests.pipeline.nets import small_net

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("to-qdq")
    small_net(path / "small.onnx")
    return path


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "kept"))

    def output_of(*arguments: str, status: int = 0) -> str:
        found = typed(*arguments, "-q", status=status)
        return found.err if status else found.out

    return output_of


BASE = ("calibrate", "to-qdq", "small.onnx", "-t", ORIN)


def test_the_api_has_the_defaults_of_the_command(run, folder):
    document = json.loads(run(*BASE, "-o", "command.onnx", "--json"))
    made = edgekit.to_qdq("small.onnx", "function.onnx", target=ORIN)
    assert made.tensorrt == document["tensorrt"] == "11.4.1"
    assert (folder / "function.onnx").read_bytes() == (folder / "command.onnx").read_bytes()
    (folder / "old.yaml").write_text(
        f"version: 1\nname: x\nmodel: {{onnx: small.onnx}}\ntarget: {ORIN}\ntensorrt: '10.3'\n"
    )
    assert edgekit.to_qdq("old.yaml", "old.onnx").tensorrt == "11.4.1"
    assert edgekit.to_qdq("old.yaml", "new.onnx", tensorrt="11.5").tensorrt == "11.5"
    with pytest.raises(UsageError) as caught:
        edgekit.to_qdq("old.yaml", "none.onnx", tensorrt="10.3")
    assert caught.value.code == "qdq.release"


def test_text_says_what_runs_where(run):
    text = " ".join(run(*BASE, "-o", "text.onnx", "--float32").split())
    assert "0 casts" in text
    assert "could run on the DLA" in text
    # the count of `check` is another one, and the line says why
    board, release = "jetson-agx-orin-64gb", re.search(r"TensorRT ([\d.]+) on", text)[1]
    layers = len(edgekit.check("text.onnx", target=board, tensorrt=release).layers)
    own, nodes, both = re.search(
        r"of (\d+) layers .*counts the (\d+) Q/DQ nodes as layers, too: (\d+)\)", text
    ).groups()
    assert int(own) + int(nodes) == int(both) == layers
    assert "FP16: softmax" in text
    assert "trtexec --onnx=text.onnx --useDLACore=0" in text
    assert "--int8" not in text


def test_a_qdq_model_is_refused(run):
    run(*BASE, "-o", "again.onnx")
    output_of = run("calibrate", "to-qdq", "again.onnx", "-t", ORIN, "-o", "twice.onnx", status=2)
    assert "already has Q/DQ nodes" in output_of


def test_it_takes_the_calibration_data_as_calibrate_does(run, folder):
    (folder / "feedz.py").write_text(
        "import numpy\n\n\ndef b():\n"
        "    rows = [numpy.linspace(0, n, 16, dtype='float32') for n in range(1, 9)]\n"
        "    return [numpy.broadcast_to(row, (1, 3, 16, 16)) for row in rows]\n"
    )
    data = ("--data", "python:feedz:b", "--count", "4", "--method", "minmax")
    document = json.loads(run(*BASE, *data, "-o", "fed.onnx", "--json"))
    assert from_qdq(load(folder / "fed.onnx")).scales["x"] == pytest.approx(4 / 127)
    assert "python:feedz:b" in document["data"]


def test_a_header_of_another_release_is_no_matter_where_no_cache_is_built_from(run):
    run("calibrate", "small.onnx", "-t", ORIN, "--save", "old.cache", "--tensorrt", "8.5")
    document = json.loads(run(*BASE, "--cache", "old.cache", "-o", "old.onnx", "--json"))
    assert not any("TRT-" in note for note in document["notes"])
    # up to 10.7 it is
    document = json.loads(run("plan", "small.onnx", "-t", ORIN, "--cache", "old.cache", "--json"))
    assert any("TRT-8" in note for note in document["notes"])


def test_data_next_to_given_scales_are_said_to_give_none(run, folder):
    import numpy as np

    np.savez(folder / "x.npz", x=np.linspace(0, 1, 768, dtype=np.float32).reshape(1, 3, 16, 16))
    small = ("calibrate", "small.onnx", "-t", ORIN)
    run(*small, "--save", "calib.cache")
    run(*BASE, "--cache", "calib.cache", "-o", "given.onnx", "--float32")
    output_of = run("calibrate", "given.onnx", "-t", ORIN, "--data", "x.npz")
    assert "scales come from the model's Q/DQ nodes" in output_of
    assert "only used to compare accuracy" in output_of
    for line in ([*small, "--data", "x.npz"], ["calibrate", "given.onnx", "-t", ORIN]):
        assert "the scales come from" not in run(*line)
