"""What docs/fleet.md says of Ansible, and its tables of costs."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks import fleet, fleet_ansible
from edgekit.cli.fleet import fleet_command

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
OURS = PAGE.partition("## Ansible")[2]


@pytest.mark.parametrize(
    "line",
    [
        line
        for text in re.findall(r"```console\n(.*?)```", OURS.replace("\\\n", ""), re.S)
        for line in re.findall(r"\$ (edgekit .*)", text)
    ],
)
def test_commands_are_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *words = shlex.split(line)
    fleet_command.get_command(None, words[1]).make_context(words[1], words[2:])


def test_the_tables_are_those_that_the_benchmarks_print():
    one = {"workstation_cpu_s_per_board": 0.1, "wire_bytes_per_board": 1, "board_s": 2.0}
    run = {"boards": 1, "parallel": 1, "first": one, "weights": one, "unchanged": one}
    state = dict.fromkeys(("boards", "begin_cpu_s", "drive_cpu_s", "drive_s", "state_bytes"), 1)
    rows = [
        {"what": what, "cpu_s": 1.0, "bytes": 1}
        for what in ("first", "unchanged", "one tensor changed")
    ]
    texts = (fleet.tables({"over_ssh": [run], "state": state}), fleet_ansible.tables(1, rows))
    printed = {_words(line) for text in texts for line in text.splitlines() if line[:1] == "|"}
    there = {_words(line) for line in PAGE.splitlines()}
    assert printed <= there


def _words(line):
    """A table's row without its figures and their units."""
    first, *others = line.strip("| ").split(" | ")
    if re.fullmatch(r"[\d,]+", first):
        return first, len(others)
    if re.match(r"[\d.,]+ ", others[0] if others else ""):
        return first, len(others)
    return re.sub(r"[\d.]+", "N", line)
