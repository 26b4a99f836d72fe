"""The examples of docs/dynamic-shapes.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgekit
from edgekit.cli import main
from edgekit.config.loader import parse_config
from edgekit.errors import ModelError
from tests.docs.test_commands import open_sizes

PAGE = (Path(__file__).parents[2] / "docs" / "dynamic-shapes.md").read_text()
ORIN = "jetson-agx-orin-64gb"


def write(folder: Path) -> Path:
    open_sizes(folder)
    return folder / "model.onnx"


def test_the_error_is_as_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError) as caught:
        edgekit.check(write(tmp_path), target=ORIN)
    shown = " ".join(re.findall(r"```text\n(.*?)```", PAGE, re.S)[0].split())
    begin, _, end = shown.removeprefix("edgekit: ").partition(" ...")
    assert begin in " ".join(str(caught.value).split())
    with pytest.raises(SystemExit):
        main.main(["check", str(tmp_path / "model.onnx"), "-t", ORIN])
    assert " ".join(capsys.readouterr().err.split()).endswith(end)


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.S))
def test_the_configurations_are_read(block: str, tmp_path: Path) -> None:
    if not block.startswith("model:"):
        block = "model:\n  onnx: model.onnx\n" + re.sub("(?m)^", "  ", block)
    text = f"version: 1\nname: net\ntarget: {ORIN}\n{block}"
    config = parse_config(text, "net.yaml", tmp_path)
    assert config.file.model.shapes or config.file.model.values
    if "buckets" in block:
        write(tmp_path)
        (tmp_path / "net.yaml").write_text(text)
        found = edgekit.check(tmp_path / "net.yaml").buckets
        assert [one.shapes["x"] for one in found] == [(1, 3, 544, 960), (1, 3, 640, 640)]
