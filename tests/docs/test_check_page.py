"""The examples of docs/check.md run as they stand."""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.network.torch_files import dynamo_nodes, lenet
from tests.parsing.parser_module import write_module
from tests.pipeline.nets import small_net

PAGE = Path(__file__).parents[2] / "docs" / "check.md"
BUILD_LOG = """\
[TRT] ---------- Layers Running on DLA ----------
[TRT] [DlaLayer] {ForeignNode[conv1...pool]}
[TRT] ---------- Layers Running on GPU ----------
[TRT] [GpuLayer] CONVOLUTION: conv2
"""


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("line", commands())
def test_example(line, tmp_path, monkeypatch, capsys):
    small_net(tmp_path / "model.onnx")
    lenet(tmp_path, dynamo_nodes()).rename(tmp_path / "lenet.onnx")
    (tmp_path / "build.log").write_text(BUILD_LOG)
    (tmp_path / "calibration.cache").write_text(
        "TRT-100300-EntropyCalibration2\nx: 3c010a14\nc1: 3c010a14\n"
    )
    monkeypatch.syspath_prepend(write_module(tmp_path / "site", "return True"))
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    assert caught.value.code == 0, capsys.readouterr().err
    assert len(capsys.readouterr().out.splitlines()) >= (1 if "--json" in line else 5)


def test_every_key_of_the_tables_is_in_the_document(tmp_path, monkeypatch, capsys):
    small_net(tmp_path / "model.onnx")
    (tmp_path / "build.log").write_text(BUILD_LOG)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main.main(
            shlex.split("check model.onnx -t jetson-agx-orin-64gb --compare-log build.log --json")
        )
    document = json.loads(capsys.readouterr().out)
    # the second table is that of --compare-log
    tables = re.findall(r"\| Key \| What \|\n((?:\|.*\n)+)", PAGE.read_text())
    for table, reported in zip(tables, (document, document["compare"]), strict=True):
        rows = re.findall(r"^\| (`.*?) \|", table, re.M)
        keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
        assert keys
        # these are there where they hold
        assert keys - {"tensorrt_sources", "dla_unstated", "modules"} <= set(reported)
