"""SSH with paramiko: connect to a board, check its host key, log in (keys of the configuration, the
agent, the usual files; never a password), and run programs (such as the board's agent) on an exec
channel each.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import logging
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgekit import timeouts
from edgekit.deployment.board import Board
from edgekit.deployment.host_keys import STANDARD, Trust, fingerprint, remember
from edgekit.deployment.ssh_config import Endpoint, resolve
from edgekit.deployment.transport import (
    MOST_OUT,
    Buffer,
    Completed,
    converse,
    silent_error,
    stalled_error,
)
from edgekit.errors import BoardError, ConfigError, EnvironmentLack, Problem

if TYPE_CHECKING:
    import paramiko


# receive window of a channel
_WINDOW = 16 << 20
# size of a read or write: the payload of paramiko's 32 KiB SSH packet, so that no packet of a few
# bytes follows
_PIECE = 32 * 1024 - 64
# OpenSSH's default identity files that are tried
_USUAL = ("id_ed25519", "id_ecdsa", "id_rsa")
# a longer chain of jump hosts is taken for a loop in ``~/.ssh/config``
_MOST_JUMPS = 8
_MOST_BANNER = 200  # bytes of a banner that are shown


class _ImportedWhenUsed(ModuleType):
    """A placeholder for a module that is imported on first use.

    ``importlib.util.LazyLoader`` does not help: the import statement itself accesses the module.
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


# paramiko imports it for `Match exec` in its own reader of ~/.ssh/config, a third of its import
# time; before 4.0 it works without it
if "invoke" not in sys.modules and importlib.util.find_spec("invoke"):
    sys.modules["invoke"] = _ImportedWhenUsed("invoke")


class SshTransport:
    """Runs commands through an authenticated connection (``connect`` makes one).

    Args:
        connection: An open paramiko transport with a verified host key.
        where: The board's name for errors.
        upstream: Connections to jump hosts, closed after this one.
        pulse: Ends the connection if the board is silent.
    """

    def __init__(
        self,
        connection: paramiko.Transport,
        where: str,
        upstream: Sequence[paramiko.Transport] = (),
        pulse: _Keepalive | None = None,
    ) -> None:
        self._connection = connection
        self._where = where
        self._upstream = tuple(upstream)
        self._pulse = pulse
        if pulse is not None:
            pulse.start()

    @property
    def host_key(self) -> str:
        """The board's host key in the format of ``ssh-keygen -lf``."""
        return fingerprint(self._connection.get_remote_server_key())

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = timeouts.COMMAND_S,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Completed:
        """See ``Transport.run``. OpenSSH passes the line to a shell, so every word is quoted."""
        import paramiko

        try:
            channel = self._open()
            # for writes only: reads wait without a limit (``_read_without_timeout``)
            channel.settimeout(timeouts.STALL_S)
            # a file's name need not be UTF-8: Python's surrogates become the original bytes again
            channel.exec_command(shlex.join(argv).encode("utf-8", "surrogateescape"))
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._lost() from error
        return converse(
            _Remote(channel, self),
            stdin,
            timeout=timeout,
            where=self._where,
            hold_input=hold_input,
            most_out=most_out,
            on_output=on_output,
        )

    def _open(self) -> paramiko.Channel:
        """Opens a channel; retries if it is refused.

        Raises:
            BoardError: "board.no-channel".
        """
        import paramiko

        until = time.monotonic() + timeouts.CLOSING_S
        while True:
            began = time.monotonic()
            try:
                return self._connection.open_session(window_size=_WINDOW, timeout=timeouts.OPEN_S)
            except paramiko.SSHException as error:
                # if two threads are refused at once, paramiko raises ChannelException in only one
                # thread
                late = time.monotonic() - began >= timeouts.OPEN_S
                if late or not self._connection.is_active():
                    raise
                if time.monotonic() > until:
                    raise BoardError(
                        "the board accepts no more channels on this connection",
                        code="board.no-channel",
                        where=self._where,
                        hint="set MaxSessions in the board's sshd_config to 1 or more",
                    ) from error
            time.sleep(timeouts.CLOSING_POLL_S)

    def close(self) -> None:
        """Closes the connection and the connections to jump hosts."""
        if self._pulse is not None:
            self._pulse.stop()
        # a jump host's connection carries those behind it, so it is closed after them
        for connection in (self._connection, *reversed(self._upstream)):
            connection.close()

    def _alive(self) -> bool:
        """Returns True if the connection outlived a channel that just ended without a status.

        Its thread closes the channels a moment before it ends itself, hence the wait.
        """
        self._connection.join(timeouts.LAST_WORDS_S)
        return self._connection.is_active()

    def _lost(self) -> BoardError:
        if self._pulse is not None and self._pulse.silent:
            return silent_error(self._where, self._pulse.silence_s)
        return BoardError(
            "the connection was cut",
            code="board.connection-lost",
            where=self._where,
            hint="received data is kept and the current release is unchanged; run the same "
            "command again",
        )


