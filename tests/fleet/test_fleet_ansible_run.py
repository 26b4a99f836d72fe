"""Rollouts by Ansible on two sshd boards, two more away; and what the command makes of its end."""

import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from edgekit.bundles.files import write
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.cli import main
from edgekit.errors import EnvironmentLack
from edgekit.fleet.ansible import run
from edgekit.fleet.ansible.export import export_ansible
from edgekit.fleet.waves import FleetBoard
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, home
from tests.fleet.fleet_doubles import write_inventory
from tests.pipeline.nets import small_config

__all__ = ["boards", "home"]

_ANSIBLE = Path(sys.executable).with_name("ansible-playbook")


def fleet(capsys, *arguments):
    """Runs ``edgekit fleet``; returns its status, its document and what it printed on stderr."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main.main(["fleet", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    return caught.value.code, json.loads(out), err


class Boards:
    """Boards cam-0 and cam-1, of an account that is the tests' own, and two that are away."""

    def __init__(self, tmp_path, start):
        if not _ANSIBLE.is_file():
            pytest.skip("no ansible-core here: pip install 'edgekit[ansible]'")
        servers = [start(tmp_path / f"board{n}") for n in range(2)]
        self.roots = [Path(server.board.root) for server in servers]
        self.members = [
            FleetBoard(dataclasses.replace(server.board, name=f"cam-{n}", kind="remote"))
            for n, server in enumerate(servers)
        ]
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        away = [
            FleetBoard(
                dataclasses.replace(self.members[0].board, name=name, port=port, root=f"~/{name}")
            )
            for name in ("cam-2", "cam-3")
        ]
        boards = [member.board for member in (*self.members, *away)]
        self.inventory = tmp_path / "fleet.yaml"
        rows = [
            f"  - {{name: {b.name}, host: 127.0.0.1, port: {b.port}, user: {b.user}, key: {b.key}, "
            f"host_key: '{b.host_key}', root: '{b.root}', python: {b.python}}}"
            for b in boards
        ]
        self.inventory.write_text("version: 1\nboards:\n" + "\n".join(rows) + "\n")

    def has(self, number, bundle, file, line):
        """Lets a board serve a bundle, as a deployment before this test would have."""
        (self.roots[number] / "allowed_signers").write_text(line + "\n")
        command = [
            sys.executable,
            "-m",
            "edgekit_device",
            "install",
            "--root",
            str(self.roots[number]),
            "--app",
            bundle.name,
            "--from",
            str(file),
            "--policy",
            '{"measure_s": 0.01}',
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def serving(self):
        """The digest that serves on each board, "" for none."""
        records = [root / "apps/net/current/release.json" for root in self.roots]
        return [json.loads(r.read_text())["digest"] if r.is_file() else "" for r in records]


def play(folder, *arguments):
    """Runs Ansible by hand, which has to succeed; returns its recap by board and its output."""
    done = subprocess.run(
        [str(_ANSIBLE), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(cam-\d) +: (.*)$", done.stdout, re.MULTILINE)
    recap = {name: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row)} for name, row in rows}
    return recap, done.stdout + done.stderr


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
def test_ansible_rolls_out_stops_and_goes_back(tmp_path, boards, capsys, monkeypatch):
    """Four runs of Ansible: one over its budget, one that goes through, --check, a rollback."""
    there = Boards(tmp_path, boards)
    key = ensure_key(tmp_path / "key" / "id_ed25519")
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    made = [hand_made(seed=seed) for seed in range(2)]
    one, two = (bundle.signed(sign(bundle.manifest_bytes, key)) for bundle in made)
    files = [write(b, tmp_path / f"{n}.ekb", stripped=False) for n, b in enumerate((one, two))]
    config = small_config(tmp_path / "net")
    own = config.read_text().replace("name: small", "name: net")
    config.write_text(f"{own}deploy: {{sign_with: {key}, health: {{measure_s: 0.01}}}}\n")
    state = tmp_path / "the state"
    folder = state / "ansible" / "june"
    # variables of the user's own: each poll of a deployment would cost as much as a task
    (folder / "roles" / "edgekit_board").mkdir(parents=True)
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "all.yml").write_text("edgekit_board_async_s: 0\n")
    folder.chmod(0o700)

    def deploy(*more):
        return fleet(
            capsys,
            "deploy",
            config,
            "-i",
            there.inventory,
            "--bundle",
            files[1],
            "--driver",
            "ansible",
            "--name",
            "june",
            "--state",
            state,
            *more,
        )

    # cam-0 has nothing but a blob of the bundle; cam-1 serves another, and trusts nobody any more
    everything = [{*bundle.blobs, *bundle.weights} for bundle in (one, two)]
    both = everything[0] & everything[1]
    for digest in both:
        path = there.roots[0] / "blobs" / digest[:2] / digest
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_bytes(two.blobs[digest])
    (there.roots[0] / "allowed_signers").write_text(line + "\n")
    there.has(1, one, files[0], line)
    (there.roots[1] / "allowed_signers").write_text("")
    with tempfile.TemporaryDirectory(prefix="ek-") as sockets:
        for name, value in {
            # the boards' account is the tests' own; their sshd has no SFTP
            "ANSIBLE_REMOTE_TMP": str(tmp_path / "remote"),
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "ANSIBLE_ASYNC_DIR": str(tmp_path / "async"),
            "ANSIBLE_SSH_RETRIES": "0",
            # a socket's name has at most 107 letters
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
        }.items():
            monkeypatch.setenv(name, value)

        # over its budget: what the wave changed goes back, here to nothing, and no wave follows
        status, document, err = deploy("--waves", "3,100%", "--max-failures", "50%")
        assert (status, document["state"], document["failure"]["code"]) == (
            1,
            "failed",
            "fleet.failures",
        )
        reported = {row["board"]: row for row in document["boards"]}
        assert {name: (row["wave"], row["state"]) for name, row in reported.items()} == {
            "cam-0": (1, "failed"),
            "cam-1": (1, "failed"),
            "cam-2": (1, "unreachable"),
            "cam-3": (2, "not-begun"),
        }
        assert "too many boards of its wave failed" in reported["cam-0"]["error"]["message"]
        assert reported["cam-1"]["error"]["code"] == "bundle.unknown-signer"
        assert reported["cam-2"]["error"]["code"] == "board.unreachable"
        assert str(folder) in document["failure"]["hint"]
        assert there.serving() == ["", one.digest]
        # Ansible's own words go by; it copied only what the board lacked
        assert "PLAY RECAP" in err
        assert set(re.findall(r"item=blobs/([0-9a-f]{64})", err)) == everything[1] - both
        assert not (there.roots[0] / "inbox" / "net").exists()

        # the same rollout again: canaries are waves of Ansible's, and cam-0 did nothing wrong
        status, document, err = deploy(
            "--canary",
            "1",
            "--waves",
            "100%",
            "--select",
            "name!=cam-2,name!=cam-3",
            "--trust-key",
        )
        assert (status, document["state"], document["failure"]) == (0, "done", None)
        assert document["boards"] == [
            {"board": f"cam-{n}", "wave": n + 1, "state": "ok", "changed": True, "error": None}
            for n in range(2)
        ]
        assert there.serving() == [two.digest] * 2
        # cam-1 got what it lacked, once; cam-0 had it from before
        copied = re.findall(r"item=blobs/([0-9a-f]{64})", err)
        assert sorted(copied) == sorted(everything[1] - both)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

        # exported for Ansible by hand, a bundle by board; --check asks the boards alone
        shutil.rmtree(folder / "bundles")
        bundles = dict(zip(("cam-0", "cam-1"), (one, two), strict=True))
        export_ansible(folder, there.members, bundles, waves="100%")
        recap, text = play(folder, "deploy.yml", "--check")
        assert "ERROR" not in text
        assert [row["changed"] for row in recap.values()] == [1, 0]
        assert f"would be updated to {one.digest[:12]}" in text

        # a board has the loader of another edgekit: what serves is asked with this one's; on
        # the other one another bundle serves
        loader = next((there.roots[1] / "bin").glob("*.pyz"))
        loader.rename(loader.with_name("edgekit_device-other.pyz"))
        recap, _ = play(folder, "rollback.yml")
        assert [row["changed"] > 0 for row in recap.values()] == [False, True]
        assert there.serving() == [two.digest, one.digest]


