"""The examples of docs/sensitivity.md run as they stand, and its table has the document's keys."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

PAGE = Path(__file__).parents[2] / "docs" / "sensitivity.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    small_net(path / "model.onnx")
    return path


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))


@pytest.mark.parametrize("line", blocks("sh")[0].splitlines())
def test_example(line, here, capsys):
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    captured = capsys.readouterr()
    assert caught.value.code == 0, captured.err
    if "--json" not in line:
        assert "kernels in FP16 bring" in " ".join(captured.out.split()) or "cosine=" not in line
        return
    document = json.loads(captured.out)
    named = set(re.findall(r"`([a-z_0-9]+)`", PAGE.read_text()))
    keys = {*document, *document["kernels"][0], *document["floats"][0]} - {"schema"}
    assert keys <= named


def test_the_python_example(here, capsys):
    (code,) = blocks("python")
    exec(code, {})
    assert re.fullmatch(r"\d+ of \d+ kernels in FP16\n", capsys.readouterr().out)
