"""Paths of inventories and rollouts mean the same file from every folder and for both drivers."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from edgekit import api
from edgekit.fleet.ansible import run
from edgekit.fleet.inventory import load_inventory
from edgekit.fleet.rollout import Fleet
from edgekit.fleet.waves import RolloutSettings

OURS = """\
version: 1
defaults: {key: ../keys/default}
boards:
  - {name: a, host: a.lan, key: ../keys/k1}
  - {name: b, host: b.lan}
  - {name: c, host: c.lan, key: ~nobody-here/k}
"""
ANSIBLES = """\
a ansible_host=a.lan ansible_ssh_private_key_file=../keys/k1
b ansible_host=b.lan ansible_ssh_private_key_file=../keys/default
"""


@pytest.fixture
def sites(tmp_path):
    """A folder with keys, one of them a link, and inventories in another folder."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "real").write_text("")
    (tmp_path / "keys" / "k1").symlink_to("real")
    folder = tmp_path / "sites"
    folder.mkdir()
    (folder / "fleet.yaml").write_text(OURS)
    (folder / "hosts.ini").write_text(ANSIBLES)
    return folder


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["fleet.yaml", "hosts.ini"])
@pytest.mark.parametrize(("folder", "way"), [("sites", ""), (".", "sites/"), ("keys", "../sites/")])
def test_keys_are_found_from_every_folder(tmp_path, sites, monkeypatch, name, folder, way):
    if name == "hosts.ini" and not Path(sys.executable).with_name("ansible-inventory").is_file():
        pytest.skip("no ansible-core here: pip install 'edgekit[ansible]'")
    monkeypatch.chdir(tmp_path / folder)
    keys = {member.name: member.board.key for member in load_inventory(f"{way}{name}")}
    monkeypatch.chdir("/")
    # a link stays one: it may be changed later
    assert (keys["a"], keys["b"]) == (tmp_path / "keys" / "k1", tmp_path / "keys" / "default")


def test_the_export_and_ansibles_driver_write_absolute_keys(tmp_path, sites, given, monkeypatch):
    monkeypatch.chdir(sites)
    api.export_rollout("../out", given.config, inventory="fleet.yaml", bundle="../net.ekb")
    program = tmp_path / "ansible-playbook"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    monkeypatch.setattr(run, "find_program", lambda name: str(program))
    made = api.rollout(
        given.config, "fleet.yaml", bundle="../net.ekb", ansible=True, state="../state"
    )
    for folder in (tmp_path / "out", Path(made.folder)):
        document = yaml.safe_load((folder / "inventory.yml").read_text())
        hosts = document["all"]["children"]["edgekit_boards"]["hosts"]
        found = {name: row["ansible_ssh_private_key_file"] for name, row in hosts.items()}
        assert found["a"] == str(tmp_path / "keys" / "k1")
        assert found["b"] == str(tmp_path / "keys" / "default")


def test_the_boards_of_a_configuration_are_exported_with_absolute_keys(
    tmp_path, given, monkeypatch
):
    text = given.config.read_text() + "deploy: {boards: [{name: a, host: a.lan, key: ../k1}]}\n"
    folder = tmp_path / "nets"
    folder.mkdir()
    (folder / "net.yaml").write_text(text)
    shutil.copy(given.folder / "small.onnx", folder)
    monkeypatch.chdir(folder)
    api.export_rollout("../out", "net.yaml", bundle=given.bundle)
    assert (
        f"ansible_ssh_private_key_file: {tmp_path}/k1" in Path("../out/inventory.yml").read_text()
    )


def test_a_rollout_is_resumed_from_another_folder(tmp_path, given, monkeypatch):
    monkeypatch.chdir(given.folder)
    with given.fleet() as fleet:
        name = fleet.begin(
            given.config.name,
            given.inventory.name,
            bundle=Path(given.bundle.name),
            name="one",
            settings=RolloutSettings(),
        )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    given.inventory.write_text("# a line more\n" + given.inventory.read_text())
    with Fleet(given.folder / "state", driver_for=lambda *_: given.boards) as fleet:
        before = fleet.rollout(name).path.read_bytes()
        document = fleet.drive(name)
        rows = [
            json.loads(line)
            for line in fleet.rollout(name).path.read_bytes()[len(before) :].splitlines()
        ]
    assert (document.state, document.notes) == ("done", ())
    assert document.inventory == str(given.inventory)
    # boards that moved to another line of the inventory are not written down again
    assert not [row for row in rows if "member" in row["set"]]
