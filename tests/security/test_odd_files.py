"""What stands where a file should, and what stands in it: one clear error each, at once."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from edgekit.cli.main import main
from tests.results.measurements import bench
from tests.security.test_terminal import network

TARGET = ["--target", "jetson-agx-orin-64gb"]
HEAD = "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\n"
# by what is read: the end of its name, and a command
READERS = {
    "model": (".onnx", ["check", "{}", *TARGET]),
    "model of a plan": (".onnx", ["plan", "{}", *TARGET]),
    "model to rewrite": (".onnx", ["rewrite", "{}", *TARGET]),
    "model to start with": (".onnx", ["init", "{}", *TARGET]),
    "Q/DQ model": (".onnx", ["calibrate", "from-qdq", "{}", *TARGET, "-o", "plain.onnx"]),
    "configuration": (".yaml", ["check", "{}"]),
    "configuration to run": (".yaml", ["run", "{}"]),
    "cache": (".cache", ["check", "m.onnx", "--cache", "{}", *TARGET]),
    "cache to show": (".cache", ["calibrate", "show", "{}"]),
    "samples": (".npz", ["calibrate", "m.onnx", "--data", "{}", *TARGET]),
    "sample": (".npy", ["calibrate", "m.onnx", "--data", "{}", *TARGET]),
    "image": (".png", ["calibrate", "m.onnx", "--data", "{}", *TARGET]),
    "function": (".py", ["calibrate", "m.onnx", "--data", "python:{}:f", *TARGET]),
    "build log": (".log", ["check", "m.onnx", "--compare-log", "{}", *TARGET]),
    "profile": (".json", ["plan", "m.onnx", "--profile", "{}", *TARGET]),
    "record": (".json", ["rewrite", "m.onnx", "--verify", "{}"]),
    "measurement": (".json", ["compare", "{}", "{}"]),
    "trace": (".json", ["trace", "{}"]),
    "export": (".sqlite", ["trace", "b.json", "--nsys", "{}"]),
    "power log": (".log", ["trace", "b.json", "--tegrastats", "{}"]),
    "report": (".json", ["report", "{}"]),
    "bundle": (".ekb", ["deploy", "c.yaml", "--bundle", "{}"]),
    "inventory": (".yaml", ["fleet", "deploy", "c.yaml", "-i", "{}"]),
    "weights": (".onnx", ["refit", "c.yaml", "--weights", "{}"]),
    "key": (".pub", ["trust", "lab", "--add", "{}", "--identity", "a"]),
}
KINDS = (
    "pipe",
    "folder",
    "zeros",
    "device",
    "socket",
    "link",
    "NUL",
    "long",
    "below",
    "brackets",
    "digits",
    "nothing",
    "huge",
)

#: All; in the first quarter each reader meets a quarter of the kinds, each kind of the readers.
PAIRS = [
    (reader, kind)
    for rest in range(4)
    for i, reader in enumerate(READERS)
    for j, kind in enumerate(KINDS)
    if (i + j) % 4 == rest
]


def place(kind: str, path: Path) -> str:
    """Puts something where a file should be, and returns its name."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("zeros", "device"):
        path.symlink_to({"zeros": "/dev/zero", "device": "/dev/tty"}[kind])
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            os.chdir(path.parent)
            server.bind(path.name)
    elif kind == "link":
        path.symlink_to(path)
    elif kind == "brackets":
        path.write_text("[" * 100_000)
    elif kind == "digits":
        path.write_text('{"version": ' + "9" * 5000 + ', "schema": "edgekit.bench/1"}')
    elif kind == "nothing":
        path.touch()
    elif kind == "huge":  # without a block on the disk, and more than there is memory
        path.touch()
        os.truncate(path, 1 << 40)
    named = {
        "NUL": f"{path.stem}\0{path.suffix}",
        "long": "a" * 5000 + path.suffix,
        "below": f"m.onnx/{path.name}",
    }
    return named.get(kind, str(path))


@pytest.mark.few(len(PAIRS) // 4)
@pytest.mark.parametrize(("reader", "kind"), PAIRS)
def test_one_clear_error(
    reader: str,
    kind: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("edgekit.timeouts.WRITER_S", 0.05)
    network(tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text(f"{HEAD}model: {{onnx: m.onnx}}\n")
    Path("b.json").write_text(json.dumps(bench([1.0, 1.1]).to_json()))
    ending, words = READERS[reader]
    name = place(kind, tmp_path / f"odd{ending}")
    began = time.process_time()
    with pytest.raises(SystemExit) as end:
        main([word.replace("{}", name) for word in words])
    said = capfd.readouterr().err
    assert end.value.code in (2, 3, 4), said
    assert "internal error" not in said
    assert "Traceback" not in said
    assert "memory" not in said
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('model: {onnx: "m\\0.onnx"}\n', "c.yaml:4:9: the text contains a NUL character"),
        ('model: {"on\\0nx": m.onnx}\n', "c.yaml:4:1: a key contains a NUL character"),
        (
            f"model: {{onnx: m.onnx, batch: {'9' * 5000}}}\n",
            "c.yaml:4:30: a number of 5,000 digits",
        ),
        (f"model: {{onnx: m.onnx, batch: 1e{'9' * 5000}}}\n", "c.yaml:4:30: a number of 5,002"),
        (f"model: {'{a: ' * 1000}1{'}' * 1000}\n", "too deep"),
        (f"model:\n{''.join(' ' * n + 'a:' + chr(10) for n in range(1, 1000))}", "too deep"),
        ("model: {onnx: m.onnx}\ncalibration: {cache: /dev/zero}\n", "it is a device, not a file"),
        ("model: {onnx: /dev/zero}\n", "it is a device, not a file"),
    ],
)
def test_a_configurations_values(
    text: str,
    reported: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "m.onnx")
    Path("c.yaml").write_text(HEAD + text)
    with pytest.raises(SystemExit) as end:
        main(["check", "c.yaml"])
    assert end.value.code == 2
    assert reported in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["check", "m.onnx", *TARGET, "--batch", "9" * 5000],
        ["check", "m.onnx", *TARGET, "--shape", f"x:{'9' * 5000}x8x8x8"],
        ["check", "m.onnx", *TARGET, "--shape", f"x:{'9' * 400}x8x8x8"],
        ["check", "m.onnx", *TARGET, "--tensorrt", "9" * 5000],
        ["check", "m.onnx", *TARGET, "--max-loadables", "9" * 5000],
        ["check", "m.onnx", *TARGET, "--fail-under", "9" * 5000],
        ["check", f"builtin:light_resnet50?seed={'9' * 5000}", *TARGET],
        ["history", "show", "9" * 5000],
        ["plan", "m.onnx", *TARGET, "--dla-cores", "9" * 5000],
        ["check", "m\0.onnx", *TARGET],
    ],
    ids=lambda words: words[-2],
)
def test_numbers_of_thousands_of_digits(
    words: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    network(tmp_path / "m.onnx")
    with pytest.raises(SystemExit) as end:
        main(words)
    assert "internal error" not in capfd.readouterr().err
    assert end.value.code in (0, 2, 3)