PLAYED = """\
#!{python}
import json, os, pathlib, signal, sys, time
pathlib.Path("words.json").write_text(json.dumps(sys.argv[1:]))
print("TASK [The board] \\x1b[31m", flush=True)
{act}
"""


@pytest.fixture
def played(tmp_path, given, capsys, monkeypatch):
    """``fleet deploy --driver ansible`` where a few lines of Python are ansible-playbook."""
    inventory, state = write_inventory(tmp_path / "two.yaml", 2), tmp_path / "state"

    def deploy(act, *more):
        program = tmp_path / "ansible-playbook"
        program.write_text(PLAYED.format(python=sys.executable, act=act))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(run, "find_program", lambda name: str(program))
        return fleet(
            capsys,
            "deploy",
            given.config,
            "-i",
            inventory,
            "--bundle",
            given.bundle,
            "--driver",
            "ansible",
            "--name",
            "one",
            "--state",
            state,
            *more,
        )

    deploy.folder = state / "ansible" / "one"
    return deploy


def recap(**boards):
    rows = {
        name: {"unreachable": 0, "failures": int(why is not None), "changed": 1, "why": why}
        for name, why in boards.items()
    }
    return f"pathlib.Path(os.environ['EDGEKIT_RECAP']).write_text({json.dumps(rows)!r})"


