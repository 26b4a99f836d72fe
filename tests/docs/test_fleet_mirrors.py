"""The second half of docs/fleet.md: what it says of mirrors and Ansible is what there is."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from benchmarks import fleet, fleet_ansible
from edgekit.cli.fleet import fleet_command
from edgekit.cli.fleet import fleet_export_command as export
from edgekit.cli.steps import push
from edgekit.config.schema import DeploySection
from edgekit_device.release.mirrors import TRIES
from edgekit_device.release.sources import CREDENTIALS, open_sources

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
OURS = PAGE.partition("## Mirrors")[2]


def test_the_configuration_is_one_and_boards_understand_its_addresses(tmp_path):
    from edgekit_device.store.root import Root

    (text,) = re.findall(r"```yaml\n(.*?)```", OURS, re.S)
    mirror = DeploySection.model_validate(yaml.safe_load(text)["deploy"]).mirror
    with open_sources(Root(tmp_path), mirror) as sources:
        assert len(sources.all) == 2


@pytest.mark.parametrize(
    "line",
    [line for text in re.findall(r"```console\n(.*?)```", OURS.replace("\\\n", ""), re.S)
     for line in re.findall(r"\$ (edgekit .*)", text)],
)  # fmt: skip
def test_commands_are_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *words = shlex.split(line)
    if words[:2] == ["bundle", "push"]:
        push.make_context("push", words[2:])
    elif words[0] == "fleet":
        fleet_command.get_command(None, words[1]).make_context(words[1], words[2:])
    else:
        from edgekit.cli.steps import bundle_command

        bundle_command.make_context("bundle", words[1:])


def test_names_and_numbers_are_those_of_the_code():
    assert CREDENTIALS in OURS
    assert TRIES == 4
    assert "tried four times" in OURS.replace("\n", " ")
    role = Path(export.callback.__globals__["__file__"]).parents[1] / "fleet" / "ansible" / "role"
    assert (role / "meta" / "argument_specs.yml").is_file()


def test_the_tables_are_those_that_the_benchmarks_print():
    one = {"workstation_cpu_s_per_board": 0.1, "wire_bytes_per_board": 1, "board_s": 2.0}
    run = {"boards": 1, "parallel": 1, "first": one, "weights": one, "unchanged": one}
    state = dict.fromkeys(("boards", "begin_cpu_s", "drive_cpu_s", "drive_s", "state_bytes"), 1)
    rows = [
        {"way": way, "what": what, "cpu_s": 1.0, "bytes": 1, "mirror_bytes": 1}
        for way in ("copy", "mirror")
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
