"""The examples of docs/quantized-models.md on Q/DQ nodes for strongly typed releases."""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "quantized-models.md").read_text()
SECTION = re.search(r"\n## From implicit INT8 to Q/DQ\n(.*?)(?=\n## |\Z)", PAGE, re.S)[1]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    small_net(tmp_path / "model.onnx")

    def output_of(*arguments):
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "-q"])
        captured = capsys.readouterr()
        assert caught.value.code == 0, captured.err
        return captured.out

    output_of("calibrate", "model.onnx", "-t", "jetson-agx-orin-64gb", "--save", "calib.cache")
    return output_of


def test_the_examples_in_their_order(run):
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", SECTION, re.S)
        for line in block.splitlines()
    ]
    assert len(lines) == 2
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        assert run(*arguments)


def test_every_key_is_reported(run):
    line = re.search(r"```sh\n(.*?)\n", SECTION)[1]
    document = json.loads(run(*shlex.split(line)[1:], "--json"))
    output_of = set(re.findall(r"`([a-z0-9_]+)`", SECTION.split("What the file has")[0]))
    assert set(document) - {"schema", "model", "target", "tensorrt"} <= output_of
    assert set(document["check"]) <= output_of
