"""No command writes over what it reads: told before anything is computed."""

import pytest

from edgekit.cli import main
from edgekit.network.loading.load import load
from tests.pipeline.nets import small_net

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import numpy as np

    path = tmp_path_factory.mktemp("inputs-stay")
    small_net(path / "small.onnx")
    (given,) = load(path / "small.onnx").proto.graph.input
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    np.savez(path / "x.npz", **{given.name: np.indices(shape, np.float32)[-1]})
    (path / "samples").mkdir()
    np.savez(path / "samples" / "x.npz", **{given.name: np.indices(shape, np.float32)[-1]})
    (path / "calib.cache").write_text("TRT-8502-EntropyCalibration2\nx: 3c010a14\n")
    (path / "net.yaml").write_text(
        f"version: 1\nname: net\ntarget: {ORIN}\nmodel: {{onnx: small.onnx}}\n"
        "calibration: {data: x.npz}\n"
    )
    (path / "two.yaml").write_text(
        f"version: 1\nname: two\ntarget: {ORIN}\n"
        "model: {networks: [{name: a, onnx: small.onnx}, {name: b, onnx: other.onnx}]}\n"
    )
    return path


CALIBRATE = ("calibrate", "small.onnx", "-t", ORIN)


@pytest.mark.parametrize(
    ("arguments", "file", "what"),
    [
        ((*CALIBRATE, "--save"), "small.onnx", "the model"),
        ((*CALIBRATE, "--data", "x.npz", "--save"), "x.npz", "the calibration data"),
        ((*CALIBRATE, "--data", "samples", "--save"), "samples/x.npz", "a file of"),
        (("calibrate", "net.yaml", "--save"), "net.yaml", "the configuration"),
        (("calibrate", "net.yaml", "--save"), "small.onnx", "the model"),
        (
            (
                "calibrate",
                "net.yaml",
                "--sensitivity",
                "--accuracy",
                "cosine=0.9",
                "--write-config",
            ),
            "net.yaml",
            "the configuration",
        ),
        (
            ("calibrate", "to-qdq", "small.onnx", "-t", ORIN, "--cache", "calib.cache", "-o"),
            "calib.cache",
            "the calibration cache",
        ),
        (("rewrite", "small.onnx", "-t", ORIN, "--data", "x.npz", "--record"), "x.npz", "data"),
        (
            ("plan", "small.onnx", "-t", ORIN, "--cache", "calib.cache", "--report"),
            "calib.cache",
            "the calibration cache",
        ),
        (("bundle", "net.yaml", "--full"), "x.npz", "the calibration data"),
        (("infer", "net.yaml", "-i", "samples/x.npz", "--output"), "samples/x.npz", "the inputs"),
        (("init", "small.onnx", "--force", "--output"), "small.onnx", "the model"),
        (("plan", "two.yaml", "--report"), "small.onnx", "model.networks.0.onnx"),
    ],
)
def test_no_input_is_replaced(folder, monkeypatch, capsys, arguments, file, what):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "kept"))
    before = (folder / file).read_bytes()
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, file])
    error = capsys.readouterr().err
    assert caught.value.code
    assert (folder / file).read_bytes() == before
    assert "would overwrite" in error
    assert what in error


def test_what_is_written_may_be_written_again(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "kept"))
    for _ in range(2):
        with pytest.raises(SystemExit) as caught:
            main.main([*CALIBRATE, "--data", "x.npz", "--save", "new.cache", "-q"])
        assert caught.value.code == 0
