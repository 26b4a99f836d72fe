"""The exported rollout, run for real by ansible-playbook on two sshd boards, one more away."""

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgekit.bundle import allowed_signers_line, ensure_key, sign, write
from edgekit.cli import _main
from edgekit.fleet import Member
from edgekit.fleet._ansible import export_ansible
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, home
from tests.edgekit_device.source_servers import Handler, serving
from tests.pipeline.nets import small_config

__all__ = ["boards", "home"]

pytestmark = [pytest.mark.slow, pytest.mark.boards]

_ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
_QUICK = {"measure_s": 0.01}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return ensure_key(tmp_path_factory.mktemp("key") / "id_ed25519")


def signed(key, seed):
    bundle = hand_made(seed=seed)
    return bundle.signed(sign(bundle.manifest_bytes, key))


class Fleet:
    """Two boards, an exported folder with a space in its name, and ansible-playbook."""

    def __init__(self, tmp_path, boards):
        if not _ANSIBLE.is_file():
            pytest.skip("no ansible-core here: pip install 'edgekit[ansible]'")
        self.folder = tmp_path / "roll out"
        self.servers = [boards(tmp_path / f"board{n}") for n in range(2)]
        self.members = [
            Member(dataclasses.replace(server.board, name=f"cam-{n}", kind="remote"))
            for n, server in enumerate(self.servers)
        ]
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        board = dataclasses.replace(self.members[0].board, name="cam-2", port=port)
        self.away = Member(board)

    def env(self, tmp_path, sockets):
        return {
            # the boards' account is the tests' own; their sshd has no SFTP
            "ANSIBLE_REMOTE_TMP": str(tmp_path / "remote"), "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "ANSIBLE_ASYNC_DIR": str(tmp_path / "async"), "ANSIBLE_NOCOLOR": "1",
            # a socket's name has at most 107 letters
            "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
        }  # fmt: skip

    def export(self, bundle, members=None, **options):
        members = self.members if members is None else members
        bundles = {member.name: bundle for member in members}
        export_ansible(self.folder, members, bundles, policy=_QUICK, **options)

    def play(self, *arguments, good=True):
        """Runs Ansible; returns its recap by board. Each poll would cost as much as a task."""
        arguments += ("-e", "edgekit_board_async_s=0")
        with tempfile.TemporaryDirectory(prefix="ek-") as sockets:
            names = ("PATH", "HOME", "LANG")
            given = {name: os.environ[name] for name in names if name in os.environ}
            done = subprocess.run(
                [str(_ANSIBLE), *arguments], cwd=self.folder, capture_output=True, text=True,
                env={"LANG": "C.UTF-8", **given, **self.env(self.folder.parent, sockets)},
                check=False, timeout=300, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.told = done.stdout + done.stderr
        assert (done.returncode == 0) is good, self.told
        rows = re.findall(r"^(cam-\d) +: (.*)$", done.stdout, re.MULTILINE)
        return {name: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row)} for name, row in rows}

    def serving(self):
        """The digest that serves on each board, "" for none."""
        found = []
        for server in self.servers:
            record = Path(server.board.root) / "apps/net/current/release.json"
            found.append(json.loads(record.read_text())["digest"] if record.is_file() else "")
        return found

    def untrust(self, number):
        (Path(self.servers[number].board.root) / "allowed_signers").write_text("")


