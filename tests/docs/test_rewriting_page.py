"""The examples of docs/rewriting.md and docs/rewrites.md run as they stand, and the tables of the
first have the documents' keys.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from edgekit.network.loading.load import load
from edgekit.network.model import metadata
from edgekit.rewriting.provenance.record import KEY
from tests.pipeline.nets import small_net

PAGE = Path(__file__).parents[2] / "docs" / "rewriting.md"


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def commands() -> list[str]:
    pages = (PAGE, PAGE.with_name("rewrites.md"))
    return [line for page in pages for block in blocks("sh", page) for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    small_net(path / "model.onnx")
    return path


@pytest.fixture
def run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))

    def output_of(line: str) -> str:
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "-q"])
        captured = capsys.readouterr()
        assert caught.value.code == 0, captured.err
        return captured.out

    return output_of


@pytest.fixture
def written(run):
    """The files of the first example, which others read."""
    run(blocks("sh")[0].splitlines()[0])


@pytest.mark.parametrize("line", commands())
def test_example(line, run, written):
    assert len(run(line).splitlines()) >= (1 if "--json" in line else 5)


def test_the_python_example(folder, run, capsys, monkeypatch):
    (code,) = blocks("python")
    exec(code, {})
    assert capsys.readouterr().out.split() == ["2", "->", "1", "True"]


def test_the_tables_have_the_keys_of_the_documents(folder, run, written):
    document = json.loads(run("edgekit rewrite model.onnx -t jetson-agx-orin-64gb --json"))
    retained = json.loads(metadata(load(folder / "out.onnx"), KEY))
    output_of = {"Record key": document["record"], "Key": document, "Metadata key": retained}
    for head, values in output_of.items():
        (table,) = re.findall(rf"\| {head} \| What \|\n((?:\|.*\n)+)", PAGE.read_text())
        rows = re.findall(r"^\| (`.*?) \|", table, re.M)
        keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
        assert keys <= set(values)
        if head != "Key":  # nothing is left out
            assert keys == set(values) - {"schema"}


def test_every_linked_page_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text())
    assert "rewrites.md" in links
    for link in links:
        assert (PAGE.parent / link).exists(), link
