"""Where a board's connection goes: the board's own fields first, then OpenSSH's configuration.

OpenSSH itself reads its files (``ssh -G``: Include, Match, patterns and defaults mean what they do
for ``ssh``); without its client paramiko reads ``~/.ssh/config``, which knows no Include.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path

from edgekit.deploy._sshlookup import look_up, refusal
from edgekit.deploy._types import Board

__all__ = ["Endpoint", "resolve"]

_SHELL = frozenset("'`\"$\\;&<>|(){}, \t\r\n")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A resolved connection.

    Attributes:
        host: Address or name to connect to.
        port: TCP port.
        user: Account.
        keys: Private key files to try, in order.
        only_keys: Whether ``keys`` alone may be used (from the agent those that it holds of
            them, no ``~/.ssh/id_*``).
        agent: Socket of the SSH agent (IdentityAgent); "" for none, None for SSH_AUTH_SOCK's.
        proxy_command: OpenSSH's ProxyCommand with its tokens replaced; empty when there is none.
        jumps: OpenSSH's ProxyJump, first hop first.
        name: What known_hosts files call the host; HostKeyAlias, "HOST" or "[HOST]:PORT".
        known_hosts: Files of known hosts (UserKnownHostsFile, GlobalKnownHostsFile); None for
            OpenSSH's usual ones.
        revoked: RevokedHostKeys, a list of keys or a KRL.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...] = ()
    only_keys: bool = False
    agent: str | None = None
    proxy_command: str = ""
    jumps: tuple[str, ...] = ()
    name: str = ""
    known_hosts: tuple[Path, ...] | None = None
    revoked: Path | None = None


def resolve(board: Board) -> Endpoint:
    """Returns the endpoint of ``board``; ConfigError when OpenSSH's files cannot be read.

    The embedded board needs nothing of the user's account and ignores the files.
    """
    if board.kind == "sshd":
        user, port = board.user or getpass.getuser(), board.port or 22
        keys = (board.key,) if board.key else ()
        return Endpoint(
            board.host,
            port,
            user,
            keys,
            True,
            "",
            name=_known_name(board.host, port),
            known_hosts=(),
        )
    found = look_up(board.host, user=board.user, port=board.port)
    host = found.one("hostname") or board.host
    user = board.user or found.one("user") or getpass.getuser()
    port = board.port or int(found.one("port") or 22)
    alias = found.one("hostkeyalias")
    jumps = found.one("proxyjump")
    proxy = found.one("proxycommand")
    revoked = found.one("revokedhostkeys")
    return Endpoint(
        host=host,
        port=port,
        user=user,
        keys=(_path(str(board.key)),) if board.key else found.keys(),
        only_keys=found.one("identitiesonly") == "yes",
        agent=_agent(found.one("identityagent")),
        proxy_command=""
        if proxy.lower() in ("", "none")
        else _command(proxy, {"h": host, "p": str(port), "r": user, "n": board.host,
                              "k": alias or host}),
        jumps=() if jumps.lower() in ("", "none") else tuple(jumps.replace(" ", "").split(",")),
        name=alias.lower() or _known_name(host, port),
        known_hosts=found.known_hosts(),
        revoked=_path(revoked) if revoked and revoked.lower() != "none" else None,
    )  # fmt: skip


def _known_name(host: str, port: int) -> str:
    # as OpenSSH looks it up and writes it
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))


def _agent(text: str) -> str | None:
    """IdentityAgent: a socket, "none", "SSH_AUTH_SOCK", or a variable's name after a dollar."""
    if text in ("", "SSH_AUTH_SOCK"):
        return None
    if text.lower() == "none":
        return ""
    if text.startswith("$"):
        return os.environ.get(text.strip("${}"), "")
    return str(_path(text))


def _command(text: str, values: dict[str, str]) -> str:
    """Replaces OpenSSH's tokens; a value that a shell would read as more than a word is refused.

    Raises:
        ConfigError: An unknown token, or such a value.
    """
    made, rest = "", text
    while "%" in rest:
        before, _, rest = rest.partition("%")
        token, rest = rest[:1], rest[1:]
        if token != "%" and token not in values:
            raise refusal(f"ProxyCommand has the token %{token}, which edgekit does not know")
        value = "%" if token == "%" else values[token]
        if token != "%" and (value.startswith("-") or set(value) & _SHELL):
            raise refusal(f"{value!r} cannot stand in a ProxyCommand: a shell would read it")
        made += before + value
    return made + rest
