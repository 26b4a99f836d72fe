"""Opens an SSH connection to a board: reach it, know it, be let in."""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.deploy._auth import authenticate
from edgekit.deploy._hostkeys import Trust, remember
from edgekit.deploy._knownhosts import STANDARD
from edgekit.deploy._link import open_link
from edgekit.deploy._ssh import SshTransport
from edgekit.deploy._sshconfig import Endpoint, resolve
from edgekit.deploy._types import Board
from edgekit.errors import BoardError, ConfigError, EnvironmentLack, Problem

if TYPE_CHECKING:
    import paramiko

__all__ = ["Limits", "connect"]

_MOST_JUMPS = 8
_MOST_BANNER = 200  # bytes that are shown of it


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each part of connecting may take, in seconds.

    ``silence_s`` is how long sent data may stay unacknowledged before the link counts as cut;
    ``keepalive_s`` is how often something is sent while nothing else is.
    """

    connect_s: float = 10.0
    banner_s: float = 15.0
    auth_s: float = 20.0
    keepalive_s: int = 15
    silence_s: float = 30.0


def connect(
    board: Board,
    *,
    accept_host_key: str | bool = False,
    remember_in: Path | None = None,
    known_hosts: tuple[Path, ...] = (),
    limits: Limits | None = None,
) -> SshTransport:
    """Connects to ``board``, through its jump hosts if ``~/.ssh/config`` names some.

    Args:
        board: The board.
        accept_host_key: Consent for an unknown host key, given on this command: its fingerprint,
            or True for whatever is shown.
        remember_in: known_hosts file that an accepted key is written to; None forgets it.
        known_hosts: Files that are read besides the standard ones.
        limits: Time limits.

    Raises:
        ConfigError: The board's fields or ``~/.ssh/config`` are wrong.
        EnvironmentLack: "board.unreachable".
        BoardError: "board.unknown-host-key", "board.host-key-mismatch" or "board.auth".
    """
    if problems := board.problems():
        raise ConfigError(list(problems), code="board.invalid")
    # paramiko logs what it also raises; without a handler Python would print that to stderr
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    limits = limits or Limits()
    upstream: list[paramiko.Transport] = []
    try:
        endpoint = resolve(board)
        trust = Trust(board.host_key, known_hosts, accept_host_key, board.known_hosts)
        for hop, jump in _hops(board, endpoint):
            # consent and pin are for the board: a jump host is known by known_hosts or not at all
            believed = _of(hop, Trust(files=known_hosts) if jump else trust)
            store = None if jump else remember_in
            upstream.append(_known(hop, upstream, believed, store, board.name, limits))
        return SshTransport(upstream[-1], board.name, upstream[:-1], endpoint)
    except BaseException:
        for connection in reversed(upstream):
            connection.close()
        raise


def _known(
    hop: Endpoint,
    upstream: list[paramiko.Transport],
    trust: Trust,
    store: Path | None,
    where: str,
    limits: Limits,
) -> paramiko.Transport:
    """Opens one hop; a board with several host keys is asked for each before a pin is wrong."""
    skip: set[str] = set()
    first: BoardError | None = None
    while True:
        sock = _link(hop, upstream, where, limits)
        try:
            return _open(hop, sock, trust, store, where, limits, skip)
        except _WrongPin as error:
            first = first or error.reason
        except EnvironmentLack:
            if first is None:
                raise
            raise first from None  # it has no further type of key to show


class _WrongPin(Exception):
    def __init__(self, reason: BoardError) -> None:
        super().__init__()
        self.reason = reason


def _of(hop: Endpoint, trust: Trust) -> Trust:
    standard = STANDARD if hop.known_hosts is None else hop.known_hosts
    return replace(trust, standard=standard, revoked=hop.revoked)


def _hops(board: Board, endpoint: Endpoint, depth: int = 0) -> list[tuple[Endpoint, bool]]:
    """Returns the jump hosts (True) and the board itself, in the order to connect.

    As with OpenSSH the first jump host's own ProxyJump or ProxyCommand is the way to it; the
    others' are for people who reach them directly.
    """
    hops: list[tuple[Endpoint, bool]] = []
    for text in endpoint.jumps:
        match = re.fullmatch(r"(?:ssh://)?(?:(.+)@)?(\[[^]]+\]|[^:@]+)(?::(\d+))?/?", text)
        if match is None:
            raise ConfigError([Problem(f"ProxyJump {text} cannot be read", board.name)])
        user, host, port = match.groups()
        jump = Board(text, host.strip("[]"), int(port) if port else None, user)
        if problems := jump.problems():
            raise ConfigError(list(problems), code="board.ssh-config")
        there = resolve(jump)
        if len(hops) >= _MOST_JUMPS or depth >= _MOST_JUMPS:
            raise ConfigError(
                [Problem(f"more than {_MOST_JUMPS} jump hosts: does ProxyJump lead back to "
                         "itself?", board.name)]
            )  # fmt: skip
        if not hops:
            hops += [(one, True) for one, _ in _hops(jump, there, depth + 1)[:-1]]
        hops.append((replace(there, jumps=()), True))
    if len(hops) > _MOST_JUMPS:
        raise ConfigError([Problem(f"more than {_MOST_JUMPS} jump hosts", board.name)])
    return [*hops, (endpoint, False)]


def _link(hop: Endpoint, upstream: list[paramiko.Transport], where: str, limits: Limits) -> Any:
    import paramiko

    through = upstream[-1] if upstream else None
    try:
        return open_link(hop, through, limits.connect_s, limits.silence_s)
    except (OSError, UnicodeError, paramiko.SSHException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _unreachable(f"{hop.host}:{hop.port}", reason, where) from error


def _open(
    hop: Endpoint,
    sock: Any,
    trust: Trust,
    store: Path | None,
    where: str,
    limits: Limits,
    skip: set[str],
) -> paramiko.Transport:
    import paramiko

    connection = None
    try:
        connection = paramiko.Transport(sock)
        connection.banner_timeout = limits.banner_s
        connection.auth_timeout = limits.auth_s
        _prefer(connection, trust, hop.name, skip)
        connection.start_client(timeout=limits.banner_s)
        key = connection.get_remote_server_key()
        try:
            new = trust.check(hop.name, key, where)
        except BoardError as error:
            if trust.pin is None:
                raise
            skip.add(key.get_name())
            raise _WrongPin(error) from error
        authenticate(connection, hop, where)
        connection.set_keepalive(limits.keepalive_s)
        if new and store is not None:
            remember(store, hop.name, key)
        return connection
    except (OSError, EOFError, paramiko.SSHException) as error:
        _shut(connection, sock)
        reason = _banner(error) or str(error) or "it hung up"
        raise _unreachable(f"{hop.host}:{hop.port}", reason, where) from error
    except BaseException:
        _shut(connection, sock)
        raise


def _banner(error: BaseException) -> str:
    """Returns what answered where its first line is no text; "" where that is not the error."""
    cause = error.__context__
    if not isinstance(cause, UnicodeDecodeError):
        return ""
    line = repr(cause.object[:_MOST_BANNER])[2:-1]
    return f"it does not speak SSH: its first line is {line}"


def _prefer(connection: paramiko.Transport, trust: Trust, name: str, skip: set[str]) -> None:
    """Asks the board for a host key of a type that is on record, as OpenSSH does."""
    options = connection.get_security_options()
    known = trust.known_types(name)
    offered = [kind for kind in options.key_types if _family(kind) not in skip]
    if not offered:
        raise EOFError("it has no other host key")
    options.key_types = sorted(offered, key=lambda kind: _family(kind) not in known)
    # AES-GCM spends one pass on a packet where the others need two
    options.ciphers = sorted(options.ciphers, key=lambda cipher: "gcm" not in cipher)


def _family(kind: str) -> str:
    """Returns the key type of a host key algorithm: RSA keys sign with several hashes."""
    return "ssh-rsa" if kind.startswith("rsa-sha2-") else kind


def _shut(connection: paramiko.Transport | None, sock: Any) -> None:
    with contextlib.suppress(OSError):
        (connection or sock).close()


def _unreachable(address: str, reason: str, where: str) -> EnvironmentLack:
    return EnvironmentLack(
        f"cannot reach {address}: {reason}",
        code="board.unreachable",
        where=where,
        hint="is it on, is the address right and does sshd run there? "
        f"try `ssh -p {address.rpartition(':')[2]} {address.rpartition(':')[0]}`",
    )
