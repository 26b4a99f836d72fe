"""Reaching a board and being let in: what fails is named, what OpenSSH's config says is done."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.deployment.board import Board
from edgekit.deployment.ssh import ConnectionLimits, connect
from edgekit.deployment.ssh_config import resolve
from edgekit.errors import BoardError, ConfigError, EnvironmentLack
from tests.boards.fixtures import StartBoard, remote

pytestmark = pytest.mark.boards


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def unreachable(board: Board, code: str = "board.unreachable", **limits: float) -> EnvironmentLack:
    with pytest.raises(EnvironmentLack) as caught:
        connect(board, limits=ConnectionLimits(**limits))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.exit_code == 3
    assert caught.value.where == "lab"
    return caught.value


def test_nobody_listens(home: Path, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    error = unreachable(Board("lab", "127.0.0.1", port, "root"))
    assert "refused" in error.message
    assert f"127.0.0.1:{port}" in error.message


def test_no_such_host(home: Path) -> None:
    unreachable(Board("lab", "a" * 70, 22, "root"))  # longer than a DNS label can be


def test_something_else_answers(home: Path, listener: socket.socket) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"220 mail.example ESMTP\r\n" * 200)

    thread = threading.Thread(target=serve)
    thread.start()
    unreachable(Board("lab", "127.0.0.1", listener.getsockname()[1], "root"))
    thread.join()


def test_a_first_line_that_is_no_text_is_shown_escaped(home: Path, listener: socket.socket) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"caf\xe9 \x1b[31m\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    error = unreachable(Board("lab", "127.0.0.1", listener.getsockname()[1], "root"))
    thread.join()
    assert error.message.endswith("it does not speak SSH; its first line is caf\\xe9 \\x1b[31m")


def test_nothing_answers(home: Path, listener: socket.socket) -> None:
    board = Board("lab", "127.0.0.1", listener.getsockname()[1], "root")
    unreachable(board, "board.silent", banner_s=0.2)


def test_wrong_key_is_reported_with_what_was_tried(boards: StartBoard, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    _keygen(wrong)
    board = boards()
    with pytest.raises(BoardError) as caught:
        connect(remote(board, key=wrong))
    assert caught.value.code == "board.auth"
    assert str(wrong) in caught.value.hint
    assert f"ssh-copy-id -p {board.port} " in caught.value.hint


def test_key_with_a_passphrase_is_reported(boards: StartBoard, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    _keygen(locked, "secret words")
    with pytest.raises(BoardError) as caught:
        connect(remote(boards(), key=locked))
    assert caught.value.code == "board.auth"
    assert "ssh-add" in caught.value.hint


def test_a_missing_key_file_is_reported_before_anything_is_reached(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(Board("lab", "nowhere.invalid", key=tmp_path / "absent"))
    assert caught.value.code == "board.no-key"
    assert f"{tmp_path / 'absent'} does not exist" in caught.value.message


def test_usual_key_files_are_found(boards: StartBoard, home: Path) -> None:
    server = boards()
    assert server.board.key
    (home / ".ssh/id_ed25519").write_bytes(server.board.key.read_bytes())
    connect(remote(server, key=None)).close()


def test_ssh_config_gives_address_port_user_and_key(boards: StartBoard, home: Path) -> None:
    server = boards()
    _write_config(home, "lab-alias", server.board)
    board = Board("lab", "lab-alias", host_key=server.board.host_key)
    transport = connect(board)
    assert transport.run(["echo", "hello"]).out == b"hello\n"
    transport.close()
    # what the edgekit config says wins
    assert resolve(Board("lab", "lab-alias", port=9, user="me")).port == 9
    assert resolve(Board("lab", "lab-alias", user="me")).user == "me"


def test_unreadable_ssh_config_is_a_config_error(home: Path) -> None:
    (home / ".ssh/config").write_text("Host lab\n  Port =\n  \x00\x01\nMatch nonsense lab\n")
    with pytest.raises(ConfigError) as caught:
        resolve(Board("lab", "lab"))
    assert caught.value.code == "board.ssh-config"


def test_proxy_command(boards: StartBoard, home: Path, tmp_path: Path) -> None:
    server = boards()
    relay = tmp_path / "100% relay.py"
    relay.write_text(_RELAY, encoding="utf-8")
    program = shlex.join([sys.executable, str(relay)]).replace("%", "%%")
    command = f"{program} %h %p"
    _write_config(home, "inner", server.board, f"ProxyCommand {command}")
    transport = connect(Board("lab", "inner", host_key=server.board.host_key))
    assert transport.run(["cat"], stdin=[b"x" * 200_000]).out == b"x" * 200_000
    transport.close()


def test_pin_of_another_key_type_is_honoured(boards: StartBoard, tmp_path: Path) -> None:
    # the server also has an ECDSA key and the user pinned that one
    extra = tmp_path / "ecdsa"
    _keygen(extra, kind="ecdsa")
    pin = subprocess.run(
        ["ssh-keygen", "-lf", str(extra)], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    server = boards(host_keys=(extra,))
    connect(remote(server)).close()
    connect(remote(server, host_key=pin)).close()


def test_faults_of_the_fields_are_found_together() -> None:
    board = Board("lab", "", 70000, host_key="MD5:00", root="a\0b")
    with pytest.raises(ConfigError) as caught:
        connect(board)
    assert len(caught.value.problems) == 4


_RELAY = """
import os, socket, sys, threading

link = socket.create_connection((sys.argv[1], int(sys.argv[2])))

def down():
    while data := link.recv(65536):
        os.write(1, data)
    os._exit(0)

threading.Thread(target=down, daemon=True).start()
while data := os.read(0, 65536):
    link.sendall(data)
"""


def _keygen(path: Path, passphrase: str = "", kind: str = "ed25519") -> None:
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def _write_config(home: Path, alias: str, board: Board, *more: str) -> None:
    lines = [
        f"Host {alias}",
        f"  HostName {board.host}",
        f"  Port {board.port}",
        f"  User {board.user}",
        f"  IdentityFile {board.key}",
        *(f"  {text}" for text in more),
    ]
    with (home / ".ssh/config").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def test_connecting_imports_no_invoke_that_others_still_can() -> None:
    pytest.importorskip("invoke", reason="paramiko before 4.0 does without")
    text = (
        "import sys, edgekit.deployment.ssh, paramiko\n"
        "assert not [name for name in sys.modules if name.startswith('invoke.')]\n"
        "from invoke import task\n"
        "import invoke.tasks\n"
        "assert task is invoke.task is invoke.tasks.task\n"
        "assert paramiko.config.invoke.task is task\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
