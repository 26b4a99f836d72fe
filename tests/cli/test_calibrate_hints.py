"""What `edgekit calibrate` says of slips, of files of another kind, and of an interrupt."""

import json

import numpy as np
import onnx
import pytest

from tests.command_line import typed
from tests.pipeline.nets import small_net
from tests.quantize.qdq_nets import residual

ORIN = "jetson-agx-orin-64gb"
CALIBRATE = ("calibrate", "small.onnx", "-t", ORIN)


@pytest.fixture
def run(tmp_path, monkeypatch):
    small_net(tmp_path / "small.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    return lambda *arguments, status=0: typed(*arguments, status=status)


def test_a_slip_of_an_action(run, tmp_path):
    assert "'show'" in run("calibrate", "shwo", "x.cache", status=2).err
    # a file of such a name is a model all the same
    (tmp_path / "shwo").write_bytes((tmp_path / "small.onnx").read_bytes())
    run("calibrate", "shwo", "-t", ORIN)


def test_arrays_of_other_names(run, tmp_path):
    np.savez(tmp_path / "other.npz", image=np.ones((1, 3, 16, 16), np.float32))
    error = run(*CALIBRATE, "--data", "other.npz", status=2).err
    assert "give the arrays these names" in error
    assert "use .npz" not in error


def test_a_binary_file_is_no_cache(run, tmp_path):
    (tmp_path / "binary.cache").write_bytes(b"\x93NUMPY\xf7\x00")
    error = run("calibrate", "show", "binary.cache", status=2).err
    assert "utf-8" not in error
    assert "not text" in error


def test_preparation_of_images_without_images(run):
    output_of = run(*CALIBRATE, "--mean", "1,2,3", "--std", "1,1,1").out
    assert "mean, std: no effect" in output_of
    assert "have no effect" not in run(*CALIBRATE).out


def test_a_cache_next_to_the_qdq_model_that_it_is_of(run, tmp_path):
    onnx.save(residual(16).proto("last_dq"), tmp_path / "qdq.onnx")
    run("calibrate", "from-qdq", "qdq.onnx", "-t", ORIN, "--save", "own.cache")
    show = ("calibrate", "show", "own.cache", "--json", "--model")
    document = json.loads(run(*show, "qdq.onnx").out)
    assert document["missing"] == []
    assert any("conversion" in note for note in document["notes"])
    assert all(row["known"] for row in document["tensors"])
    (tmp_path / "net.yaml").write_text("version: 1\n")
    assert "configuration" in run(*show, "net.yaml", status=2).out


def test_an_interrupted_measurement_is_said_to_be_retained_and_goes_on(run, tmp_path, monkeypatch):
    from edgekit.quantize.calibration import measure as measuring

    monkeypatch.setattr(measuring, "_EVERY", -1.0)
    monkeypatch.setattr(measuring, "_SPARE", -1.0)
    (tmp_path / "feed.py").write_text(
        "import os\nimport numpy\n\n\ndef batches():\n"
        "    for index in range(6):\n"
        "        if index == 4 and os.environ.pop('STOP', None):\n"
        "            raise KeyboardInterrupt\n"
        "        row = numpy.linspace(0, index + 1, 16, dtype='float32')\n"
        "        yield numpy.broadcast_to(row, (1, 3, 16, 16))\n"
    )
    line = (*CALIBRATE, "--data", "python:feed:batches", "--count", "6")
    monkeypatch.setenv("STOP", "1")
    assert "are kept; run the same command" in run(*line, status=130).err
    first = run(*line)
    assert "continues at input 4" in first.err
    assert "goes on from" not in run(*line).err