@pytest.mark.parametrize(
    ("act", "status", "state", "code", "words"),
    [
        (recap(b01=None, b02=None), 0, "done", None, ""),
        (
            recap(b01=None, b02="full") + "; sys.exit(2)",
            1,
            "failed",
            "fleet.failures",
            "1 failed, 1 ok",
        ),
        (recap(b01=None), 1, "failed", "fleet.failures", "1 not-begun, 1 ok"),
        ("print('[ERROR]: no role'); sys.exit(4)", 4, "failed", "fleet.ansible", "no role"),
        (recap(b01=None, b02=None) + "; sys.exit(9)", 4, "failed", "fleet.ansible", "status 9"),
    ],
)
def test_the_end_is_ansibles(played, act, status, state, code, words):
    got, document, err = played(act, "--parallel", "3", "--waves", "1,100%")
    assert (got, document["state"]) == (status, state)
    failure = document["failure"] or {"code": None, "message": ""}
    assert failure["code"] == code
    assert words in failure["message"]
    assert "TASK [The board]" in err
    assert "\x1b" not in err
    given = json.loads((played.folder / "words.json").read_text())
    assert given == ["-i", "inventory.yml", "--forks", "3", "deploy.yml"]


STOPPED = """\
def stop(number, frame):
    print("[ERROR]: User interrupted execution", flush=True)
    sys.exit(99)
signal.signal(signal.SIGINT, stop)
"""


def test_ctrl_c_stops_ansible_and_nothing_is_said_of_boards_that_it_did_not_count(
    played, monkeypatch
):
    monkeypatch.setattr(main, "_signals", [])
    act = f"""\
{STOPPED}
os.kill(os.getppid(), signal.SIGINT)
while True:
    time.sleep(60)
"""
    status, document, err = played(act)
    assert (status, document["state"], document["counts"]) == (130, "interrupted", {"unknown": 2})
    assert "User interrupted execution" in err
    assert f"cd {played.folder}" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_ansible_starts_stops_it(played, monkeypatch, number):
    monkeypatch.setattr(main, "_signals", [])
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, command, **options):
            super().__init__(command, **options)
            if command[0].endswith("ansible-playbook"):
                started.append(self)
                os.kill(os.getpid(), number)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    status, document, err = played(f"{STOPPED}\nwhile True:\n    time.sleep(60)\n")
    assert (status, document["state"]) == (130, "interrupted")
    (ansible,) = started
    assert ansible.returncode is not None
    assert "Ansible is stopped" in err


def test_a_rollout_by_ansible_has_no_state_and_says_how_it_goes_on(played, capsys, tmp_path):
    played(recap(b01=None, b02=None))
    for action in ("pause", "resume", "abort", "rollback"):
        status, document, _ = fleet(capsys, action, "one", "--state", tmp_path / "state")
        assert (status, document["error"]["code"]) == (2, "fleet.by-ansible")
        assert "rollback.yml" in document["error"]["hint"]


