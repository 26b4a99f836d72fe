"""edgekit's own board: it comes up, it is alone with its key, and it never outlives its owner."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.bundles.sign import ensure_key, sign
from edgekit.config.loader import open_config
from edgekit.deployment import embedded_sshd
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.connection import open_board
from edgekit.deployment.install import install
from edgekit.errors import BoardError, BundleError, EnvironmentLack
from edgekit.pipeline.boards.addresses import boards_or_embedded
from tests.boards.bundles import hand_made
from tests.boards.fixtures import StartBoard, need_sshd, remote

pytestmark = pytest.mark.boards


@pytest.fixture
def signer(tmp_path: Path) -> Path:
    return ensure_key(tmp_path / "signer")


def public(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def gone(pid: int) -> bool:
    """Waits until a process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 300.0)[0])
    finally:
        os.close(handle)


def test_the_own_board_has_one_name(home: Path, tmp_path: Path) -> None:
    """What lists the boards of a configuration calls it as what connects to it does."""
    need_sshd()
    config = open_config("builtin:light_squeezenet", target="jetson-agx-orin-64gb")
    (listed,) = boards_or_embedded(config)
    with open_board(None, state_folder=tmp_path / "state") as board:
        assert board.name == listed.name == "embedded"


def test_without_a_board_edgekit_starts_its_own(home: Path, tmp_path: Path, signer: Path) -> None:
    need_sshd()
    bundle = hand_made()
    signature = sign(bundle.manifest_bytes, signer)
    state = tmp_path / "state with spaces"
    with open_board(None, state_folder=state, signer_public_key=public(signer)) as board:
        assert board.kind == "sshd"
        assert "own sshd on loopback" in board.note
        release = install(bundle, board, signature=signature)
    # the server was thrown away, the releases were not
    with open_board(None, state_folder=state, signer_public_key=public(signer)) as board:
        assert board.app_releases("net").current == release.id
        assert install(bundle, board, signature=signature).blobs_sent == 0


@pytest.mark.whole
def test_without_sshd_the_board_is_local_and_says_why(
    home: Path, tmp_path: Path, signer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = hand_made()
    monkeypatch.setattr(embedded_sshd, "find_sshd", lambda: None)
    with open_board(None, state_folder=tmp_path, signer_public_key=public(signer)) as board:
        assert board.kind == "local"
        assert "sshd is not installed on this machine" in board.note
        release = install(bundle, board, signature=sign(bundle.manifest_bytes, signer))
    assert (release.kind, release.blobs_sent) == ("local", 3)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Missing privilege separation directory: /x' >&2; exit 255", "Missing privilege"),
        ("exit 1", "it printed nothing"),
    ],
)
def test_sshd_that_does_not_start_is_quoted(
    script: str, said: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sshd"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(embedded_sshd, "find_sshd", lambda: str(program))
    with open_board(None, state_folder=tmp_path / "state") as board:
        assert board.kind == "local"
        assert said in board.note


def test_port_that_is_taken_is_said(boards: StartBoard, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(EnvironmentLack) as caught:
        boards(port=taken.getsockname()[1])
    assert caught.value.code == "board.no-sshd"


def test_only_its_own_key_opens_it(boards: StartBoard, tmp_path: Path) -> None:
    server = boards()
    key = server.board.key
    assert key is not None
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    ssh = [
        "ssh",
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        f"UserKnownHostsFile={tmp_path / 'known'}",
        "-o",
        "IdentityFile=none",
        "-o",
        "PreferredAuthentications=password,keyboard-interactive,publickey",
        "-p",
        str(server.board.port),
        "127.0.0.1",
        "true",
    ]
    answer = subprocess.run(ssh, capture_output=True, text=True, check=False)
    assert answer.returncode == 255
    assert "Permission denied (publickey)" in answer.stderr


_OWNER = """
import sys, time
from pathlib import Path
from edgekit.deployment.embedded_sshd import sshd

with sshd(Path(sys.argv[1])) as server:
    print(server.pid, server.board.port, server.board.key.parent, flush=True)
    sys.stdin.read()
"""


def test_a_client_that_stays_is_let_go_with_the_server(boards: StartBoard) -> None:
    server = boards()
    assert server.board.key is not None
    client = subprocess.Popen(
        [
            "ssh",
            "-F",
            "none",
            "-i",
            str(server.board.key),
            "-p",
            str(server.port),
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "BatchMode=yes",
            f"{server.board.user}@127.0.0.1",
            "echo here; cat",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with client:
        assert client.stdout
        assert client.stdout.readline() == b"here\n"
        server.stop()
        assert client.wait(120) != 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_server_ends_with_its_owner(how: signal.Signals, tmp_path: Path) -> None:
    need_sshd()
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path / "board")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        assert owner.stdout
        pid, port, folder = owner.stdout.readline().split()
        owner.send_signal(how)
        owner.wait(120)
    assert gone(int(pid))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))
    assert not Path(folder).exists()  # with the keys in it


@pytest.mark.whole
def test_remote_board_trusts_a_signer_only_when_requested(
    boards: StartBoard, tmp_path: Path, signer: Path
) -> None:
    board = remote(boards())
    bundle = hand_made()
    signature = sign(bundle.manifest_bytes, signer)
    state = tmp_path / "state"
    with (
        open_board(board, state_folder=state, signer_public_key=public(signer)) as client,
        pytest.raises(BundleError) as caught,
    ):
        install(bundle, client, signature=signature)
    assert caught.value.code == "bundle.unknown-signer"
    with open_board(
        board, state_folder=state, signer_public_key=public(signer), trust_key=True
    ) as client:
        assert client.kind == "remote"
        install(bundle, client, signature=signature)


def test_accepted_host_key_is_remembered_only_on_request(
    boards: StartBoard, tmp_path: Path
) -> None:
    board = remote(boards(), host_key=None)
    state = tmp_path / "state"
    with open_board(board, state_folder=state, accept_host_key=True):
        pass
    with pytest.raises(BoardError) as caught, open_board(board, state_folder=state):
        pass
    assert caught.value.code == "board.unknown-host-key"
    with open_board(board, state_folder=state, accept_host_key=True, remember_host_key=True):
        pass
    with open_board(board, state_folder=state) as client:
        assert client.hello().schema == "edgekit.device/1"


def test_local_board_of_a_config(home: Path, tmp_path: Path) -> None:
    board = Board("here", kind="local", root=str(tmp_path / "root"), python=sys.executable)
    with open_board(board, state_folder=tmp_path) as client:
        assert isinstance(client, BoardClient)
        assert client.hello().root == str(tmp_path / "root")


def test_loader_lies_once_under_its_digest(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    board = Board("here", root=str(tmp_path / "root"), python=sys.executable, kind="local")
    for _ in range(2):
        with open_board(board, state_folder=tmp_path / "state") as client:
            digest = client.hello().loader
            assert list(temporary.iterdir()) == []
    names = [path.name for path in (tmp_path / "state" / "loader").iterdir()]
    assert names == [f"edgekit_device-{digest[:16]}.pyz"]


def test_the_board_finds_the_packages_that_this_python_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "some packages"
    folder.mkdir()
    (folder / "only_here.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with open_board(None, state_folder=tmp_path / "state") as board:
        assert board.kind == "sshd"
        argv = [board.board.python, "-c", "import only_here"]
        assert board._transport.run(argv).status == 0
