"""A real sshd board behind a relay, whose interpreter a test can make fail."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import sign
from edgekit.deployment.board import Board, Release
from edgekit.deployment.client import BoardClient
from edgekit.deployment.embedded_sshd import Sshd
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect
from tests.boards.bundles import HandMade, hand_made
from tests.boards.fixtures import remote
from tests.faults.board_check import leftovers
from tests.faults.forked_board import APP, POLICY, Zygote, collected, new_log
from tests.faults.tcp_relay import Relay
from tests.processes import processes

__all__ = ["LiveBoard", "kill_sessions"]

_ON_BOARD = Path(__file__).parent / "on_board"
_QUIET_S = 120.0


@dataclass
class LiveBoard:
    """One board that goes from bundle to bundle, a fault at a time.

    Attributes:
        server: The sshd.
        relay: What the host connects to.
        root: The board's folder, as the board sees it.
        loader: The zipapp.
        key: Signs the bundles.
        zygote: Looks at the board's folder.
        serving: Digest of what serves.
    """

    server: Sshd
    relay: Relay
    root: Path
    loader: Path
    key: Path
    zygote: Zygote
    scratch: Path
    serving: str | None = None
    _count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    _opened: list[BoardClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.scratch / "control").write_text("")
        python = self.scratch / "python"
        python.write_text(
            "#!/bin/sh\n"
            f'PYTHONPATH="{_ON_BOARD}${{PYTHONPATH:+:$PYTHONPATH}}" \\\n'
            f'EDGEKIT_TEST_FAULTS="$(cat "{self.scratch}/control")" \\\n'
            f'exec "{sys.executable}" "$@"\n'
        )
        python.chmod(0o755)

    @property
    def board(self) -> Board:
        """As a config would describe it."""
        found = remote(self.server, port=self.relay.port, root=str(self.root))
        return replace(found, python=str(self.scratch / "python"))

    def bundle(self, **changes: Any) -> HandMade:
        """The next bundle, signed, all its weights new."""
        self._count += 1
        made = hand_made(seed=100 + self._count, **changes)
        return made.signed(sign(made.manifest_bytes, self.key))  # type: ignore[return-value]

    def client(self) -> BoardClient:
        """A new connection, as a new command makes one; it does not come back when it is cut."""
        client = BoardClient(self.board, connect(self.board), self.loader)
        self._opened.append(client)
        return client

    def deploy(
        self, bundle: Bundle, progress: Callable[[str, int, int], None] | None = None
    ) -> Release:
        """What `edgekit deploy` does."""
        client = self.client()
        try:
            return install(bundle, client, progress=progress, policy=POLICY, keep=2)
        finally:
            client.close()

    def measure(self) -> int:
        """Deploys undisturbed; keeps how many bytes went each way and returns the commands."""
        bundle, commands = self.bundle(), 0
        client = self.client()

        def counted(name: str, seconds: float) -> None:
            nonlocal commands
            commands += name != "agent"

        client.on_command = counted
        self.relay.carried = {"up": 0, "down": 0}
        install(bundle, client, policy=POLICY, keep=2)
        client.close()
        self.sizes = dict(self.relay.carried)
        self.settled(bundle)
        return commands

    @contextlib.contextmanager
    def interpreter(self, **watch: Any) -> Iterator[Path]:
        """The board's processes watch their operations meanwhile; yields the log's folder."""
        log = new_log(self.scratch / "watched")
        control = {"root": str(self.root), "log": str(log), **watch}
        (self.scratch / "control").write_text(json.dumps(control))
        try:
            yield log
        finally:
            (self.scratch / "control").write_text("")

    def clock(self, seconds: float) -> None:
        """What the board's processes take for the time, from the next one on."""
        text = json.dumps({"clock_s": seconds}) if seconds else ""
        (self.scratch / "control").write_text(text)

    def look(self, *allowed: str | None) -> str | None:
        """Checks that what serves is whole and one of ``allowed``; returns it."""
        requested = {"root": str(self.root), "app": APP, "allowed": list(allowed)}
        found = self.zygote.run(check=requested).check
        assert found is not None
        assert found["problems"] == [], found
        serving: str | None = found["serving"]
        return serving

    def finish(self, bundle: Bundle) -> Release:
        """The same command again, undisturbed: the bundle serves, nothing is left over."""
        self.relay.flow()
        release = self.deploy(bundle)
        self.settled(bundle)
        return release

    def settled(self, bundle: Bundle) -> None:
        """The bundle serves and nothing is left over once the board is quiet and collected."""
        self.look(bundle.digest)
        self.serving = bundle.digest
        self.quiet()
        done = self.zygote.run([collected(self.root)])
        assert done.error == "", done.answers
        assert leftovers(self.root) == []

    def quiet(self) -> None:
        """Waits until no command works on the board any more."""
        until = time.monotonic() + _QUIET_S
        while running := self.processes():
            assert time.monotonic() < until, f"still running: {running}"
            time.sleep(0.02)

    def processes(self) -> dict[int, str]:
        """The loader's processes on this board, by id."""
        of_root = {str(self.root), f"--root={self.root}"}
        return {
            pid: " ".join(words[2:])
            for pid, words in processes().items()
            if of_root & set(words)
            and any("edgekit_device" in word or "loader.pyz" in word for word in words[1:2])
        }

    def kill(self) -> int:
        """SIGKILL to every process of the loader on this board."""
        found = self.processes()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def close(self) -> None:
        for client in self._opened:
            client.close()
        self.relay.close()


def kill_sessions(server: Sshd) -> None:
    """SIGKILL to the sshd processes of connections; the listener and their commands stay."""
    for pid in _children(server.pid):
        for each in (pid, *_children(pid)):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{each}/comm").read_text(encoding="ascii")
                if name.startswith("sshd"):
                    os.kill(each, signal.SIGKILL)


def _children(parent: int) -> list[int]:
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    return [int(word) for word in text.split()]
