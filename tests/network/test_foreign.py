"""Models of other formats are told by their content, also under a wrong name, with what to do."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.cli.main import main
from edgekit.errors import ModelError
from edgekit.network.loading.load import load
from edgekit.network.source import refuse_foreign
from tests.network.onnx_making import make, node

TARGET = ["--target", "jetson-agx-orin-64gb"]


def packed(*names: str) -> bytes:
    """A zip archive of such files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return data.getvalue()


def field(number: int, data: bytes) -> bytes:
    """A protobuf field."""
    size, length = len(data), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


ONNX = make([node("Relu", "x", "y")], {"x": [1, 4, 8, 8]}, ["y"]).SerializeToString()
HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
GRAPH = field(1, field(1, b"input") + field(2, b"Placeholder")) + field(
    1, field(1, b"out") + field(2, b"Relu") + field(3, b"input")
)
FILES = {
    "PyTorch": ("net.pt", packed("net/data.pkl", "net/version", "net/data/0"), "torch.onnx.export"),
    "TorchScript": (
        "net.pth",
        packed("net/data.pkl", "net/code/__torch__.py"),
        "torch.onnx.export",
    ),
    "old PyTorch": ("net.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02", "onnx.export"),
    "pickle": ("net.pt", b"\x80\x04\x95\x10\0\0\0\0\0\0\0}.", "torch.onnx.export"),
    "torch.export": (
        "net.pt2",
        packed("serialized_exported_program.json", "version"),
        "dynamo=True",
    ),
    "torch.export new": (
        "net.pt2",
        packed("net/archive_format", "net/models/model.json"),
        "dynamo",
    ),
    "TensorFlow Lite": ("net.tflite", b"\x1c\0\0\0TFL3" + bytes(60), "--tflite net"),
    "SavedModel": (
        "saved_model.pb",
        b"\x08\x01" + field(2, field(1, field(4, b"serve")) + GRAPH * 99),
        "--saved-model",
    ),
    "frozen graph": ("net.pb", GRAPH, "--graphdef net"),
    "Keras HDF5": ("net.h5", b"\x89HDF\r\n\x1a\n" + bytes(90), "--keras net"),
    "Keras": (
        "net.keras",
        packed("metadata.json", "config.json", "model.weights.h5"),
        "keras.models",
    ),
    "engine": ("net.engine", b"ftrt\0\0\0\0" + bytes(90), "the ONNX file it was built from"),
    "old engine": (
        "net.plan",
        b"\x01\x02\x03\x04" + bytes(90),
        "the ONNX file it was built from",
    ),
    "loadable": ("net.bin", b"\x1c\0\0\0NVDA" + bytes(60), "the ONNX file it was built from"),
    "safetensors": (
        "net.safetensors",
        len(HEADER).to_bytes(8, "little") + HEADER + bytes(4),
        "no network",
    ),
    "OpenVINO": (
        "net.xml",
        b'<?xml version="1.0"?>\n<net name="n" version="11"></net>',
        "OpenVINO",
    ),
    "GGUF": ("net.gguf", b"GGUF\x03\0\0\0" + bytes(60), "optimum-cli export onnx"),
    "Git LFS": (
        "net.onnx",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "git lfs pull --include net",
    ),
    "gzip": ("net.onnx.gz", gzip.compress(ONNX), "gunzip -k net"),
    "zip": ("net.zip", packed("model/net.onnx"), "unzip net"),
    "ORT": ("net.ort", b"\x1c\0\0\0ORTM" + bytes(60), "the ONNX file it was made from"),
    "page": ("net.onnx", b"<!DOCTYPE html>\n<html></html>", "the download failed"),
    "bundle": (
        "net.ekb",
        packed("manifest.json", "blobs/00"),
        "edgekit deploy CONFIG --bundle net",
    ),
    "configuration": ("net.txt", b"version: 1\nname: a\ntarget: b\nmodel: {onnx: c}\n", ".yaml"),
}


EXPORTED = ("TorchScript", "torch.export", "torch.export new")


@pytest.mark.parametrize("ending", ["its own", ".onnx", ".yaml"])
@pytest.mark.parametrize("kind", FILES)
def test_what_it_is_is_recognised_by_its_content(
    kind: str,
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, content, hint = FILES[kind]
    if kind in EXPORTED and ending == "its own":
        return  # they are exported, or refused by PyTorch: tests/pytorch
    if ending != "its own":
        if (kind, ending) == ("configuration", ".yaml") or kind == "old engine":
            return  # nothing but its ending says what it is
        name = Path(name).with_suffix(ending).name
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(SystemExit) as end:
        main(["check", name, *TARGET])
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert end.value.code == 2
    assert f"{name}: this is " in said
    assert hint in said


FOLDERS: dict[str, tuple[list[str], str]] = {
    "SavedModel": (["saved_model.pb", "variables"], "--saved-model net"),
    "Hugging Face": (["config.json", "model.safetensors"], "optimum-cli export onnx --model net"),
    "OpenVINO": (["net.xml", "net.bin"], "OpenVINO"),
    "ONNX": (["net.onnx", "net.onnx.data"], "give its ONNX file: net/net.onnx"),
    "two of ONNX": (["b.onnx", "a.onnx"], "give one of its ONNX files: net/a.onnx, net/b.onnx"),
}

COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "check": lambda name: ["check", name, *TARGET],
    "check without a target": lambda name: ["check", name],
    "plan": lambda name: ["plan", name, *TARGET],
    "rewrite": lambda name: ["rewrite", name, *TARGET],
    "calibrate": lambda name: ["calibrate", name, *TARGET],
    "from-qdq": lambda name: ["calibrate", "from-qdq", name, *TARGET, "-o", "plain.onnx"],
    "to-qdq": lambda name: ["calibrate", "to-qdq", name, *TARGET, "-o", "qdq.onnx"],
    "show": lambda name: ["calibrate", "show", "c.cache", "--model", name],
    "bench": lambda name: ["bench", name, *TARGET],
    "init": lambda name: ["init", name, *TARGET],
    **{
        command: lambda name, command=command: [command, name]  # type: ignore[misc]
        for command in ("build", "bundle", "deploy", "infer", "run", "report", "tune")
    },
    "refit": lambda name: ["refit", "c.yaml", "--weights", name],
    "configuration": lambda name: ["check", "named.yaml"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_takes_a_model_says_so(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    _, content, hint = FILES["PyTorch"]
    Path("net").write_bytes(content)
    Path("model.onnx").write_bytes(ONNX)
    Path("c.cache").write_text("TRT-100300-EntropyCalibration2\nx: 3c010a14\n")
    head = "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\n"
    Path("c.yaml").write_text(f"{head}model: {{onnx: model.onnx}}\n")
    Path("named.yaml").write_text(f"{head}model: {{onnx: net}}\n")
    with pytest.raises(SystemExit) as end:
        main(COMMANDS[command]("net"))
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert "net: this is " in said
    assert hint in said


@pytest.mark.parametrize("kind", FOLDERS)
def test_folders(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names, hint = FOLDERS[kind]
    Path("net").mkdir()
    for name in names:
        (Path("net") / name).touch()
    with pytest.raises(ModelError) as caught:
        load("net")
    assert hint in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("name", ["m.pt", "m.engine", "m.bin", "m"])
def test_an_onnx_model_of_any_name_is_one(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ONNX)
    refuse_foreign(tmp_path / name)
    assert load(tmp_path / name).proto.graph.node[0].op_type == "Relu"
