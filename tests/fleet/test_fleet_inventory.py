"""Inventories: what is understood, and what is refused where."""

import json
import os

import pytest

from edgekit.errors import ConfigError, EnvironmentLack
from edgekit.fleet import inventory
from edgekit.fleet.inventory import load_inventory

OURS = """\
version: 1
defaults: {user: nvidia, key: keys/id, labels: {site: a}}
boards:
  - name: "cam-[08:11]"
    host: 10.0.0.[1:4]
    labels: {kind: orin, rack: 12}
  - {name: edge.9, host: "fe80::1%eth0", port: 2222, user: root, root: /data/edgekit,
     labels: {site: "b,c"}, config: xavier.yaml}
"""


@pytest.fixture
def no_ansible(monkeypatch):
    monkeypatch.setattr(inventory, "find_program", lambda name: None)


def load(tmp_path, text, name="fleet.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_inventory(path)


def problems(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return [(p.where.partition("fleet.yaml:")[2], p.message) for p in caught.value.problems]


def test_ranges_defaults_and_labels(tmp_path):
    members = load(tmp_path, OURS)
    assert [m.name for m in members] == ["cam-08", "cam-09", "cam-10", "cam-11", "edge.9"]
    assert [m.board.host for m in members[:4]] == [f"10.0.0.{n}" for n in (1, 2, 3, 4)]
    assert members[0].labels == {"site": "a", "kind": "orin", "rack": "12"}
    assert members[0].board.key == tmp_path / "keys" / "id"
    last = members[-1]
    assert (last.board.port, last.board.user, last.board.root) == (2222, "root", "/data/edgekit")
    assert last.labels == {"site": "b,c"}
    assert last.config == tmp_path / "xavier.yaml"


def test_a_board_survives_being_written_down(tmp_path):
    from edgekit.fleet.waves import FleetBoard
    from edgekit_device.protocol.codec import read, write

    for member in load(tmp_path, OURS):
        assert read(FleetBoard, json.loads(json.dumps(write(member)))) == member


def test_every_fault_is_reported_with_its_place(tmp_path):
    text = """\
version: 1
boards:
  - {name: a, host: h, prt: 3}
  - {name: b, host: "-oProxyCommand=x"}
  - {host: c, labels: {"a b": x, k: [1]}}
  - {name: d, host: d, port: 70000, host_key: MD5}
"""
    found = problems(tmp_path, text)
    assert {where for where, _ in found} >= {"3:24", "4:15", "5:5", "5:24"}
    assert {where[0] for where, _ in found} == {"3", "4", "5", "6"}
    text = " | ".join(message for _, message in found)
    for words in (
        "unknown key 'boards.0.prt'",
        "does not begin with a dash",
        "'boards.2.name' is missing",
        "a label has letters",
        "70000 is too large (at most 65535)",
        "SHA256",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("[{name: a, host: h}, {name: A, host: i}]", "appears twice"),
        ("[{name: a, host: h}, {name: b, host: H, port: 22}]", "are the same board"),
        ('[{name: "a[1:2]", host: h}]', "a range in both"),
        ('[{name: "a[1:2]", host: "h[1:3]"}]', "2 names and 3 hosts"),
        ('[{name: "a[3:1]", host: "h[3:1]"}]', "goes from 3 down to 1"),
        ('[{name: "a[1:9999999]", host: "h[1:9999999]"}]', "goes from"),
        ('[{name: "../x", host: h}]', "is not a valid name"),
        ('[{name: "a\\nb", host: h}]', "is not a valid name"),
        ("[]", "too few items: 0 (at least 1)"),
    ],
)
def test_boards_that_are_none_or_the_same(tmp_path, rows, words):
    ((where, message),) = problems(tmp_path, f"version: 1\nboards: {rows}\n")
    assert words in message
    assert where.startswith("2:")


def test_one_host_may_have_two_folders(tmp_path):
    rows = "[{name: a, host: h}, {name: b, host: h, root: /b}]"
    assert len(load(tmp_path, f"version: 1\nboards: {rows}\n")) == 2


@pytest.mark.parametrize("value", ["a\\nb", "\\e[31m", "x" * 129])
def test_labels_cannot_carry_control_characters(tmp_path, value):
    rows = f'[{{name: a, host: h, labels: {{site: "{value}"}}}}]'
    ((_, message),) = problems(tmp_path, f"version: 1\nboards: {rows}\n")
    assert "one line of at most 128" in message


@pytest.mark.parametrize(
    ("name", "text"), [("hosts.ini", "[orin]\no1\n"), ("hosts.yaml", "all: {hosts: {o1: }}\n")]
)
def test_an_inventory_of_ansibles_needs_ansible(tmp_path, no_ansible, name, text):
    with pytest.raises(EnvironmentLack) as caught:
        load(tmp_path, text, name)
    assert caught.value.code == "fleet.no-ansible"


def test_what_ansible_lists_is_taken(tmp_path, monkeypatch):
    """Against a program that answers as ansible-inventory --list does."""
    own = {"ansible_host": "10.0.0.1", "ansible_port": 2201, "ansible_user": "nvidia"}
    listing = {
        "_meta": {"hostvars": {"o1": own, "n1": {"edgekit_labels": {"site": "b"}}}},
        "all": {"children": ["ungrouped", "orin"]},
        "orin": {"hosts": ["o1", "o2"], "children": ["nano"]},
        "nano": {"hosts": ["n1"]},
    }
    program = tmp_path / "ansible-inventory"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(listing)}\nEND\n")
    os.chmod(program, 0o755)
    monkeypatch.setattr(inventory, "find_program", lambda name: str(program))
    one, two, three = load(tmp_path, "[orin]\no1\no2\n", "hosts")
    assert (one.board.host, one.board.port, one.board.user) == ("10.0.0.1", 2201, "nvidia")
    assert dict(two.labels) == {"orin": ""}
    assert dict(three.labels) == {"orin": "", "nano": "", "site": "b"}
    listing["_meta"]["hostvars"]["o1"]["ansible_port"] = "ssh"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(listing)}\nEND\n")
    with pytest.raises(ConfigError, match="not a TCP port"):
        load(tmp_path, "[orin]\no1\no2\n", "hosts")
    program.write_text("#!/bin/sh\necho '{}'\n")
    with pytest.raises(ConfigError, match="hosts: the inventory contains no boards"):
        load(tmp_path, "", "hosts")
    program.write_text("#!/bin/sh\necho 'ERROR! bad line' >&2; exit 4\n")
    with pytest.raises(ConfigError, match="bad line"):
        load(tmp_path, "[orin\n", "hosts")


def test_a_missing_inventory_is_reported(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_inventory(tmp_path / "none.yaml")
    assert caught.value.code == "fleet.no-inventory"
