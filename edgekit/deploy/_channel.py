"""One connected board: its loader is put there, and the loader's commands are run."""

from __future__ import annotations

import functools
import hashlib
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from edgekit.deploy._answers import document
from edgekit.deploy._container import Place, container_argv
from edgekit.deploy._onboard import ENSURE
from edgekit.deploy._streams import counted, pieces
from edgekit.deploy._transport import MOST_OUT, Buffer, Completed, Transport
from edgekit.deploy._types import Board, Kind, Progress

__all__ = ["LONG_S", "SHORT_S", "Channel"]

# seconds until a board counts as stuck: small questions, and work on whole networks
SHORT_S = 120.0
LONG_S = 1800.0


class Channel:
    """One board, connected. Every method may raise what ``Transport.run`` and ``document`` raise.

    Args:
        board: Which board; its ``kind`` says how it is reached.
        transport: Connection to it; closed by ``close``.
        loader: The zipapp of ``edgekit_device``; it is put on the board when it is not there.
        note: A sentence for people on how and why the board is reached this way.
        reconnect: Connects anew after the connection was cut; None where that makes no sense.

    Attributes:
        on_command: Called after each command with its name, its seconds and how many starts of
            Python on the board it took.
    """

    def __init__(
        self,
        board: Board,
        transport: Transport,
        loader: Path,
        note: str = "",
        reconnect: Callable[[], Transport] | None = None,
    ) -> None:
        self.board = board
        self.note = note
        self._transport = transport
        self._loader = loader
        self._reconnect = reconnect
        self.on_command: Callable[[str, float, int], object] = lambda name, seconds, starts: None
        self._placed: Place | None = None
        self._remembered = False
        self._staged: set[str] = set()  # starts of the digests that the board has releases of
        self._apart = 0  # bytes that went on connections of their own
        home = board.python.startswith("~/") and board.kind != "local"
        # sshd starts commands in the account's home, where a quoted "~" means nothing
        self._python = "." + board.python[1:] if home else board.python

    @property
    def name(self) -> str:
        """The board's name."""
        return self.board.name

    @property
    def kind(self) -> Kind:
        """How the board is reached."""
        return self.board.kind

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def ensure_loader(self, progress: Progress | None = None) -> int:
        """Puts the right loader on the board unless it is there; returns the bytes sent."""
        if self._placed:
            return 0
        data = self._loader.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        # a name of its own for each version: hosts of different versions share a board in peace
        name = f"edgekit_device-{digest[:16]}.pyz"
        answer = self._place(name, digest, b"", None)
        sent = 0
        if not answer["ready"]:
            packed = _packed(data)
            answer = self._place(name, digest, packed, progress)
            sent = len(packed)
        self._placed = Place.read(answer)
        self._staged.update(self._placed.releases)
        return sent

    def _place(
        self, name: str, digest: str, data: bytes, progress: Progress | None
    ) -> dict[str, Any]:
        argv = [self._outer_python, "-c", ENSURE, self.board.root, name, digest, str(len(data))]
        stdin = counted(data, "loader", progress)
        what = f"the loader, {len(data):,} bytes" if data else "looking for the loader"
        done = self._run(what, argv, stdin=stdin, timeout=SHORT_S)
        return document(done, self.name, self._outer_python, "place")

    @property
    def _outer_python(self) -> str:
        # in a container `python` names the container's
        return "python3" if self.board.container else self._python

    def _argv(
        self, command: str, *options: str, outside: bool = False, detached: str = ""
    ) -> list[str]:
        """Returns a command of the loader's.

        Args:
            command: Its name.
            options: Its options.
            outside: On the board itself also where there is a container.
            detached: Name for a container that goes on alone.
        """
        self.ensure_loader()
        assert self._placed
        place = self._placed
        python = self._outer_python if outside else self._python
        argv = [python, place.loader, command, f"--root={place.root}", *options]
        if self.board.container is None or outside:
            return argv
        if not self._remembered:
            # a container sees neither the device tree nor L4T's release: the board notes them
            self._remembered = True
            self._ask_outside("probe", "--remember")
        return container_argv(self.board.container, place, argv, detached=detached)

    def _ask(
        self,
        command: str,
        *options: str,
        stdin: Iterable[Buffer] = (),
        timeout: float = SHORT_S,
    ) -> dict[str, Any]:
        done = self._run(command, self._argv(command, *options), stdin=stdin, timeout=timeout)
        return document(done, self.name, self.board.python, command)

    def _ask_outside(
        self, command: str, *options: str, stdin: Iterable[Buffer] = ()
    ) -> dict[str, Any]:
        argv = self._argv(command, *options, outside=True)
        done = self._run(command, argv, stdin=stdin, timeout=SHORT_S)
        return document(done, self.name, argv[0], command)

    def _watched(
        self,
        command: str,
        *options: str,
        timeout: float,
        data: bytes = b"",
        most_out: int = MOST_OUT,
        told: Callable[[bytes], None] | None = None,
    ) -> Completed:
        """Runs a long command that stops when this call does, or this machine."""
        argv = self._argv(command, *options, f"--watch-stdin={len(data)}")
        more: dict[str, Any] = {} if told is None else {"told": told}
        return self._run(
            command, argv, stdin=pieces(data), timeout=timeout, hold_input=True,
            most_out=most_out, **more,
        )  # fmt: skip

    def _run(self, command: str, argv: Sequence[str], **more: Any) -> Completed:
        began = time.monotonic()
        try:
            return self._transport.run(argv, **more)
        finally:
            self.on_command(command, time.monotonic() - began, 1)

    def _renew(self) -> bool:
        """Connects anew; returns whether there is a way to."""
        if self._reconnect is None:
            return False
        self._transport.close()
        self._transport = self._reconnect()
        return True


@functools.lru_cache(maxsize=1)
def _packed(loader: bytes) -> bytes:
    """The loader as it travels; packed once for all boards of a fleet.

    Level 9 takes three times as long as 6, for half a percent.
    """
    return zlib.compress(loader, 6)
