"""Commands take PyTorch networks: factories, programs and TorchScript files."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import warnings
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import edgekit
from edgekit.cli.main import app
from edgekit.errors import EdgekitError

TARGET = ["-t", "jetson-agx-orin-64gb"]
INPUT = ["--input", "x=1x1x32x32:float32"]
FACTORY = "tests.pytorch.nets:lenet"


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert app([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_check_and_plan_take_a_factory(
    nets: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask(capsys, "check", FACTORY, *INPUT, *TARGET)
    assert found["model"] == FACTORY
    assert {layer["kind"] for layer in found["layers"]} >= {"CONVOLUTION", "POOLING"}
    found = ask(capsys, "check", f"{FACTORY}_with_example", *TARGET)
    assert found["model"] == f"{FACTORY}_with_example"
    plan = ask(capsys, "plan", FACTORY, *INPUT, *TARGET, "-q")
    assert any("exported from PyTorch" in note for note in plan["notes"])


def test_files_are_exported_and_named_as_the_user_names_them(
    nets: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    program, script = tmp_path / "lenet.pt2", tmp_path / "lenet.ts"
    torch.export.save(torch.export.export(nets.lenet(), (nets.image(),)), program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated; the category depends on the release
        torch.jit.save(torch.jit.trace(nets.lenet(), nets.image()), script)
    assert ask(capsys, "check", str(program), *TARGET)["model"] == program.name
    found = ask(capsys, "check", str(script), *INPUT, "-t", "jetson-agx-xavier")
    assert found["model"] == script.name
    assert re.search(r"by the legacy exporter in opset 17.*tolerance 0.001", found["warnings"][0])
    assert "deprecated TorchScript" in found["warnings"][1]
    assert app(["check", str(script), *INPUT, *TARGET]) == 0
    assert "exported from PyTorch" in capsys.readouterr().out
    config = tmp_path / "net.yaml"
    config.write_text(
        "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\nprecision: fp16\n"
        "model: {pt2: lenet.pt2}\n"
    )
    assert edgekit.plan(config).notes


def refused(*words: str) -> EdgekitError:
    with pytest.raises(EdgekitError) as caught:
        app([*words, *TARGET])
    return caught.value


@pytest.mark.parametrize(
    ("name", "commands"), [("lenet.pt", ("check", "plan")), ("lenet.bin", ("rewrite",))]
)
def test_commands_load_a_pickle_whose_digest_the_user_gives(
    nets: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    commands: tuple[str, ...],
) -> None:
    import torch

    path = tmp_path / name
    torch.save(nets.lenet(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for command in commands:
        assert ask(capsys, command, str(path), *INPUT, *TARGET, "--trust", digest)
        wrong = refused(command, str(path), *INPUT, "--trust", "0" * 64)
        assert (wrong.code, digest in wrong.message) == ("torch.trust", True)
    if name == "lenet.pt":
        assert f"--trust) {digest}" in refused("check", str(path), *INPUT).hint


def test_a_trusted_pickle_finds_the_modules_of_the_current_folder(
    nets: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    path = tmp_path / "net.pt"
    (tmp_path / "ownnet.py").write_text("from tests.pytorch.nets import LeNet as Net\n")
    own = ModuleType("ownnet")
    own.Net = type("Net", (nets.LeNet,), {"__module__": "ownnet"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ownnet", own)
    torch.save(own.Net().eval(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    error = refused("check", str(path), *INPUT, "--trust", digest)
    assert (error.code, "PYTHONPATH" in error.hint) == ("torch.load", True)
    monkeypatch.chdir(tmp_path)
    assert app(["check", str(path), *INPUT, "--trust", digest, *TARGET]) == 0
    assert "64 hexadecimal digits" in refused("check", str(path), *INPUT, "--trust", "00").message


def test_a_file_with_a_wrong_ending_is_no_onnx_model(tmp_path: Path) -> None:
    path = tmp_path / "junk.pt2"
    path.write_bytes(b"junk\n")
    error = refused("check", str(path))
    assert (error.code, "torch.export.save" in error.hint) == ("model.not_onnx", True)


def test_a_factory_that_cannot_be_exported_is_not_told_to_leave_what_it_left(
    nets: ModuleType,
) -> None:
    words = ["check", "tests.pytorch.nets:routed", *INPUT, "--leave", "router"]
    error = refused(*words)
    assert (error.code, "module 'router'" in error.message) == ("torch.control_flow", True)
    assert 'give the torch.nn.Module itself with leave=["router"]' in error.hint
    with pytest.raises(EdgekitError, match="which code runs") as caught:
        edgekit.compile(
            "tests.pytorch.nets:routed", (nets.image(),), target=TARGET[1], leave=["router"]
        )
    assert caught.value.hint == error.hint


def test_files_that_are_not_loaded_are_named_with_what_to_do(
    nets: ModuleType, tmp_path: Path
) -> None:
    import torch

    weights, yolo = tmp_path / "weights.pt", tmp_path / "yolo.pt"
    torch.save(nets.lenet().state_dict(), weights)
    error = refused("check", str(weights))
    assert (error.code, "weights without a network" in error.message) == ("torch.untrusted", True)
    assert "load_state_dict" in error.hint
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    error = refused("check", str(weights), *INPUT, "--trust", digest)
    assert (error.code, "weights without a network" in error.message) == ("torch.source", True)
    with zipfile.ZipFile(yolo, "w") as archive:
        archive.writestr("yolo/data.pkl", b"\x80\x02cultralytics.nn.tasks\nDetectionModel\n)R.")
    error = refused("plan", str(yolo))
    assert error.code == "torch.untrusted"
    assert f"YOLO('{yolo}').export" in error.hint
    assert "--trust" in error.hint
    missing = refused("check", str(tmp_path / "nofile.pt2"))
    assert (missing.code, ".onnx" in missing.hint) == ("model.missing", False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([FACTORY], "--input x=1x3x224x224:float32"),
        ([FACTORY, "--input", "x:1x1x32x32"], "NAME=SIZE"),
        ([FACTORY, "--input", "y=1x1x32x32"], "there is no input 'y'"),
        (["tests.pytorch.nets:none", *INPUT], "no attribute 'none'"),
        (["no.such.package:make", *INPUT], "No module named 'no'"),
    ],
)
def test_wrong_words_are_one_clear_error(nets: ModuleType, words: list[str], said: str) -> None:
    with pytest.raises(EdgekitError) as caught:
        app(["check", *words, *TARGET])
    assert said in f"{caught.value} {caught.value.hint}"


def test_keys_of_pytorch_are_refused_for_other_models(tmp_path: Path) -> None:
    config = tmp_path / "net.yaml"
    head = "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\nmodel: "
    for model, said in (
        ("{onnx: a.onnx, exporter: legacy}", "are for 'python' and 'pt2'"),
        ("{onnx: a.onnx, pt2: b.pt2}", "exactly one of"),
        ("{python: not a factory}", "python"),
    ):
        config.write_text(f"{head}{model}\n")
        with pytest.raises(EdgekitError) as caught:
            edgekit.check(config)
        assert said in str(caught.value)
