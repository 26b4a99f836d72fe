"""Host keys, keys and ways as OpenSSH's own files name them; against real servers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from edgekit.deployment import ssh_config as lookup
from edgekit.deployment.board import Board
from edgekit.deployment.embedded_sshd import Sshd
from edgekit.deployment.host_keys import Trust, fingerprint
from edgekit.deployment.ssh import connect
from edgekit.deployment.ssh_config import resolve
from edgekit.errors import BoardError, ConfigError
from tests.boards.fixtures import StartBoard, remote
from tests.security.security_keys import keygen, make_signer


@pytest.fixture(scope="module")
def key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


@pytest.fixture(scope="module")
def other() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


def line(hosts: str, key: paramiko.PKey, marker: str = "") -> str:
    return f"{marker} {hosts} {key.get_name()} {key.get_base64()}".strip()


def known(home: Path, *lines: str) -> None:
    (home / ".ssh/known_hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")


def config(home: Path, *lines: str) -> None:
    with (home / ".ssh/config").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def code_of(trust: Trust, name: str, key: paramiko.PKey) -> str:
    try:
        trust.check(name, key, "lab")
    except BoardError as error:
        return error.code
    return "known"


@pytest.mark.parametrize(
    ("hosts", "name", "matches"),
    [
        ("*.lab", "orin.lab", True),
        ("*.lab", "orin.lab.evil", False),
        ("*.lab,!bad.lab", "bad.lab", False),
        ("or?n.lab", "orin.lab", True),
        ("ORIN.lab", "orin.lab", True),
        ("[*.lab]:2222", "[orin.lab]:2222", True),
        ("[orin.lab]:2222", "[orin.lab]:2223", False),
        ("[a-z].lab", "q.lab", False),
        ("*", "anything", True),
    ],
)
def test_patterns(
    home: Path, key: paramiko.PKey, other: paramiko.PKey, hosts: str, name: str, matches: bool
) -> None:
    known(home, line(hosts, key))
    assert code_of(Trust(), name, key) == ("known" if matches else "board.unknown-host-key")
    # where a pattern says who is right, another key is a contradiction, not a new host
    expected = "board.host-key-mismatch" if matches else "board.unknown-host-key"
    assert code_of(Trust(), name, other) == expected


def test_a_revoked_key_is_refused_whatever_else_vouches_for_it(
    home: Path, tmp_path: Path, key: paramiko.PKey, other: paramiko.PKey
) -> None:
    known(home, line("orin", key), line("orin", other), line("*", key, "@revoked"))
    for trust in (Trust(), Trust(accept=True), Trust(pin=fingerprint(key))):
        assert code_of(trust, "orin", key) == "board.host-key-mismatch"
        assert trust.pin or code_of(trust, "orin", other) == "known"
    known(home, line("orin", key))
    listed = tmp_path / "revoked"
    for text, refused in ((line("", other), False), (line("", key), True), ("garbage", True)):
        listed.write_text(text + "\n", encoding="utf-8")
        expected = "board.host-key-mismatch" if refused else "known"
        assert code_of(Trust(revoked=listed), "orin", key) == expected
    public = tmp_path / "key.pub"
    for one, expected in ((other, "known"), (key, "board.host-key-mismatch")):
        public.write_text(line("", one))
        listed.unlink()
        keygen("-q", "-k", "-f", str(listed), str(public))
        assert code_of(Trust(revoked=listed), "orin", key) == expected
    assert code_of(Trust(revoked=tmp_path / "absent"), "orin", key) == "board.host-key-mismatch"


def test_a_certificate_authority_is_reported_and_vouches_for_nobody(
    home: Path, key: paramiko.PKey
) -> None:
    known(home, line("*.lab", key, "@cert-authority"))
    with pytest.raises(BoardError) as caught:
        Trust().check("orin.lab", key, "lab")
    assert caught.value.code == "board.unknown-host-key"
    assert "does not check host certificates" in caught.value.message


@pytest.mark.parametrize("setting", ["no", "accept-new", "off"])
@pytest.mark.boards
def test_no_setting_of_openssh_accepts_a_key(boards: StartBoard, home: Path, setting: str) -> None:
    server = boards()
    config(
        home,
        "Host *",
        f"StrictHostKeyChecking {setting}",
        "UserKnownHostsFile /dev/null",
        f"IdentityFile {server.board.key}",
    )
    with pytest.raises(BoardError) as caught:
        connect(remote(server, host_key=None))
    assert caught.value.code == "board.unknown-host-key"


@pytest.mark.boards
def test_a_board_with_several_keys_shows_the_known_one(
    boards: StartBoard, home: Path, tmp_path: Path
) -> None:
    extra = [make_signer(tmp_path, kind, kind) for kind in ("ecdsa", "rsa")]
    server = boards(host_keys=tuple(one.key for one in extra))
    name = f"[127.0.0.1]:{server.board.port}"
    for one in extra:
        known(home, f"{name} {one.words}")
        transport = connect(remote(server, host_key=None))
        assert transport.host_key == one.fingerprint
        transport.close()


@pytest.mark.boards
def test_files_aliases_include_and_match(boards: StartBoard, home: Path, tmp_path: Path) -> None:
    server = boards()
    board = server.board
    names = tmp_path / "my known hosts"
    public = scan(board)
    names.write_text(f"the-orin {public}\n")
    config(home, f"Include {tmp_path}/more*.conf", "Host *", "  User nobody")
    (tmp_path / "more1.conf").write_text(
        f'Match host o1 exec "true"\n  HostName {board.host}\n  Port {board.port}\n'
        f"  User {board.user}\n  IdentityFile {board.key}\n  HostKeyAlias the-orin\n"
        f'  UserKnownHostsFile /nonexistent "{names}"\n'
    )
    connect(Board("lab", "o1")).close()
    # the alias is the name that counts, in those files alone
    known(home, f"[{board.host}]:{board.port} {public}")
    names.write_text("")
    with pytest.raises(BoardError) as caught:
        connect(Board("lab", "o1"))
    assert caught.value.code == "board.unknown-host-key"
    assert "the-orin" in caught.value.message


@pytest.mark.boards
def test_a_key_that_has_a_passphrase_is_used_through_the_agent(
    boards: StartBoard, home: Path, agent: Path
) -> None:
    server = boards()
    assert server.board.key
    secret = home / ".ssh/locked"
    secret.write_bytes(server.board.key.read_bytes())
    secret.chmod(0o600)
    secret.with_suffix(".pub").write_bytes(server.board.key.with_suffix(".pub").read_bytes())
    add(agent, secret)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(secret)], check=True
    )
    options = [f"IdentityAgent {agent}", "IdentitiesOnly yes", f"IdentityFile {secret}"]
    config(home, "Host 127.0.0.1", *options)
    connect(remote(server, key=None)).close()
    # a public key says which one to ask the agent for
    connect(remote(server, key=secret.with_suffix(".pub"))).close()
    # without it nobody is asked for a passphrase: the file and the way out are named
    (home / ".ssh/config").write_text("Host *\nIdentityAgent none\n")
    with pytest.raises(BoardError) as caught:
        connect(remote(server, key=secret))
    assert "ssh-add" in caught.value.hint


@pytest.mark.boards
def test_identities_only_keeps_the_agents_other_keys_back(
    boards: StartBoard, home: Path, agent: Path, tmp_path: Path
) -> None:
    server = boards()
    assert server.board.key
    add(agent, server.board.key)
    wrong = make_signer(tmp_path, "wrong")
    config(home, "Host *", f"IdentityAgent {agent}", f"IdentityFile {wrong.key}")
    connect(remote(server, key=None)).close()
    config(home, "IdentitiesOnly yes")
    with pytest.raises(BoardError) as caught:
        connect(remote(server, key=None))
    assert caught.value.code == "board.auth"


@pytest.mark.boards
def test_a_chain_of_jump_hosts_each_checked(boards: StartBoard, home: Path, tmp_path: Path) -> None:
    servers = [boards(tmp_path / name) for name in ("outer", "inner", "target")]
    jumps = ("ProxyJump none", "ProxyJump outer", "ProxyJump inner")
    for name, server, jump in zip(("outer", "inner", "target"), servers, jumps, strict=True):
        about(home, name, server, jump)
    public = [f"[127.0.0.1]:{s.board.port} {scan(s.board)}" for s in servers]
    for missing in (0, 1, 2):
        known(home, *(one for number, one in enumerate(public) if number != missing))
        with pytest.raises(BoardError) as caught:
            connect(Board("lab", "target"), accept_host_key=missing != 2)
        assert caught.value.code == "board.unknown-host-key"
        assert f":{servers[missing].board.port} " in caught.value.message
    known(home, *public)
    transport = connect(Board("lab", "target"))
    assert transport.run(["echo", "there"]).out == b"there\n"
    transport.close()
    assert "direct-tcpip" not in servers[2].log()


def test_jump_hosts_in_a_circle_are_refused(home: Path) -> None:
    config(home, "Host a", "ProxyJump b", "Host b", "ProxyJump a")
    with pytest.raises(ConfigError) as caught:
        connect(Board("lab", "a"))
    assert "jump hosts" in str(caught.value)


@pytest.mark.parametrize("host", ["a;touch canary", "$(touch canary)", "`x`", "a'b"])
def test_a_proxy_command_gets_no_shell_words(home: Path, tmp_path: Path, host: str) -> None:
    config(home, "Host *", f"ProxyCommand touch {tmp_path}/ran; echo %h")
    with pytest.raises(ConfigError):
        connect(Board("lab", host))
    assert not (tmp_path / "ran").exists()


def test_without_openssh_include_is_refused_and_not_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup.shutil, "which", lambda name: None)
    config(home, "Host lab", "HostName 192.0.2.1", "Port 2200")
    assert (resolve(Board("lab", "lab")).host, resolve(Board("lab", "lab")).port) == (
        "192.0.2.1",
        2200,
    )
    config(home, "Include more")
    with pytest.raises(ConfigError) as caught:
        resolve(Board("lab", "lab"))
    assert "openssh-client" in str(caught.value)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()  # it prints where it listens
    yield path
    process.terminate()
    process.communicate()


def add(agent: Path, key: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, capture_output=True)


def about(home: Path, alias: str, server: Sshd, *more: str) -> None:
    board = server.board
    config(
        home,
        f"Host {alias}",
        f"  HostName {board.host}",
        f"  Port {board.port}",
        f"  User {board.user}",
        f"  IdentityFile {board.key}",
        *more,
    )


def scan(board: Board) -> str:
    """Type and base64 of the server's key."""
    argv = ["ssh-keyscan", "-t", "ed25519", "-p", str(board.port), board.host]
    found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return " ".join(found.split()[1:3])
