"""edgekit's own board: an unprivileged OpenSSH sshd on loopback, used if the configuration names no
board. Keys, port and configuration are temporary; only the board's folder is kept.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit import timeouts
from edgekit.deployment.board import EMBEDDED, Board
from edgekit.deployment.host_keys import fingerprint
from edgekit.errors import EnvironmentLack
from edgekit_device.account import account_name

_ATTEMPTS = 5
_PRIVSEP = Path("/run/sshd")
_LISTENING = re.compile(rb"Server listening on \S+ port \d+")

# The inner shell waits for the end of the pipe, then removes the folder and ends the server, whose
# process id is the outer shell's. Both are in the same process group, and a group's number is not
# reused while a member lives.
_WATCHED = (
    'folder=$1; shift; exec 3<&0; { cat; rm -rf -- "$folder"; kill "$$"; } <&3 >/dev/null 2>&1 & '
    'exec 3<&- "$@" </dev/null'
)


class Sshd:
    """A running server. ``board`` is its address and login; ``pid`` its process id."""

    def __init__(
        self,
        program: str,
        folder: Path,
        root: Path,
        port: int | None,
        host_keys: Sequence[Path],
    ) -> None:
        import paramiko

        host_key, user_key = folder / "host_key", folder / "user_key"
        for path in (host_key, user_key):
            _keygen(path)
        pin = fingerprint(paramiko.PKey.from_path(host_key))
        self._log = bytearray()
        self._listening = threading.Event()
        self._process = self._start(program, folder, port, (host_key, *host_keys))
        self.pid = self._process.pid
        self.board = Board(
            name=EMBEDDED,
            host="127.0.0.1",
            port=self.port,
            user=account_name(),
            key=user_key,
            host_key=pin,
            root=str(root),
            python=sys.executable,
            kind="sshd",
        )
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends the server and all connections to it; a second call has no effect."""
        atexit.unregister(self.stop)
        process = self._process
        connections = _children(process.pid)  # separate sessions: a client may still be connected
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeouts.END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in connections:
            _end(pid)
        if process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()
        self._reader.join(timeouts.END_S)

    def log(self) -> str:
        """The server's log so far."""
        return bytes(self._log).decode("utf-8", "replace")

    def _start(
        self, program: str, folder: Path, port: int | None, host_keys: Sequence[Path]
    ) -> subprocess.Popen[bytes]:
        # another process may take the chosen port before sshd binds it
        for attempt in range(_ATTEMPTS):
            self.port = port or _free_port()
            config = folder / "sshd_config"
            config.write_text(_config(folder, self.port, host_keys), encoding="utf-8")
            process = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    _WATCHED,
                    "sh",
                    str(folder),
                    program,
                    "-D",
                    "-e",
                    "-f",
                    str(config),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._process = process
            self._log.clear()
            self._listening.clear()
            self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
            self._reader.start()
            try:
                # set when it listens, and when its log ends because it failed
                self._listening.wait(timeouts.SSHD_READY_S)
                if _LISTENING.search(self._log) and process.poll() is None:
                    return process
            except BaseException:
                self.stop()
                raise
            self.stop()
            if port is not None or "already in use" not in self.log() or attempt + 1 == _ATTEMPTS:
                break
        last = self.log().strip().splitlines()
        raise EnvironmentLack(
            f"{program} did not start: {last[-1] if last else 'it printed nothing'}",
            code="board.no-sshd",
        )

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr
        with process.stderr as stream:
            for line in stream:
                self._log += line
                if _LISTENING.search(line):
                    self._listening.set()
        self._listening.set()


def find_sshd() -> str | None:
    """Returns sshd's full path (sshd requires it when called); None if not installed."""
    places = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", "/sbin", os.environ.get("PATH", "")))
    return shutil.which("sshd", path=places)


@contextlib.contextmanager
def sshd(root: Path, *, port: int | None = None, host_keys: Sequence[Path] = ()) -> Iterator[Sshd]:
    """Runs a board whose folder is ``root``; the server ends with the block.

    Args:
        root: The board's folder; created if missing, and not removed.
        port: A loopback port; a free port if None.
        host_keys: Private host keys in addition to the temporary host key.

    Raises:
        EnvironmentLack: "board.no-sshd", with the missing part or sshd's own error.
    """
    program = find_sshd()
    if program is None:
        raise EnvironmentLack(
            "sshd is not installed on this machine (searched /usr/sbin and PATH)",
            code="board.no-sshd",
            hint="install OpenSSH's server (Debian, Ubuntu: `apt-get install openssh-server`)",
        )
    _privilege_separation()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="edgekit-sshd-", ignore_cleanup_errors=True) as folder:
        server = Sshd(program, Path(folder), root.absolute(), port, host_keys)
        try:
            yield server
        finally:
            server.stop()


def _privilege_separation() -> None:
    """Creates the folder that sshd requires as root (distributions create it with the service)."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return
    try:
        _PRIVSEP.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise EnvironmentLack(
            f"sshd needs {_PRIVSEP}, which cannot be created: {error.strerror}",
            code="board.no-sshd",
        ) from error


def _config(folder: Path, port: int, host_keys: Sequence[Path]) -> str:
    user = account_name()
    lines = [
        "ListenAddress 127.0.0.1",
        f"Port {port}",
        *(f"HostKey {_quote(path)}" for path in host_keys),
        f"AuthorizedKeysFile {_quote(folder / 'user_key.pub')}",
        f"AllowUsers {user}",
        "PidFile none",
        # StrictModes refuses keys below a folder that others can write, such as /tmp
        "StrictModes no",
        "UsePAM no",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "X11Forwarding no",
        "AllowAgentForwarding no",
        # for jump hosts in tests; the holder of the key has a shell here anyway
        "AllowTcpForwarding local",
        "PermitTTY no",
        "PermitUserRC no",
        "PrintMotd no",
        # bash reads ~/.bashrc for sshd's commands only at shell level 1; our commands do not need
        # it
        f"SetEnv SHLVL=1{_set_env('PYTHONPATH')}",
        "UseDNS no",
        # the default drops connections at random while ten have not logged in yet
        "MaxStartups 100",
        "LogLevel VERBOSE",
    ]
    return "\n".join(lines) + "\n"


def _set_env(name: str) -> str:
    """Returns the setting of an environment variable (Python's package paths) for board
    commands.
    """
    value = os.environ.get(name)
    # SetEnv supports quotes but no escapes
    return f' "{name}={value}"' if value and not set(value) & set('"\\\n') else ""


def _quote(path: Path) -> str:
    # sshd_config's quotes; it expands %-tokens inside them
    text = str(path)
    if '"' in text or "\n" in text:
        raise EnvironmentLack(
            f"sshd cannot use a temporary folder with this name: {text!r}", code="board.no-sshd"
        )
    return f'"{text}"'.replace("%", "%%")


def _keygen(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    # before the bytes are there: others must not read the key even for a moment
    path.touch(mode=0o600)
    path.write_bytes(private)
    path.with_suffix(".pub").write_bytes(public + b" edgekit-embedded\n")


def _children(pid: int) -> list[int]:
    """Returns the child processes of a process; empty if Linux does not list them."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [int(word) for word in words]


def _end(pid: int) -> None:
    """Ends a connection's process, for at most 5 s.

    A root session checks for SIGTERM only when it wakes, and misses a signal that arrives just
    before it sleeps: SIGTERM is repeated until the process is gone.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process = os.pidfd_open(pid)
        try:
            for _ in range(50):
                signal.pidfd_send_signal(process, signal.SIGTERM)
                if select.select([process], [], [], 0.1)[0]:
                    return
        finally:
            os.close(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