class _TimedSocket:
    """A socket for paramiko that records the time of the last received data."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.heard = time.monotonic()

    def recv(self, size: int) -> bytes:
        data: bytes = self._sock.recv(size)
        if data:
            self.heard = time.monotonic()
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _Keepalive(threading.Thread):
    """Sends keepalives to a quiet board, and ends the connection without an answer.

    A TCP connection may stay open although the board is gone (jump host, NAT). Any received data
    counts, since a keepalive waits behind the data of a slow upload.

    Args:
        connection: The authenticated connection.
        ear: The connection's socket.
        limits: Limits on quiet and silence.

    Attributes:
        silent: True if the connection was ended.
        silence_s: Seconds of silence after which it is ended.
    """

    def __init__(
        self, connection: paramiko.Transport, ear: _TimedSocket, limits: ConnectionLimits
    ) -> None:
        super().__init__(name="pulse", daemon=True)
        self._connection = connection
        self._ear = ear
        self._quiet_s = limits.keepalive_s
        self._stopped = threading.Event()
        self.silence_s = limits.silence_s
        self.silent = False

    def run(self) -> None:
        asked: threading.Thread | None = None
        while not self._stopped.wait(self._quiet_s / 4) and self._connection.is_active():
            quiet = time.monotonic() - self._ear.heard
            if quiet >= self.silence_s:
                self.silent = True
                self._connection.close()
                return
            # in a thread of its own, because sending blocks on a full connection
            if quiet >= self._quiet_s and (asked is None or not asked.is_alive()):
                asked = threading.Thread(target=self._ask, daemon=True)
                asked.start()

    def stop(self) -> None:
        """Stops the keepalives."""
        self._stopped.set()

    def _ask(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            # every server answers this, even if it refuses; sending it may block
            self._connection.global_request("keepalive@openssh.com", wait=True)


class _Remote:
    """An exec channel as a ``Process`` for ``converse``."""

    def __init__(self, channel: paramiko.Channel, transport: SshTransport) -> None:
        self._channel = channel
        self._transport = transport

    def send(self, data: Buffer) -> None:
        import paramiko

        try:
            view = memoryview(data)
            for start in range(0, len(view), _PIECE):
                self._channel.sendall(bytes(view[start : start + _PIECE]))
        except TimeoutError as error:
            raise stalled_error(self._transport._where) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            # the command or the connection has ended: ``wait`` distinguishes
            raise BrokenPipeError from error

    def end_input(self) -> None:
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError) as error:
            raise BrokenPipeError from error

    def read_out(self) -> bytes:
        return _read_without_timeout(self._channel.recv)

    def read_err(self) -> bytes:
        return _read_without_timeout(self._channel.recv_stderr)

    def wait(self, timeout: float | None) -> int | None:
        if not self._channel.status_event.wait(timeout):
            return None
        status = self._channel.exit_status
        if status >= 0:
            return status
        if not self._transport._alive():
            raise self._transport._lost()
        # SSH sends the signal apart from the status and paramiko drops it: report any signal
        return 128 + signal.SIGKILL

    def stop(self) -> None:
        self.kill()  # allowed from any thread

    def kill(self) -> None:
        # closing notifies the other side, which may be gone by now: paramiko then raises EOFError
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()


def _read_without_timeout(read: Callable[[int], bytes]) -> bytes:
    """Reads without the channel's timeout, which only applies to writes."""
    while True:
        try:
            return read(_PIECE)
        except TimeoutError:
            continue


