"""The second half of docs/fleet.md: what it says of mirrors and Ansible is what there is."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from edgekit.cli._bundle_push import push
from edgekit.cli._fleet_export import command as export
from edgekit.config._schema_deploy import DeploySection
from edgekit_device._source import CREDENTIALS, open_sources
from edgekit_device._source_rules import TRIES

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
OURS = PAGE.partition("## Mirrors")[2]


def test_the_configuration_is_one_and_boards_understand_its_addresses(tmp_path):
    from edgekit_device._root import Root

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
    elif words[:2] == ["fleet", "export"]:
        export.make_context("export", words[2:])
    else:
        from edgekit.cli._bundle import command

        command.make_context("bundle", words[1:])


def test_names_and_numbers_are_those_of_the_code():
    assert CREDENTIALS in OURS
    assert TRIES == 4
    assert "tried four times" in OURS.replace("\n", " ")
    role = Path(export.callback.__globals__["__file__"]).parents[1] / "fleet" / "_ansible_role"
    assert (role / "meta" / "argument_specs.yml").is_file()