def test_ansible_rolls_out_stops_and_goes_back(tmp_path, boards, key):
    fleet = Fleet(tmp_path, boards)
    one, two = signed(key, 0), signed(key, 1)
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    with serving(Handler, folder=fleet.folder / "bundles") as mirror:
        fleet.export(one, waves="100%", signers=[line], sources=[mirror.url])
        recap = fleet.play("deploy.yml")
        assert all(row["changed"] and not row["failed"] for row in recap.values())
        assert fleet.serving() == [one.digest] * 2
        # the export is its own mirror: each board has fetched each blob once
        assert not any(path.endswith("/latest") for _, path, _ in mirror.asked)
        assert len(mirror.blobs_asked()) == 2 * len(set(mirror.blobs_asked()))

        # one of the first wave refuses the new bundle: the other goes back, no wave follows
        fleet.untrust(1)
        fleet.export(two, [*fleet.members, fleet.away], waves="2,100%", sources=[mirror.url])
        recap = fleet.play("deploy.yml", good=False)
        assert {name: row["failed"] for name, row in recap.items()} == {"cam-0": 1, "cam-1": 1}
        assert "net: bundle.unknown-signer: " in fleet.told
        assert "net: taken back with its wave" in fleet.told
        assert fleet.serving() == [one.digest] * 2
        releases = Path(fleet.servers[0].board.root) / "apps/net/releases"
        assert len(list(releases.iterdir())) == 2

    # without a mirror Ansible copies, and only what the board lacks
    fleet.export(two, fleet.members[1:], waves="100%", signers=[line])
    fleet.play("deploy.yml")
    copied = set(re.findall(r"item=blobs/([0-9a-f]{64})", fleet.told))
    everything = [{*bundle.blobs, *bundle.weights} for bundle in (one, two)]
    assert copied == everything[1] - everything[0]
    assert fleet.serving() == [one.digest, two.digest]
    assert not (Path(fleet.servers[1].board.root) / "inbox" / "net").exists()

    # as a mirror's rollout has it; --check asks the boards alone
    shutil.rmtree(fleet.folder / "bundles")
    fleet.export(two, waves="100%", sources=["https://mirror.example.org/"])
    recap = fleet.play("deploy.yml", "--check")
    assert "ERROR" not in fleet.told
    assert [row["changed"] for row in recap.values()] == [1, 0]
    assert f"would be brought to {two.digest[:12]}" in fleet.told
    assert fleet.serving() == [one.digest, two.digest]

    # the board has the loader of another edgekit: what serves is asked with this one's
    loader = next((Path(fleet.servers[1].board.root) / "bin").glob("*.pyz"))
    loader.rename(loader.with_name("edgekit_device-other.pyz"))
    recap = fleet.play("rollback.yml")
    assert [row["changed"] > 0 for row in recap.values()] == [False, True]
    assert fleet.serving() == [one.digest] * 2


def test_a_rollout_is_driven_by_ansible(tmp_path, boards, key, monkeypatch, capsys):
    fleet = Fleet(tmp_path, boards)
    if not _ANSIBLE.with_name("ansible-runner").is_file():
        pytest.skip("no ansible-runner here: pip install 'edgekit[ansible]'")
    config = small_config(tmp_path / "net")
    config.write_text(config.read_text().replace("name: small", "name: net"))
    bundle = signed(key, 0)
    file = write(bundle, tmp_path / "net.ekb", stripped=False)
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    roots = [Path(server.board.root) for server in fleet.servers]
    (roots[0] / "allowed_signers").write_text(line + "\n")
    inventory = tmp_path / "fleet.yaml"
    rows = [
        f"  - {{name: {m.name}, host: 127.0.0.1, port: {m.board.port}, user: {m.board.user}, "
        f"key: {m.board.key}, host_key: '{m.board.host_key}', root: {m.board.root}, "
        f"python: {m.board.python}}}"
        for m in (*fleet.members, fleet.away)
    ]
    inventory.write_text("version: 1\nboards:\n" + "\n".join(rows) + "\n")
    with tempfile.TemporaryDirectory(prefix="ek-") as sockets:
        for name, value in fleet.env(tmp_path, sockets).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as caught:
            _main.main([
                "fleet", "deploy", str(config), "-i", str(inventory), "--bundle", str(file),
                "--driver", "ansible", "--waves", "100%", "--deadline", "0", "--name", "one",
                "--state", str(tmp_path / "state"), "--json",
            ])  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    # the second board refuses, the first goes back to what it had: nothing
    assert caught.value.code == 1, document
    told = {row["board"]: row for row in document["boards"]}
    states = [told[name]["state"] for name in ("cam-0", "cam-1", "cam-2")]
    assert states == ["rolled-back", "failed", "skipped"]
    assert told["cam-0"]["digest"] == bundle.digest
    assert told["cam-1"]["error"]["code"] == "bundle.unknown-signer"
    assert told["cam-2"]["error"]["code"] == "board.unreachable"
    assert fleet.serving() == ["", ""]
    private = tmp_path / "state/ansible/one"
    assert private.stat().st_mode & 0o077 == 0
    assert not (private / "artifacts").exists()