def open_link(
    hop: Endpoint, through: paramiko.Transport | None, connect_s: float, silence_s: float
) -> Any:
    """Returns a socket-like object for paramiko.

    Args:
        hop: The endpoint to connect to.
        through: Connection to the preceding jump host, or None.
        connect_s: Limit on connecting, in seconds.
        silence_s: Longest time that sent data may stay unacknowledged, in seconds; then the link is
            considered lost.

    Raises:
        OSError, UnicodeError, paramiko.SSHException: It cannot be reached.
    """
    if through is not None:
        # RFC 4254 (7.2) requires an originator; sshd only logs it
        there, here = (hop.host, hop.port), ("127.0.0.1", 0)
        return through.open_channel("direct-tcpip", there, here, timeout=connect_s)
    if hop.proxy_command:
        return _Proxy(hop.proxy_command)
    sock = socket.create_connection((hop.host, hop.port), timeout=connect_s)
    # a command is a few small packets, which Nagle's algorithm would hold back
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # tcp(7): the kernel closes a connection whose data stay unacknowledged for this time
    if sys.platform == "linux":
        milliseconds = int(silence_s * 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return sock


class _Proxy(socket.socket):
    """OpenSSH's ProxyCommand on one end of a socket pair (paramiko's own leaves its pipes open)."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        with theirs:
            self._process = subprocess.Popen(
                # with exec, as in OpenSSH, ``terminate`` reaches the command and not only the shell
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                # the terminal's Ctrl-C must not cut the connection: commands on the board end first
                start_new_session=True,
            )

    def close(self) -> None:
        """Also ends the command."""
        super().close()
        self._process.terminate()
        try:
            self._process.wait(timeouts.END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def agent_keys(path: str | None) -> Iterator[dict[bytes, paramiko.PKey]]:
    """Yields the agent's keys by their public halves, usable inside the block.

    Args:
        path: The agent's socket; "" for no agent, None for SSH_AUTH_SOCK's. An agent that does not
            answer counts as empty.
    """
    import paramiko

    if path == "":
        yield {}
        return
    # paramiko's own Agent only uses SSH_AUTH_SOCK; connecting elsewhere is not public API
    agent: Any = None
    connection = None
    keys: dict[bytes, paramiko.PKey] = {}
    try:
        with contextlib.suppress(OSError, paramiko.SSHException):
            if path is None:
                agent = paramiko.Agent()
            else:
                agent = paramiko.agent.AgentSSH()
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(timeouts.KEY_AGENT_S)
                connection.connect(path)
                agent._connect(connection)
            keys = {key.asbytes(): key for key in agent.get_keys()}
        yield keys
    finally:
        if agent is not None:
            agent._close()
        if connection is not None:
            connection.close()


def authenticate(connection: paramiko.Transport, hop: Endpoint, where: str) -> None:
    """Tries each key until the board accepts it; BoardError "board.auth" if it accepts none."""
    import paramiko

    tried: list[str] = []
    for label, key in _candidates(hop, tried):
        began = time.monotonic()
        try:
            still_needed = connection.auth_publickey(hop.user, key)
        except paramiko.BadAuthenticationType as error:
            raise _auth_error(hop, where, tried, f"it only allows {error.allowed_types}") from error
        except paramiko.AuthenticationException as error:
            # paramiko raises the same exception for a server that does not answer
            if time.monotonic() - began >= connection.auth_timeout:
                raise _silent_error(hop, connection.auth_timeout, where) from error
            # sshd closes the connection after MaxAuthTries keys
            if not connection.is_active():
                raise _auth_error(
                    hop, where, [*tried, label], "it closed the connection"
                ) from error
            tried.append(label)
            continue
        if not still_needed:
            return
        tried.append(f"{label} (the board also requires {', '.join(still_needed)})")
    raise _auth_error(hop, where, tried, "")


def default_keys() -> list[Path]:
    """Returns the private keys of ``~/.ssh`` that are tried by default."""
    return [path for name in _USUAL if (path := Path("~/.ssh", name).expanduser()).is_file()]


def _candidates(hop: Endpoint, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Yields keys in the order to try; adds to ``tried`` the reason for each unusable file.

    If the agent holds a file's key, the agent signs: a key with a passphrase is only usable that
    way, since there is no prompt.
    """
    files = list(hop.keys)
    if not hop.only_keys and not files:
        files = default_keys()
    with agent_keys(hop.agent) as held:
        given: set[bytes] = set()
        for path in files:
            public = _public_half(path)
            if public in held:
                given.add(public)
                yield f"{path} (from the agent)", held[public]
            elif path.suffix == ".pub":
                tried.append(f"{path} (a public key whose private key is not in the agent)")
            else:
                yield from _file_key(path, tried)
        if hop.only_keys:
            return
        for blob, key in held.items():
            if blob not in given:
                yield f"agent key {getattr(key, 'comment', '') or key.fingerprint}", key


def _file_key(path: Path, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    import paramiko

    try:
        yield str(path), paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        # cryptography raises TypeError for a key that needs a password
        tried.append(f"{path} (has a passphrase: add it to the agent with ssh-add)")
    except (OSError, ValueError, paramiko.SSHException) as error:
        tried.append(f"{path} ({getattr(error, 'strerror', None) or error})")


def _key_files(path: Path) -> tuple[Path, Path]:
    """Returns the files of the private and the public key, which may be the same."""
    return path, path if path.suffix == ".pub" else path.with_name(path.name + ".pub")


def _public_half(path: Path) -> bytes:
    """Returns the public key beside a private key, or of a public key file; b"" if there is
    none.
    """
    try:
        words = _key_files(path)[1].read_text(encoding="utf-8").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, ValueError, IndexError):
        return b""


def _auth_error(hop: Endpoint, where: str, tried: list[str], reason: str) -> BoardError:
    return BoardError(
        f"{hop.user}@{hop.host} accepted no key" + (f": {reason}" if reason else ""),
        code="board.auth",
        where=where,
        hint=f"tried: {'; '.join(tried) or 'no key, since none was found'}. Give the right `key:` "
        "and `user:` for the board, or add the key there with `ssh-copy-id "
        f"{f'-p {hop.port} ' if hop.port != 22 else ''}{hop.user}@{hop.host}`",
    )


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Time limits of a connection, in seconds.

    ``silence_s`` limits the time without acknowledgement of sent data, and the time without data
    from the board; ``keepalive_s`` is the quiet time after which a keepalive is sent.
    """

    connect_s: float = timeouts.CONNECT_S
    banner_s: float = timeouts.BANNER_S
    auth_s: float = timeouts.AUTH_S
    keepalive_s: float = timeouts.KEEPALIVE_S
    silence_s: float = timeouts.SILENCE_S


def connect(
    board: Board,
    *,
    accept_host_key: str | bool = False,
    remember_in: Path | None = None,
    known_hosts: tuple[Path, ...] = (),
    limits: ConnectionLimits | None = None,
) -> SshTransport:
    """Connects to ``board``, through its jump hosts if ``~/.ssh/config`` names some.

    Args:
        board: The board.
        accept_host_key: Consent of this command for an unknown host key: its fingerprint, or True
            for any key.
        remember_in: known_hosts file to which an accepted key is written; None: not recorded.
        known_hosts: Files in addition to the standard files.
        limits: Time limits.

    Raises:
        ConfigError: The board's fields or ``~/.ssh/config`` are invalid.
        EnvironmentLack: "board.unreachable" or "board.silent".
        BoardError: "board.unknown-host-key", "board.host-key-mismatch" or "board.auth".
    """
    if problems := board.problems():
        raise ConfigError(list(problems), code="board.invalid")
    # paramiko also logs the errors that it raises; without a handler Python prints them to stderr
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    limits = limits or ConnectionLimits()
    upstream: list[paramiko.Transport] = []
    try:
        endpoint = resolve(board)
        if board.key is not None and not any(map(Path.exists, _key_files(endpoint.keys[0]))):
            hint = "correct `key:`, or leave it out: then the agent and ~/.ssh/id_* are tried"
            problem = Problem(f"the key file {endpoint.keys[0]} does not exist", board.name, hint)
            raise ConfigError([problem], code="board.no-key")
        trust = Trust(board.host_key, known_hosts, accept_host_key, board.known_hosts)
        for hop, jump in _hops(board, endpoint):
            # consent and pin only apply to the board: a jump host must be in known_hosts
            standard = STANDARD if hop.known_hosts is None else hop.known_hosts
            base = Trust(files=known_hosts) if jump else trust
            believed = replace(base, standard=standard, revoked=hop.revoked)
            store = None if jump else remember_in
            connection, ear = _open_hop(hop, upstream, believed, store, board.name, limits)
            upstream.append(connection)
        pulse = _Keepalive(upstream[-1], ear, limits)
        return SshTransport(upstream[-1], board.name, upstream[:-1], pulse)
    except BaseException:
        for connection in reversed(upstream):
            connection.close()
        raise


def _open_hop(
    hop: Endpoint,
    upstream: list[paramiko.Transport],
    trust: Trust,
    store: Path | None,
    where: str,
    limits: ConnectionLimits,
) -> tuple[paramiko.Transport, _TimedSocket]:
    """Opens a hop; tries each host key type of a board before reporting a wrong pin."""
    # the key type is negotiated once, so each further type needs a new connection
    skip: set[str] = set()
    first: BoardError | None = None
    while True:
        sock = _TimedSocket(_link(hop, upstream, where, limits))
        try:
            return _open(hop, sock, trust, store, where, limits, skip), sock
        except _WrongPin as error:
            first = first or error.reason
        except EnvironmentLack:
            if first is None:
                raise
            raise first from None  # it has no further key type


class _WrongPin(Exception):
    def __init__(self, reason: BoardError) -> None:
        super().__init__()
        self.reason = reason


def _hops(board: Board, endpoint: Endpoint, depth: int = 0) -> list[tuple[Endpoint, bool]]:
    """Returns the jump hosts (True) and the board (False) in the order to connect.

    As in OpenSSH, the first jump host is reached by its own ProxyJump or ProxyCommand; those of
    further jump hosts only apply to direct connections.
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
                [
                    Problem(
                        f"more than {_MOST_JUMPS} jump hosts: check whether ProxyJump refers "
                        "to itself",
                        board.name,
                    )
                ]
            )
        if not hops:
            hops += [(hop, True) for hop, _ in _hops(jump, there, depth + 1)[:-1]]
        # its own jump hosts are already in ``hops``, or do not apply
        hops.append((replace(there, jumps=()), True))
    if len(hops) > _MOST_JUMPS:
        raise ConfigError([Problem(f"more than {_MOST_JUMPS} jump hosts", board.name)])
    return [*hops, (endpoint, False)]


