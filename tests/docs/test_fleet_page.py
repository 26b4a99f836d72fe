"""The examples of docs/fleet.md: the inventory is one, and the commands run as they stand."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from edgekit.cli import main
from edgekit.fleet.inventory import load_inventory, select
from tests.fleet.fleet_doubles import Boards
from tests.pipeline.nets import small_config

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
OURS = PAGE.partition("## What it costs")[0]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", OURS, re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    inventory, _ = blocks("yaml")
    (tmp_path / "fleet.yaml").write_text(inventory)
    for name in ("net", "net-xavier"):
        path = small_config(tmp_path)
        text = path.read_text().replace("name: small", "name: net")
        (tmp_path / f"{name}.yaml").write_text(text + "build: {backend: reference}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_inventory(folder):
    members = load_inventory("fleet.yaml")
    assert len(members) == 41
    assert members[39].board.host == "10.0.1.50"
    assert members[-1].labels == {"stage": "production", "site": "b", "kind": "xavier"}
    yaml.safe_load((folder / "fleet.yaml").read_text())


def test_the_inventory_that_says_what_boards_are_meant_to_serve(folder):
    (folder / "meant.yaml").write_text(blocks("yaml")[1])
    members = load_inventory("meant.yaml")
    assert len(members) == 40
    assert {member.release.bundle for member in members} == {folder / "releases" / "june.ekb"}


@pytest.mark.parametrize("row", re.findall(r"^\| (`.*?) \|", OURS, re.M))
def test_every_selector_of_the_table_can_be_read(row, folder):
    members = load_inventory("fleet.yaml")
    for text in re.findall(r"`([^`]*)`", row):
        if text.startswith("--"):
            continue
        try:
            select(members, text)
        except Exception as error:
            assert getattr(error, "code", "") == "fleet.nothing-selected"  # noqa: PT017


def test_the_commands_run(folder, monkeypatch, capsys):
    boards = Boards()
    monkeypatch.setattr("edgekit.fleet.rollout.SshDriver", lambda *_, **__: boards)
    for line in blocks("sh")[0].replace("\\\n", "").splitlines():
        # nobody waits here
        program, *arguments = shlex.split(line.replace("--soak 60", "--soak 0"))
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments])
        captured = capsys.readouterr()
        assert caught.value.code == 0, captured.err
        assert "june" in captured.out
    assert len(boards.deployed) == len(boards.went_back) == 40
