"""How a command runs on a board, whatever carries it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.errors import BoardError

__all__ = [
    "MOST_OUT",
    "STALL_S",
    "Buffer",
    "Completed",
    "Process",
    "Transport",
    "converse",
    "stalled",
]

#: Bytes that a command may answer where its caller expects a document.
MOST_OUT = 64 << 20
#: Seconds after which a command that takes nothing of its input is given up. A board's command
#: waits a minute for a lock (``LOCK_WAIT_S`` of the loader), and then says so itself.
STALL_S = 75.0
Buffer = bytes | memoryview

_ERR_KEPT = 64 * 1024
_DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command left: its exit status, its stdout and the end of its stderr."""

    status: int
    out: bytes
    err: bytes


class Transport(Protocol):
    """Carries commands to one board.

    ``run`` gives the command ``stdin`` chunk by chunk, while its output is read at the same time,
    and returns when it has ended. It raises BoardError "board.connection-lost" or "board.timeout";
    a command that fails is no error here. ``timeout`` is in seconds, counted from the last byte
    of ``stdin``; None waits for ever. ``argv`` reaches the command word for word.

    With ``hold_input`` the command's input does not end after ``stdin`` but with the call, however
    that ends: a command that watches it learns that nobody waits any more.

    A command that prints more than ``most_out`` bytes is ended, BoardError "board.protocol": what
    a board says is bounded before it is kept.

    With ``told`` the output is given to it as it comes, in a thread of the transport's, b"" at its
    end, and nothing of it is kept.
    """

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = 60.0,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
        told: Callable[[bytes], None] | None = None,
    ) -> Completed: ...

    def close(self) -> None: ...


class Process(Protocol):
    """A command that runs, as the transports show it to ``converse``.

    ``send`` raises BrokenPipeError once the command no longer reads; ``read_out`` and
    ``read_err`` return b"" at the end; ``wait`` returns None when the time is over. ``stop`` ends
    the command from the thread that reads it, while another may be feeding it: what that uses stays
    open.
    """

    def send(self, data: Buffer) -> None: ...

    def end_input(self) -> None: ...

    def read_out(self) -> bytes: ...

    def read_err(self) -> bytes: ...

    def wait(self, timeout: float | None) -> int | None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class _Drain(threading.Thread):
    """Reads one stream to its end, so that neither side ever blocks on a full buffer."""

    def __init__(
        self,
        read: Callable[[], bytes],
        keep: int | None = None,
        most: int | None = None,
        stop: Callable[[], None] | None = None,
        told: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._read = read
        self._told = told
        self._keep = keep
        self._most = most
        self._flood = stop
        self._data = bytearray()
        self.flooded = False
        self.start()

    def run(self) -> None:
        """Collects until the end of the stream or the loss of it."""
        try:
            self._collect()
        finally:
            if self._told:
                self._told(b"")

    def _collect(self) -> None:
        while True:
            try:
                chunk = self._read()
            except (OSError, ValueError):
                return
            if not chunk:
                return
            if self._told:
                self._told(chunk)
                continue
            if self.flooded:
                continue  # to the end of what the pipe still holds, which closes it
            self._data += chunk
            if self._keep is not None and len(self._data) > self._keep:
                del self._data[: -self._keep]
            if self._most is not None and len(self._data) > self._most:
                self.flooded = True
                self._data.clear()
                if self._flood:
                    self._flood()

    def result(self) -> bytes:
        """Returns the whole stream; a daemon that holds it open is not waited for."""
        self.join(_DRAIN_S)
        return bytes(self._data)


def converse(
    process: Process,
    stdin: Iterable[Buffer],
    *,
    timeout: float | None,
    where: str,
    hold_input: bool = False,
    most_out: int = MOST_OUT,
    told: Callable[[bytes], None] | None = None,
) -> Completed:
    """Feeds a command, reads it and waits for it; it is killed when anything else happens.

    ``stdin`` is iterated in the calling thread, so what it raises (a Ctrl-C in a progress
    callback) comes out here and the command sees its input end in the middle.
    """
    try:
        out = _Drain(process.read_out, most=most_out, stop=process.stop, told=told)
        err = _Drain(process.read_err, _ERR_KEPT)
        try:
            for chunk in stdin:
                process.send(chunk)
            if not hold_input:
                process.end_input()
        except BrokenPipeError:
            pass  # it ended before its input did: its answer says why
        try:
            status = process.wait(timeout)
        except BoardError:
            if not out.flooded:
                raise
            status = -1
        said, complaint = (b"", b"") if status is None else (out.result(), err.result())
        if out.flooded:
            raise BoardError(
                f"the board answers more than {most_out} bytes",
                code="board.protocol",
                where=where,
                hint="does a start-up file of the board's shell print without end? "
                "or something else answers there",
            )
        if status is None:
            raise BoardError(
                f"the board did not answer within {timeout:g} s",
                code="board.timeout",
                where=where,
                hint="see what the board is busy with, then run the same command again",
            )
        return Completed(status, said, complaint)
    finally:
        process.kill()


def stalled(where: str) -> BoardError:
    """Returns the error of a board that takes nothing more, though the connection is there."""
    return BoardError(
        f"the connection has stalled: nothing was taken for {STALL_S:g} s",
        code="board.connection-lost",
        where=where,
        hint="what had arrived is kept and the current release still serves; "
        "run the same command again",
    )