def _link(
    hop: Endpoint, upstream: list[paramiko.Transport], where: str, limits: ConnectionLimits
) -> Any:
    import paramiko

    through = upstream[-1] if upstream else None
    try:
        return open_link(hop, through, limits.connect_s, limits.silence_s)
    except (OSError, UnicodeError, paramiko.SSHException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _unreachable_error(hop, reason, where) from error


def _open(
    hop: Endpoint,
    sock: Any,
    trust: Trust,
    store: Path | None,
    where: str,
    limits: ConnectionLimits,
    skip: set[str],
) -> paramiko.Transport:
    import paramiko

    connection, began = None, time.monotonic()
    try:
        connection = paramiko.Transport(sock)
        connection.banner_timeout = limits.banner_s
        connection.auth_timeout = limits.auth_s
        _prefer_known_types(connection, trust, hop.name, skip)
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
        if new and store is not None:
            remember(store, hop.name, key)
        return connection
    except (OSError, EOFError, paramiko.SSHException) as error:
        now = time.monotonic()
        _close(connection, sock)
        # a slow server that still sends data is not silent
        if now - began >= limits.banner_s and now - sock.heard >= limits.banner_s / 2:
            raise _silent_error(hop, limits.banner_s, where) from error
        reason = _banner(error) or str(error) or "it closed the connection"
        raise _unreachable_error(hop, reason, where) from error
    except BaseException:
        _close(connection, sock)
        raise


def _banner(error: BaseException) -> str:
    """Returns an error text if a server's first line is not SSH; "" for other errors."""
    cause = error.__context__
    if not isinstance(cause, UnicodeDecodeError):
        return ""
    line = repr(cause.object[:_MOST_BANNER])[2:-1]
    return f"it does not speak SSH; its first line is {line}"


def _prefer_known_types(
    connection: paramiko.Transport, trust: Trust, name: str, skip: set[str]
) -> None:
    """Requests a host key of a known type, as OpenSSH does."""
    options = connection.get_security_options()
    known = trust.known_types(name)
    offered = [kind for kind in options.key_types if _key_type(kind) not in skip]
    if not offered:
        raise EOFError("it offers no other host key")
    options.key_types = sorted(offered, key=lambda kind: _key_type(kind) not in known)
    # AES-GCM needs a single pass over a packet, other ciphers need two
    options.ciphers = sorted(options.ciphers, key=lambda cipher: "gcm" not in cipher)


def _key_type(kind: str) -> str:
    """Returns the key type of a host key algorithm: RSA keys sign with several hashes."""
    return "ssh-rsa" if kind.startswith("rsa-sha2-") else kind


def _close(connection: paramiko.Transport | None, sock: Any) -> None:
    with contextlib.suppress(OSError):
        (connection or sock).close()


def _silent_error(hop: Endpoint, seconds: float, where: str) -> EnvironmentLack:
    return EnvironmentLack(
        f"{hop.host}:{hop.port} accepts a connection and then sends no data for {seconds:g} s",
        code="board.silent",
        where=where,
        hint="check the jump host, VPN or NAT on the way, and whether the board still runs: "
        f"`ssh -p {hop.port} {hop.user}@{hop.host}`",
    )


def _unreachable_error(hop: Endpoint, reason: str, where: str) -> EnvironmentLack:
    return EnvironmentLack(
        f"cannot reach {hop.host}:{hop.port}: {reason}",
        code="board.unreachable",
        where=where,
        hint="check that it is on, the address is right and sshd runs there: "
        f"`ssh -p {hop.port} {hop.user}@{hop.host}`",
    )
