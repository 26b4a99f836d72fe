"""A rollout exported to Ansible: the files alone, and run for real on three sshd boards."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from edgekit.bundle import allowed_signers_line, ensure_key, sign
from edgekit.deploy import Board, Container
from edgekit.errors import UsageError
from edgekit.fleet._ansible import export_ansible
from edgekit.fleet._ansible_files import PIN, percentage
from edgekit.fleet._types import Member
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, home
from tests.edgekit_device.source_servers import Handler, serving

__all__ = ["boards", "home"]

_ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
_PIN = "SHA256:" + "A" * 43


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return ensure_key(tmp_path_factory.mktemp("key") / "id_ed25519")


def bundle_of(key: Path, seed: int = 0):
    bundle = hand_made(seed=seed)
    return bundle.signed(sign(bundle.manifest_bytes, key))


def member(name: str, labels=None, **fields) -> Member:
    return Member(Board(name, **{"host": f"{name}.lab", **fields}), labels or {})


def export(folder: Path, members, bundle, **options):
    return export_ansible(folder, members, {m.name: bundle for m in members}, **options)


def test_the_inventory_has_every_board_in_the_order_of_the_waves(tmp_path, key):
    members = [member(f"cam-{n}", {"site": "a b", "kind": "orin" if n % 2 else "xavier"})
               for n in range(10)]  # fmt: skip
    members[3] = member(
        "cam-3", {"9": "x", "spare": ""}, port=2222, user="ed", root="/data/ek",
        key=Path("/keys/ed"), host_key=_PIN, python="/opt/py/bin/python3",
    )  # fmt: skip
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


def test_an_export_into_the_same_folder_keeps_what_users_put_there(tmp_path, key):
    folder = tmp_path / "out"
    export(folder, [member("a")], bundle_of(key))
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text("mine: 1\n")
    export(folder, [member("a"), member("b")], bundle_of(key, 1))
    assert (folder / "group_vars/all.yml").read_text() == "mine: 1\n"
    assert len(list(folder.glob("bundles/net/*/manifest.json"))) == 2


def test_the_role_has_no_shell_and_says_what_its_variables_are():
    from edgekit.fleet import _ansible

    role = Path(_ansible.__file__).with_name("_ansible_role")
    tasks = [(file, task) for file in sorted(role.glob("tasks/*.yml"))
             for task in _flat(yaml.safe_load(file.read_text()))]  # fmt: skip
    modules = {key for _, task in tasks for key in task if "." in key}
    assert modules <= {f"ansible.builtin.{name}" for name in
                       ("file", "copy", "command", "debug", "include_tasks", "set_fact",
                        "fail")}  # fmt: skip
    commands = [task["ansible.builtin.command"] for _, task in tasks
                if "ansible.builtin.command" in task]  # fmt: skip
    assert len(commands) == 5
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
    done = subprocess.run(["/bin/sh", str(script), *words], capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout == ("[h]:22 ssh-ed25519 AAAA\n" if known else "")


class Fleet:
    """Three boards, an exported folder with a space in its name, and ansible-playbook."""

    def __init__(self, tmp_path: Path, boards) -> None:
        self.folder = tmp_path / "roll out"
        self.tmp = tmp_path
        self.servers = [boards(tmp_path / f"board{n}") for n in range(3)]
        self.members = [
            Member(dataclasses.replace(server.board, name=f"cam-{n}", kind="remote"))
            for n, server in enumerate(self.servers)
        ]

    def play(
        self, *arguments: str, good: bool = True, polled: bool = False
    ) -> dict[str, dict[str, int]]:
        """Runs Ansible; returns its recap by board. Each poll costs as much as a task."""
        if not polled:
            arguments += ("-e", "edgekit_board_async_s=0")
        env = {
            "PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8",
            # the boards' account is the tests' own; their sshd has no SFTP
            "ANSIBLE_REMOTE_TMP": str(self.tmp / "remote"), "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "ANSIBLE_ASYNC_DIR": str(self.tmp / "async"), "ANSIBLE_NOCOLOR": "1",
        }  # fmt: skip
        # a socket's name has at most 107 letters
        with tempfile.TemporaryDirectory(prefix="ek-") as sockets:
            done = self._run(arguments, {**env, "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets})
        self.told = done.stdout + done.stderr
        assert (done.returncode == 0) is good, self.told
        rows = re.findall(r"^(cam-\d) +: (.*)$", done.stdout, re.MULTILINE)
        return {name: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row)} for name, row in rows}

    def _run(
        self, arguments: tuple[str, ...], env: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(_ANSIBLE), *arguments], cwd=self.folder, env=env,
            capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def serving(self) -> list[str]:
        """The digest that serves on each board, "" for none."""
        found = []
        for server in self.servers:
            current = Path(server.board.root) / "apps/net/current"
            record = current / "release.json"
            found.append(json.loads(record.read_text())["digest"] if record.is_file() else "")
        return found


@pytest.mark.slow
@pytest.mark.boards
def test_ansible_rolls_out_stops_and_goes_back(tmp_path, boards, key):
    if not _ANSIBLE.is_file():
        pytest.skip("no ansible-core here: pip install 'edgekit[ansible]'")
    fleet = Fleet(tmp_path, boards)
    one, two = bundle_of(key), bundle_of(key, 1)
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    with serving(Handler, folder=fleet.folder / "bundles") as mirror:
        waves = {"canary": 1, "waves": "100%", "policy": {"measure_s": 0.01}}
        export(fleet.folder, fleet.members, one, signers=[line], sources=[mirror.url], **waves)
        recap = fleet.play("deploy.yml", polled=True)
        assert all(row["changed"] and not row["failed"] for row in recap.values())
        assert fleet.serving() == [one.digest] * 3
        # the export is its own mirror: each board has fetched each blob once
        assert not any(path.endswith("/latest") for _, path, _ in mirror.asked)
        assert len(mirror.blobs_asked()) == 3 * len(set(mirror.blobs_asked()))
        recap = fleet.play("deploy.yml")
        assert [row["changed"] for row in recap.values()] == [0, 0, 0]

        # the canary refuses the new bundle: its wave fails, and no further one begins
        signers = Path(fleet.servers[0].board.root) / "allowed_signers"
        signers.write_text("")
        export(fleet.folder, fleet.members, two, sources=[mirror.url], **waves)
        recap = fleet.play("deploy.yml", good=False)
        assert recap["cam-0"]["failed"] == 1
        assert set(recap) == {"cam-0"}
        assert "net: bundle.unknown-signer: " in fleet.told
        assert fleet.serving() == [one.digest] * 3

    # without a mirror Ansible copies, and only what the board lacks
    export(fleet.folder, fleet.members, two, **waves)
    fleet.play("deploy.yml", "--check", "--limit", "cam-1")
    assert f"would be brought to {two.digest[:12]}" in fleet.told
    assert fleet.serving() == [one.digest] * 3
    fleet.play("deploy.yml", "--limit", "cam-1")
    copied = set(re.findall(r"item=blobs/([0-9a-f]{64})", fleet.told))
    everything = [{*bundle.blobs, *bundle.weights} for bundle in (one, two)]
    assert copied == everything[1] - everything[0]
    assert fleet.serving() == [one.digest, two.digest, one.digest]
    assert not (Path(fleet.servers[1].board.root) / "inbox" / "net").exists()

    recap = fleet.play("rollback.yml")
    assert [row["changed"] for row in recap.values()] == [0, 1, 0]
    assert fleet.serving() == [one.digest] * 3
