"""The examples of docs/quantized-models.md run as they stand."""

import json
import re
import shlex
from pathlib import Path

import onnx
import pytest

from edgekit.cli import main
from tests.quantize.qdq_nets import residual

PAGE = Path(__file__).parents[2] / "docs" / "quantized-models.md"


def section() -> str:
    """The part about Q/DQ models that become plain ones."""
    return PAGE.read_text().split("## From Q/DQ to implicit INT8")[1].split("\n## ")[0]


def commands() -> list[str]:
    first = PAGE.read_text().split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", first + section(), re.S)
    return [line for block in blocks for line in block.splitlines()]


def run(line: str) -> int:
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    return int(caught.value.code or 0)


@pytest.mark.parametrize("line", commands())
def test_example(line, tmp_path, monkeypatch, capsys):
    onnx.save(residual(16).proto("last_dq"), tmp_path / "qdq.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    assert run(line) == 0, capsys.readouterr().err
    assert len(capsys.readouterr().out.splitlines()) >= 3


def test_every_key_of_the_table_is_in_the_document(tmp_path, monkeypatch, capsys):
    onnx.save(residual().proto("last_dq"), tmp_path / "qdq.onnx")
    monkeypatch.chdir(tmp_path)
    assert run("edgekit calibrate from-qdq qdq.onnx --json") == 0
    document = json.loads(capsys.readouterr().out)
    (table,) = re.findall(r"\| Key of `--json` \| What \|\n((?:\|.*\n)+)", section())
    keys = {
        key
        for row in re.findall(r"^\| (`.*?) \|", table, re.M)
        for key in re.findall(r"`(\w+)`", row)
    }
    assert keys == set(document) - {"schema", "model", "tensorrt"}
