"""Speaks the loader's protocol (docs/architecture.md, "On the board") to one board."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.deploy._answers import document, failure
from edgekit.deploy._onboard import ENSURE
from edgekit.deploy._transport import Completed, Transport
from edgekit.deploy._types import Board, Kind, Progress

__all__ = ["BoardClient", "Buffer"]

Buffer = bytes | memoryview

# seconds until a board counts as stuck: small questions, and work on whole networks
_SHORT_S = 120.0
_LONG_S = 1800.0
_PIECE = 256 * 1024


class BoardClient:
    """One board, connected. Every method may raise what ``Transport.run`` and ``document`` raise.

    Args:
        board: Which board; its ``kind`` says how it is reached.
        transport: Connection to it; closed by ``close``.
        loader: The zipapp of ``edgekit_device``; it is put on the board when it is not there.
        note: A sentence for people on how and why the board is reached this way.
    """

    def __init__(self, board: Board, transport: Transport, loader: Path, note: str = "") -> None:
        self.board = board
        self.note = note
        self._transport = transport
        self._loader = loader
        self._placed: tuple[str, str] | None = None  # root and loader, as the board names them
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
            answer = self._place(name, digest, data, progress)
            sent = len(data)
        self._placed = (answer["root"], answer["path"])
        return sent

    def hello(self) -> dict[str, Any]:
        """Returns the board's versions, backends, root and free bytes."""
        return self._ask("hello")

    def trust(self, lines: Sequence[str]) -> dict[str, Any]:
        """Adds lines of OpenSSH's allowed_signers form: from now on these keys may sign."""
        return self._ask("trust", stdin=[_json({"lines": list(lines)})])

    def missing(self, digests: Iterable[str], *, verify: bool = False) -> tuple[str, ...]:
        """Returns which blobs the board lacks; ``verify`` reads those that it has again."""
        options = ["--verify"] if verify else []
        timeout = _LONG_S if verify else _SHORT_S
        answer = self._ask("missing", *options, stdin=[_json(list(digests))], timeout=timeout)
        return tuple(answer["missing"])

    def receive(self, blobs: Mapping[str, Buffer], progress: Progress | None = None) -> int:
        """Sends blobs by digest and returns their bytes; those that arrive whole stay.

        ``progress`` is called in this thread with phase "send" and bytes.
        """
        if not blobs:
            return 0
        self._ask("receive", stdin=_frames(blobs, progress), timeout=_LONG_S)
        return sum(len(data) for data in blobs.values())

    def verify(self, manifest: bytes, signature: bytes | None) -> dict[str, Any]:
        """Checks what ``stage`` checks first, before any blob is sent: signature and manifest."""
        return self._ask("verify", stdin=_envelope(manifest, signature))

    def stage(self, manifest: bytes, signature: bytes | None) -> dict[str, Any]:
        """Makes a release of a manifest whose blobs are there, after checking its signature."""
        return self._ask("stage", stdin=_envelope(manifest, signature), timeout=_LONG_S)

    def refit(self, app: str, release: str | None = None) -> dict[str, Any]:
        """Fills the release's stripped engines from the board's store."""
        return self._ask_watched("refit", *_which(app, release), timeout=_LONG_S)

    def selftest(self, app: str, release: str | None = None) -> dict[str, Any]:
        """Runs the golden vectors; BoardError "selftest.failed" when one is off."""
        return self._ask_watched("selftest", *_which(app, release), timeout=_LONG_S)

    def switch(self, app: str, release: str) -> dict[str, Any]:
        """Makes ``release`` the one that serves."""
        return self._ask("switch", *_which(app, release))

    def rollback(self, app: str) -> dict[str, Any]:
        """Makes the release before the current one serve again."""
        return self._ask("rollback", *_which(app, None))

    def infer(
        self, app: str, npz: bytes, *, release: str | None = None, frames: bool = False
    ) -> bytes:
        """Runs the release on an ``.npz`` of inputs and returns one of outputs."""
        options = [*_which(app, release), *(["--frames"] if frames else [])]
        done = self._watched("infer", *options, data=npz, timeout=_LONG_S)
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        start = done.out.find(b"PK")  # after whatever the board's shell may print
        return done.out[max(start, 0) :]

    def bench(
        self,
        app: str,
        *,
        release: str | None = None,
        warmup_ms: float = 200.0,
        duration_s: float = 3.0,
        iterations: int = 10,
        profile: bool = False,
        threads: int = 0,
    ) -> dict[str, Any]:
        """Measures the release on the board by trtexec's method."""
        options = [
            *_which(app, release),
            f"--warmup-ms={warmup_ms:g}",
            f"--duration-s={duration_s:g}",
            f"--iterations={iterations}",
            f"--threads={threads}",
            *(["--profile"] if profile else []),
        ]
        return self._ask_watched("bench", *options, timeout=_LONG_S + 4 * duration_s)

    def releases(self, app: str | None = None) -> dict[str, Any]:
        """Returns apps with their releases, the current and the previous one."""
        return self._ask("releases", *([f"--app={app}"] if app else []))

    def remove(self, app: str, release: str | None = None) -> dict[str, Any]:
        """Removes a release, or without one the whole app."""
        return self._ask("remove", *_which(app, release))

    def gc(self, app: str, keep: int) -> dict[str, Any]:
        """Removes the app's oldest releases beyond ``keep``, and blobs that nothing names."""
        return self._ask("gc", f"--app={app}", f"--keep={keep}", timeout=_LONG_S)

    def _place(
        self, name: str, digest: str, data: bytes, progress: Progress | None
    ) -> dict[str, Any]:
        argv = [self._python, "-c", ENSURE, self.board.root, name, digest, str(len(data))]
        stdin = _counted(data, "loader", progress)
        done = self._transport.run(argv, stdin=stdin, timeout=_SHORT_S)
        return document(done, self.name, self.board.python)

    def _argv(self, command: str, *options: str) -> list[str]:
        self.ensure_loader()
        assert self._placed
        root, loader = self._placed
        return [self._python, loader, command, f"--root={root}", *options]

    def _ask(
        self,
        command: str,
        *options: str,
        stdin: Iterable[bytes] = (),
        timeout: float = _SHORT_S,
    ) -> dict[str, Any]:
        done = self._transport.run(self._argv(command, *options), stdin=stdin, timeout=timeout)
        return document(done, self.name, self.board.python)

    def _ask_watched(self, command: str, *options: str, timeout: float) -> dict[str, Any]:
        done = self._watched(command, *options, timeout=timeout)
        return document(done, self.name, self.board.python)

    def _watched(self, command: str, *options: str, timeout: float, data: bytes = b"") -> Completed:
        """Runs a long command that stops when this call does, or this machine."""
        argv = self._argv(command, *options, f"--watch-stdin={len(data)}")
        return self._transport.run(argv, stdin=_pieces(data), timeout=timeout, hold_input=True)


def _which(app: str, release: str | None) -> list[str]:
    return [f"--app={app}", *([f"--release={release}"] if release else [])]


def _json(value: object) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _envelope(manifest: bytes, signature: bytes | None) -> list[bytes]:
    text = None if signature is None else signature.decode("utf-8")
    return [_json({"manifest": manifest.decode("utf-8"), "signature": text})]


def _pieces(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        yield bytes(view[start : start + _PIECE])


def _counted(data: bytes, phase: str, progress: Progress | None) -> Iterator[bytes]:
    done = 0
    for piece in _pieces(data):
        yield piece
        done += len(piece)
        if progress:
            progress(phase, done, len(data))


def _frames(blobs: Mapping[str, Buffer], progress: Progress | None) -> Iterator[bytes]:
    """Yields the stream of ``receive``; a piece counts when the next one is asked for."""
    total = sum(len(data) for data in blobs.values())
    done = 0
    for digest, data in blobs.items():
        yield _json({"digest": digest, "bytes": len(data)})
        for piece in _pieces(data):
            yield piece
            done += len(piece)
            if progress:
                progress("send", done, total)
    yield b"\n"
