"""Fifty boards on this machine: an sshd each, with one host key and one account for all."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import paramiko

from edgekit.deployment.embedded_sshd import _keygen, _privilege_separation, find_sshd
from edgekit.deployment.host_keys import fingerprint

__all__ = ["Farm", "farm"]

_CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
ListenAddress 127.0.0.1
PidFile none
StrictModes no
UsePAM no
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PermitTTY no
PermitUserRC no
PrintMotd no
UseDNS no
LogLevel QUIET
SetEnv SHLVL=1
"""
# the servers end with this process, however that ends: then the shell's stdin does
_SERVE = 'c=$1; s=$2; shift 2; for p; do "$s" -D -f "$c" -p "$p" & done; cat; kill 0'


class Farm:
    """Boards b01, b02 ...; ``start`` lets some of them be reached."""

    def __init__(self, folder: Path, count: int, python: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack, self._python = folder, stack, python
        for name in ("host_key", "user_key"):
            _keygen(folder / name)
        (folder / "config").write_text(_CONFIG.format(folder=folder))
        self.names = [f"b{number:02}" for number in range(1, count + 1)]
        with contextlib.ExitStack() as held:
            probes = [held.enter_context(socket.socket()) for _ in self.names]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            self._ports = dict(
                zip(self.names, [probe.getsockname()[1] for probe in probes], strict=True)
            )

    def root(self, name: str) -> Path:
        """Returns a board's folder."""
        path = self._folder / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def start(self, names: Sequence[str]) -> None:
        """Starts the servers of these boards and waits until they answer."""
        program, ports = find_sshd(), [str(self._ports[name]) for name in names]
        assert program
        process = subprocess.Popen(
            ["/bin/sh", "-c", _SERVE, "sh", str(self._folder / "config"), program, *ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._stack.callback(_end, process)
        deadline = time.monotonic() + 300
        for port in ports:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                    break
                assert time.monotonic() < deadline, "an sshd does not answer"
                time.sleep(0.02)

    def inventory(self, path: Path) -> Path:
        """Writes the inventory of all boards; those of one rack are eight."""
        pin = fingerprint(paramiko.PKey.from_path(self._folder / "host_key"))
        lines = [
            "version: 1",
            f"defaults: {{user: {getpass.getuser()}, key: {self._folder}/user_key, "
            f"python: {self._python}}}",
            "boards:",
        ]
        for number, name in enumerate(self.names):
            lines.append(
                f"  - {{name: {name}, host: 127.0.0.1, port: {self._ports[name]}, "
                f"root: {self.root(name)}, host_key: '{pin}', "
                f"labels: {{rack: {number // 8}, kind: {('orin', 'xavier')[number % 2]}}}}}"
            )
        path.write_text("\n".join(lines) + "\n")
        return path

    def trust(self, line: str) -> None:
        """Lets every board trust a signer."""
        for name in self.names:
            (self.root(name) / "allowed_signers").write_text(line + "\n")

    def distrust(self, name: str) -> None:
        """Lets a board trust nobody, so that it refuses every bundle."""
        (self.root(name) / "allowed_signers").write_text("")

    def serving(self, name: str, app: str) -> str:
        """Returns the id of the release that serves on a board, '' for none."""
        link = self.root(name) / "apps" / app / "current"
        return os.readlink(link).rpartition("/")[2] if link.is_symlink() else ""

    def releases(self, name: str, app: str) -> list[str]:
        """Returns the releases that a board has."""
        folder = self.root(name) / "apps" / app / "releases"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    assert process.stdin
    process.stdin.close()


@contextlib.contextmanager
def farm(folder: Path, count: int, python: Path) -> Iterator[Farm]:
    """Makes boards that no server runs for yet; all servers end with the block."""
    _privilege_separation()
    folder.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        yield Farm(folder, count, python, stack)
