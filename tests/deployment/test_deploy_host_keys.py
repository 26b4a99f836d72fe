"""Strict host keys: what makes a key acceptable, and what is refused, offline and for real."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from edgekit.deployment.host_keys import Trust, fingerprint, remember
from edgekit.deployment.ssh import connect
from edgekit.errors import BoardError, ConfigError
from tests.boards.fixtures import StartBoard, remote

NAME = "[192.0.2.7]:2222"


@pytest.fixture(scope="module")
def key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


@pytest.fixture(scope="module")
def other() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def line(name: str, key: paramiko.PKey) -> str:
    return f"{name} {key.get_name()} {key.get_base64()}"


def refusal(trust: Trust, key: paramiko.PKey, name: str = NAME) -> BoardError:
    with pytest.raises(BoardError) as caught:
        trust.check(name, key, "lab")
    assert caught.value.exit_code == 4
    assert caught.value.where == "lab"
    return caught.value


def test_unknown_key_is_refused_with_its_fingerprint(home: Path, key: paramiko.PKey) -> None:
    error = refusal(Trust(), key)
    assert error.code == "board.unknown-host-key"
    assert fingerprint(key) in error.message
    assert f'host_key: "{fingerprint(key)}"' in error.hint
    assert "--accept-host-key" in error.hint


def test_pin_alone_decides(home: Path, key: paramiko.PKey, other: paramiko.PKey) -> None:
    write(home / ".ssh/known_hosts", line(NAME, other))
    assert Trust(pin=fingerprint(key)).check(NAME, key, "lab") is False
    assert Trust(pin=fingerprint(key) + "=").check(NAME, key, "lab") is False
    assert refusal(Trust(pin=fingerprint(key)), other).code == "board.host-key-mismatch"
    # all of it counts
    nearly = fingerprint(key)[:-1] + ("B" if fingerprint(key)[-1] != "B" else "C")
    assert refusal(Trust(pin=nearly), key).code == "board.host-key-mismatch"


@pytest.mark.parametrize("hashed", [False, True])
def test_known_hosts_plain_and_hashed(
    home: Path, key: paramiko.PKey, other: paramiko.PKey, hashed: bool
) -> None:
    name = paramiko.HostKeys.hash_host(NAME) if hashed else f"lab.example,{NAME}"
    write(home / ".ssh/known_hosts", "# note", "", "broken line", line(name, key))
    assert Trust().check(NAME, key, "lab") is False
    assert refusal(Trust(), other).code == "board.host-key-mismatch"
    # the same address on another port is another host
    assert refusal(Trust(), key, "192.0.2.7").code == "board.unknown-host-key"


def test_revoked_key_is_refused_although_listed(home: Path, key: paramiko.PKey) -> None:
    write(home / ".ssh/known_hosts", line(NAME, key), f"@revoked {line('*', key)}")
    assert refusal(Trust(), key).code == "board.host-key-mismatch"


def test_config_file_is_read_and_must_be_there(
    home: Path, tmp_path: Path, key: paramiko.PKey
) -> None:
    file = write(tmp_path / "fleet hosts", line(NAME, key))
    assert Trust(required=file).check(NAME, key, "lab") is False
    with pytest.raises(ConfigError):
        Trust(required=tmp_path / "absent").check(NAME, key, "lab")


def test_consent_covers_unknown_keys_and_never_changed_ones(
    home: Path, key: paramiko.PKey, other: paramiko.PKey
) -> None:
    assert Trust(accept=True).check(NAME, key, "lab") is True
    assert Trust(accept=fingerprint(key)).check(NAME, key, "lab") is True
    assert refusal(Trust(accept=fingerprint(other)), key).code == "board.unknown-host-key"
    write(home / ".ssh/known_hosts", line(NAME, other))
    assert refusal(Trust(accept=True), key).code == "board.host-key-mismatch"


def test_remembering_adds_one_line_once(tmp_path: Path, key: paramiko.PKey) -> None:
    file = tmp_path / "state/known_hosts"
    for _ in range(2):
        remember(file, NAME, key)
    remember(file, "elsewhere", key)
    assert file.read_text().splitlines() == [line(NAME, key), line("elsewhere", key)]
    assert [path.name for path in file.parent.iterdir()] == ["known_hosts"]


@pytest.mark.boards
def test_board_with_an_unknown_key(boards: StartBoard, tmp_path: Path) -> None:
    server = boards()
    board = remote(server, host_key=None)
    with pytest.raises(BoardError) as caught:
        connect(board)
    assert caught.value.code == "board.unknown-host-key"
    assert str(server.board.host_key) in caught.value.message
    # accepted but not asked to remember: unknown again the next time
    store = tmp_path / "known_hosts"
    connect(board, accept_host_key=True, known_hosts=(store,)).close()
    assert not store.exists()
    connect(board, accept_host_key=str(server.board.host_key), remember_in=store).close()
    connect(board, known_hosts=(store,)).close()


@pytest.mark.boards
def test_board_with_the_wrong_key(boards: StartBoard, tmp_path: Path) -> None:
    one, two = boards(tmp_path / "one"), boards(tmp_path / "two")
    with pytest.raises(BoardError) as caught:
        connect(remote(one, host_key=two.board.host_key))
    assert caught.value.code == "board.host-key-mismatch"
    assert str(one.board.host_key) in caught.value.message


@pytest.mark.boards
def test_board_that_answers_with_another_key_than_before(
    boards: StartBoard, home: Path, tmp_path: Path, key: paramiko.PKey
) -> None:
    server = boards()
    name = f"[127.0.0.1]:{server.board.port}"
    write(home / ".ssh/known_hosts", line(name, key))
    with pytest.raises(BoardError) as caught:
        connect(remote(server, host_key=None), accept_host_key=True)
    assert caught.value.code == "board.host-key-mismatch"
