"""Commands take PyTorch networks: factories, programs and TorchScript files."""

from __future__ import annotations

import json
import warnings
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
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch deprecated TorchScript
        torch.jit.save(torch.jit.trace(nets.lenet(), nets.image()), script)
    assert ask(capsys, "check", str(program), *TARGET)["model"] == program.name
    assert ask(capsys, "check", str(script), *INPUT, *TARGET)["model"] == script.name
    config = tmp_path / "net.yaml"
    config.write_text(
        "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\nprecision: fp16\n"
        "model: {pt2: lenet.pt2}\n"
    )
    assert edgekit.plan(config).notes
    weights = tmp_path / "weights.pt"
    torch.save(nets.lenet().state_dict(), weights)
    with pytest.raises(EdgekitError) as caught:
        app(["check", str(weights), *TARGET])
    assert caught.value.code == "model.not_onnx"


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
