"""The examples of docs/placement.md and docs/cost-model.md run as they stand."""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

PAGE = Path(__file__).parents[2] / "docs" / "placement.md"


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def commands() -> list[str]:
    pages = (PAGE, PAGE.with_name("cost-model.md"))
    return [line for page in pages for block in blocks("sh", page) for line in block.splitlines()]


def run(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    assert caught.value.code == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and a cache that the examples share."""
    path = tmp_path_factory.mktemp("page")
    small_net(path / "model.onnx")
    return path


@pytest.mark.whole
@pytest.mark.parametrize("line", commands())
def test_example(line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    run(line)
    out = capsys.readouterr().out
    assert len(out.splitlines()) >= (1 if "--json" in line else 5)


def test_the_python_example(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    (code,) = blocks("python")
    exec(code, {})
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_table_of_why_has_every_key(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    run("edgekit plan model.onnx -t jetson-agx-orin-64gb --why conv1 --json")
    document = json.loads(capsys.readouterr().out)
    (table,) = re.findall(r"\| Key \| What \|\n((?:\|.*\n)+)", PAGE.read_text())
    keys = {
        key
        for row in re.findall(r"^\| (`.*?) \|", table, re.M)
        for key in re.findall(r"`(\w+)`", row)
    }
    assert keys <= set(document)
    assert set(document) - keys == {"schema", "target", "power_mode", "precision"}


def test_the_table_of_a_plan_names_its_keys(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    run("edgekit plan model.onnx -t jetson-agx-orin-64gb --objective throughput --json")
    document = json.loads(capsys.readouterr().out)
    table = PAGE.read_text().partition("| Key of a plan | What |\n")[2].partition("\n\n")[0]
    keys = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    assert len(keys) == 26
    assert set(keys) - {"fewer"} <= set(document)  # of a plan that saves loadables alone


def test_every_linked_page_is_there():
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link
