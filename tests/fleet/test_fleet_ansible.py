"""A rollout exported to Ansible: the files; test_fleet_ansible_run.py runs them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from edgekit.bundles.files import read
from edgekit.bundles.sign import ensure_key, sign
from edgekit.deployment.board import Board, Container
from edgekit.errors import UsageError
from edgekit.fleet.ansible.export import PIN, export_ansible, percentage
from edgekit.fleet.waves import FleetBoard
from tests.boards.bundles import hand_made

_PIN = "SHA256:" + "A" * 43


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return ensure_key(tmp_path_factory.mktemp("key") / "id_ed25519")


def bundle_of(key: Path, seed: int = 0):
    bundle = hand_made(seed=seed)
    return bundle.signed(sign(bundle.manifest_bytes, key))


def member(name: str, labels=None, **fields) -> FleetBoard:
    return FleetBoard(Board(name, **{"host": f"{name}.lab", **fields}), labels or {})


def export(folder: Path, members, bundle, **options):
    return export_ansible(folder, members, {m.name: bundle for m in members}, **options)


def test_the_inventory_has_every_board_in_the_order_of_the_waves(tmp_path, key):
    members = [
        member(f"cam-{n}", {"site": "a b", "kind": "orin" if n % 2 else "xavier"})
        for n in range(10)
    ]
    members[3] = member(
        "cam-3",
        {"9": "x", "spare": ""},
        port=2222,
        user="ed",
        root="/data/ek",
        key=Path("/keys/ed"),
        host_key=_PIN,
        python="/opt/py/bin/python3",
    )
    made = export(tmp_path / "out", members, bundle_of(key), canary=2, budget="5%")
    assert made.waves == (2, 3, 5)  # the third: 100 %, less those before
    document = yaml.safe_load((tmp_path / "out/inventory.yml").read_text())
    groups = document["all"]["children"]
    hosts = groups["edgekit_boards"]["hosts"]
    assert sorted(hosts) == sorted(m.name for m in members)
    kinds = [dict(members[int(name[-1])].labels).get("kind") for name in list(hosts)[:2]]
    assert sorted(kinds) == ["orin", "xavier"]
    own = hosts["cam-3"]
    assert (own["ansible_host"], own["ansible_port"], own["ansible_user"]) == (
        "cam-3.lab",
        2222,
        "ed",
    )
    assert own["edgekit_board_root"] == "/data/ek"
    assert own["edgekit_board_host_key"] == _PIN
    assert "KnownHostsCommand" in own["ansible_ssh_common_args"]
    assert list(groups["label_9_x"]["hosts"]) == list(groups["spare"]["hosts"]) == ["cam-3"]
    assert "site_a_b" in groups
    (play,) = yaml.safe_load((tmp_path / "out/deploy.yml").read_text())
    assert (play["serial"], play["max_fail_percentage"]) == ([2, 3, 5], 5)
    # the role takes a wave back by the same budget as Ansible stops by
    assert play["vars"]["edgekit_board_most_failed"] == 5


def test_boards_with_bundles_of_their_own_have_them_by_name(tmp_path, key):
    members = [member("a"), member("b")]
    one, two = bundle_of(key), bundle_of(key, 1)
    export_ansible(tmp_path / "out", members, {"a": one, "b": two}, waves="100%")
    document = yaml.safe_load((tmp_path / "out/inventory.yml").read_text())
    boards = document["all"]["children"]["edgekit_boards"]
    found = {name: v["edgekit_board_digest"] for name, v in boards["hosts"].items()}
    assert found == {"a": one.digest, "b": two.digest}
    assert "edgekit_board_digest" not in boards["vars"]


def test_what_ansible_cannot_do_is_refused_before_anything_is_written(tmp_path, key):
    bundle, folder = bundle_of(key), tmp_path / "out"
    with pytest.raises(UsageError) as refused:
        export(folder, [member("a", container=Container("image"))], bundle)
    assert refused.value.code == "fleet.container"
    with pytest.raises(UsageError) as refused:
        export(folder, [], bundle)
    assert refused.value.code == "fleet.empty"
    with pytest.raises(UsageError, match="percent"):
        export(folder, [member("a")], bundle, budget="2")
    assert not folder.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(UsageError) as refused:
        export(tmp_path / "mine", [member("a")], bundle)
    assert refused.value.code == "write.occupied"
    assert [percentage(text) for text in ("0", "0%", "5%", " 100% ")] == [0, 0, 5, 100]


def test_what_a_board_is_asked_first_and_the_whole_bundle_are_there(tmp_path, key):
    bundle = bundle_of(key)
    export(tmp_path, [member("a")], bundle)
    here = tmp_path / "bundles/net" / bundle.digest
    offer = json.loads((here / "offer.json").read_text())
    assert offer["manifest"].encode() == bundle.manifest_bytes
    assert offer["signature"].encode() == bundle.signature
    for name in ("bundle", "bundle.ekb"):
        assert set(read(here / name).weights) == set(bundle.weights)


def test_an_export_into_the_same_folder_keeps_what_users_put_there(tmp_path, key):
    folder = tmp_path / "out"
    export(folder, [member("a")], bundle_of(key))
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text("mine: 1\n")
    export(folder, [member("a"), member("b")], bundle_of(key, 1))
    assert (folder / "group_vars/all.yml").read_text() == "mine: 1\n"
    assert len(list(folder.glob("bundles/net/*/bundle/manifest.json"))) == 2


def test_the_role_has_no_shell_and_says_what_its_variables_are():
    from edgekit.fleet.ansible import export as export_module

    role = Path(export_module.__file__).with_name("role")
    tasks = [
        (file, task)
        for file in sorted(role.glob("tasks/*.yml"))
        for task in _flat(yaml.safe_load(file.read_text()))
    ]
    modules = {key for _, task in tasks for key in task if "." in key}
    assert modules <= {
        f"ansible.builtin.{name}"
        for name in (
            "file",
            "copy",
            "command",
            "debug",
            "include_tasks",
            "import_tasks",
            "set_fact",
            "fail",
            "tempfile",
        )
    }
    commands = [
        task["ansible.builtin.command"] for _, task in tasks if "ansible.builtin.command" in task
    ]
    assert len(commands) == 6
    assert all("argv" in command and "cmd" not in command for command in commands)
    # each changes something only where the board says so
    assert all("changed_when" in task for _, task in tasks if "ansible.builtin.command" in task)
    text = "".join(file.read_text() for file in role.glob("*/*.yml"))
    known = set(yaml.safe_load((role / "defaults/main.yml").read_text()))
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    assert set(specs["main"]["options"]) == set(specs["rollback"]["options"]) == known
    assert known <= set(re.findall(r"edgekit_board_\w+", text))


def _flat(tasks):
    for task in tasks:
        yield task
        yield from _flat([*task.get("block", ()), *task.get("rescue", ())])


@pytest.mark.parametrize(("print_", "known"), [(_PIN, True), ("SHA256:other", False), ("", False)])
def test_a_host_key_is_known_by_its_pin_alone(tmp_path, print_, known):
    script = tmp_path / "pinned_host_key"
    script.write_text(PIN)
    words = ["[h]:22", "ssh-ed25519", "AAAA", print_, _PIN if print_ else ""]
    done = subprocess.run(
        ["/bin/sh", str(script), *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == ("[h]:22 ssh-ed25519 AAAA\n" if known else "")
