"""The examples of docs/config.md run as they stand, and the page has every key."""

import re
import shlex
from pathlib import Path

import pytest
from pydantic import BaseModel

from edgekit.cli import main
from edgekit.config.loader import parse_config
from edgekit.config.schema import ContainerSection, Section
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return str(found)


def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    small_net(tmp_path / "model.onnx")
    for line in block("sh").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "-q"])
        assert caught.value.code == 0, capsys.readouterr().err


def test_the_least_file(tmp_path):
    config = parse_config(block("yaml"), "model.yaml", tmp_path).file
    assert config.model.onnx == "model.onnx"


def subsections(model: type[BaseModel]) -> list[type[BaseModel]]:
    return [part for one in model.__subclasses__() for part in (one, *subsections(one))]


def test_every_section_is_a_table():
    everywhere = subsections(Section)  # an inventory of a fleet has sections, too
    sections = {one for one in everywhere if one.__module__ == Section.__module__}
    assert ContainerSection in sections
    keys = {name for one in sections for name in one.model_fields}
    assert keys == set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.M))