def test_the_last_run_by_ansible_is_listed_and_shown(played, capsys, tmp_path):
    state = ("--state", tmp_path / "state")
    played(recap(b01=None, b02="full") + "; sys.exit(2)")
    _, listing, _ = fleet(capsys, "status", *state)
    (row,) = listing["ansible"]
    assert (row["rollout"], row["state"], row["counts"]) == (
        "one",
        "failed",
        {"failed": 1, "ok": 1},
    )
    assert row["failure"]["code"] == "fleet.failures"
    status, document, _ = fleet(capsys, "status", "one", *state)
    assert (status, document["schema"]) == (0, "edgekit.fleet.ansible-run/1")
    with pytest.raises(SystemExit) as caught:
        main.main(["fleet", "status", *map(str, state)])
    out = capsys.readouterr().out
    assert caught.value.code == 0
    assert out.splitlines()[0].split() == ["rollout", "driver", "state", "changed", "boards"]
    assert out.splitlines()[1].split()[:3] == ["one", "ansible", "failed"]
    with pytest.raises(SystemExit):
        main.main(["fleet", "status", "one", *map(str, state)])
    out = capsys.readouterr().out
    assert "full" in out
    assert "ansible-playbook deploy.yml" in out


def test_boards_of_an_inventory_have_their_newest_turn_also_by_ansible(
    played, capsys, tmp_path, monkeypatch
):
    away = EnvironmentLack("no route", code="board.unreachable")
    monkeypatch.setattr("edgekit.fleet.boards.open_board", Mock(side_effect=away))
    state = ("--state", tmp_path / "state")
    played(recap(b01=None, b02="full") + "; sys.exit(2)", "--waves", "1,100%")
    _, document, _ = fleet(capsys, "status", "-i", tmp_path / "two.yaml", *state)
    turns = {row["board"]: row["apps"] for row in document["boards"] if row["apps"]}
    assert {name: (a["rollout"], a["wave"], a["state"]) for name, (a,) in turns.items()} == {
        "b01": ("one", 1, "ok"),
        "b02": ("one", 2, "failed"),
    }


def test_a_run_that_goes_on_is_running_and_is_not_begun_twice(played, tmp_path, capsys):
    state = ("--state", tmp_path / "state")
    look = (
        f"import subprocess; done = subprocess.run([sys.executable, '-m', 'edgekit', 'fleet', "
        f"'status', '--json', *{[str(word) for word in state]!r}], stdout=subprocess.PIPE); "
        "pathlib.Path('look.json').write_bytes(done.stdout); "
    )
    played(look + recap(b01=None, b02=None))
    (row,) = json.loads((played.folder / "look.json").read_text())["ansible"]
    assert (row["state"], row["counts"]) == ("running", {"unknown": 2})
    with (played.folder / ".running").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, document, _ = played(recap(b01=None, b02=None))
        assert (status, document["error"]["code"]) == (2, "fleet.driven")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--soak", "1"), "fleet.ansible-option"),
        (("--deadline", "600"), "fleet.ansible-option"),
        (("--accept-host-key",), "fleet.ansible-option"),
        (("--max-failures", "1"), "fleet.budget"),
        (("--name", "../one"), "usage"),
    ],
)
def test_what_ansible_cannot_do_is_refused_first(played, more, code):
    status, document, _ = played("sys.exit(0)", *more)
    assert (status, document["error"]["code"]) == (2, code)
    assert not played.folder.exists()


def test_without_ansible_nothing_is_begun(tmp_path, given, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    inventory = write_inventory(tmp_path / "two.yaml", 2)
    status, document, _ = fleet(
        capsys,
        "deploy",
        given.config,
        "-i",
        inventory,
        "--bundle",
        given.bundle,
        "--driver",
        "ansible",
        "--state",
        tmp_path / "state",
    )
    assert status == EnvironmentLack.exit_code
    assert "edgekit[ansible]" in document["error"]["hint"]
    assert not (tmp_path / "state").exists()
