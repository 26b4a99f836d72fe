"""Bulk through the system's OpenSSH client, to the very host key that the connection has shown.

paramiko enciphers in Python's own thread, one packet a call; OpenSSH carries several times as much.
It is told everything on its command line and reads no configuration: the endpoint was resolved
before, and the one host key that it may accept stands in a known_hosts file made for it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.deploy._scratch import scratch
from edgekit.deploy._splice import Spliced
from edgekit.deploy._sshconfig import Endpoint
from edgekit.deploy._transport import MOST_OUT, Buffer, Completed, converse
from edgekit.deploy._wire import ssh_bytes

__all__ = ["FAILED", "Begun", "OpenSsh", "openssh"]

#: OpenSSH's own status: it could not connect, or was cut.
FAILED = 255

_ALIAS = "edgekit-board"
_PIPE = 1 << 20
_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=/dev/null",
    f"HostKeyAlias={_ALIAS}",
    "CheckHostIP=no",
    "UpdateHostKeys=no",
    "PreferredAuthentications=publickey",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ControlMaster=no",
    "ControlPath=none",
    "PermitLocalCommand=no",
    "Compression=no",
    # it tells how much it has carried then
    "LogLevel=VERBOSE",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    # a tenth of a second of the client's processor. What is left is what paramiko agrees on, too:
    # ML-KEM where both ends know it, X25519 elsewhere
    "KexAlgorithms=-sntrup761x25519*",
    # one pass over a packet, in hardware wherever there are boards; others where it is not allowed
    "Ciphers=^aes128-gcm@openssh.com,aes256-gcm@openssh.com",
)
# OpenSSH would expand or split these in the value of an option
_UNSAFE = ('"', "\n", "\0", "${")
_SIGNED = {"ssh-rsa": "rsa-sha2-512,rsa-sha2-256"}


@dataclass(frozen=True, slots=True)
class OpenSsh:
    """Runs commands as ``SshTransport`` does, each through a connection of its own.

    A status of ``FAILED`` without an answer is ssh's own.

    Attributes:
        program: The client.
        endpoint: Where to.
        host_key: Type and base64 of the one host key that is right.
        where: The board's name for errors.
    """

    program: str
    endpoint: Endpoint
    host_key: tuple[str, str]
    where: str

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = 60.0,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
    ) -> Completed:
        """See ``Transport.run``."""
        return self.begin(argv).run(
            stdin, timeout=timeout, hold_input=hold_input, most_out=most_out
        )

    def begin(self, argv: Sequence[str]) -> Begun:
        """Connects and starts a command whose input is not known yet."""
        with contextlib.ExitStack() as stack:
            known_hosts = stack.enter_context(self._known_hosts())
            child = subprocess.Popen(
                [*self._argv(known_hosts), shlex.join(argv)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
            )
            _widen(child.stdin)
            return Begun(child, self.where, stack.pop_all())

    @contextlib.contextmanager
    def _known_hosts(self) -> Iterator[Path]:
        with scratch("edgekit-ssh-") as folder:
            path = folder / "known_hosts"
            path.write_text(f"{_ALIAS} {' '.join(self.host_key)}\n", encoding="ascii")
            yield path

    def _argv(self, known_hosts: Path) -> list[str]:
        there, kind = self.endpoint, self.host_key[0]
        options = [
            *_OPTIONS,
            f"HostKeyAlgorithms={_SIGNED.get(kind, kind)}",
            f"UserKnownHostsFile={_quoted(known_hosts)}",
            *(f"IdentityFile={_quoted(key)}" for key in there.keys),
            f"IdentitiesOnly={'yes' if there.only_keys else 'no'}",
        ]
        if there.agent is not None:
            options.append(f"IdentityAgent={_quoted(there.agent) if there.agent else 'none'}")
        if there.proxy_command:
            # its tokens are replaced already
            options.append("ProxyCommand=" + there.proxy_command.replace("%", "%%"))
        words = [word for option in options for word in ("-o", option)]
        address = ["-p", str(there.port), "-l", there.user, "--", there.host]
        return [self.program, "-F", "none", "-T", "-e", "none", *words, *address]


class Begun:
    """A command on a connection of its own; ``run`` it or ``end`` it.

    Args:
        child: OpenSSH's client.
        where: The board's name for errors.
        stack: What is there until it has ended.
    """

    def __init__(
        self, child: subprocess.Popen[bytes], where: str, stack: contextlib.ExitStack
    ) -> None:
        self._child = child
        self._where = where
        self._stack = stack
        self.carried: int | None = None
        """Bytes that the connection has carried, both ways; known when ``run`` has returned."""

    @property
    def waits(self) -> bool:
        """Whether it may still be run; one that could not connect says so when it is."""
        return self._child.poll() in (None, FAILED)

    def run(
        self,
        stdin: Iterable[Buffer],
        *,
        timeout: float | None = 60.0,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
    ) -> Completed:
        """Gives it its input: see ``Transport.run``."""
        with self._stack:
            done = converse(
                Spliced(self._child, self._where),
                stdin,
                timeout=timeout,
                where=self._where,
                hold_input=hold_input,
                most_out=most_out,
            )
        self.carried, complaint = ssh_bytes(done.err)
        return replace(done, err=complaint)

    def end(self) -> None:
        """Ends it at once: nothing was sent to it."""
        # the child's own block closes its pipes and waits for it
        with self._stack, self._child, contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)


def openssh(endpoint: Endpoint, host_key: tuple[str, bytes], where: str) -> OpenSsh | None:
    """Returns the way through OpenSSH's client; None where there is none or it could differ.

    Args:
        endpoint: Where to. Jump hosts have host keys of their own: not through here.
        host_key: Type and public bytes of the key that the board has shown and that was checked.
        where: The board's name for errors.
    """
    program = shutil.which("ssh")
    texts = [*map(str, endpoint.keys), endpoint.agent or "", tempfile.gettempdir()]
    names = (endpoint.host, endpoint.user)
    if program is None or endpoint.jumps or any(mark in text for text in texts for mark in _UNSAFE):
        return None
    if any(not name or name.startswith("-") for name in names) or "\n" in endpoint.proxy_command:
        return None
    kind, public = host_key
    return OpenSsh(program, endpoint, (kind, base64.b64encode(public).decode("ascii")), where)


def _quoted(path: object) -> str:
    return '"{}"'.format(str(path).replace("%", "%%"))


def _widen(pipe: Any) -> None:
    """Lets more be under way between two turns of either process."""
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
