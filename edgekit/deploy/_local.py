"""The transport without SSH: the same commands, run on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import IO, cast

from edgekit.deploy._transport import MOST_OUT, STALL_S, Buffer, Completed, converse, stalled
from edgekit.errors import BoardError

__all__ = ["LocalTransport"]

_READ = 64 * 1024
_GRACE_S = 2.0


class LocalTransport:
    """Runs commands as child processes; ``where`` names the board in errors."""

    def __init__(self, where: str = "local") -> None:
        self._where = where

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = 60.0,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
        told: Callable[[bytes], None] | None = None,
    ) -> Completed:
        """See ``Transport.run``; a program that is not there is status 127, as a shell has it."""
        try:
            child = subprocess.Popen(
                [os.path.expanduser(argv[0]), *argv[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # a Ctrl-C of the terminal is the host's to handle, as with a board far away
                start_new_session=True,
            )
        except FileNotFoundError as error:
            return Completed(127, b"", str(error).encode())
        except PermissionError as error:
            return Completed(126, b"", str(error).encode())
        except OSError as error:
            raise BoardError(
                f"cannot start {argv[0]}: {error.strerror}", where=self._where
            ) from error
        return converse(
            _Child(child, self._where),
            stdin,
            timeout=timeout,
            where=self._where,
            hold_input=hold_input,
            most_out=most_out,
            told=told,
        )

    def close(self) -> None:
        """Nothing is held open."""


class _Child:
    """A child process as ``converse`` wants it.

    Its input is this thread's alone: who closed it elsewhere would have what is written go to
    whatever gets the descriptor's number next.
    """

    def __init__(self, child: subprocess.Popen[bytes], where: str = "") -> None:
        self._child = child
        self._where = where
        # all three were asked for as pipes
        self._in = cast(IO[bytes], child.stdin)
        self._out = cast(IO[bytes], child.stdout)
        self._err = cast(IO[bytes], child.stderr)
        self._handle = self._in.fileno()
        os.set_blocking(self._handle, False)
        self._room = select.poll()
        self._room.register(self._handle, select.POLLOUT)

    def send(self, data: Buffer) -> None:
        view = memoryview(data)
        if view.nbytes:  # or there is no cast
            view = view.cast("B")
        while view:
            try:
                view = view[os.write(self._handle, view) :]
            except BlockingIOError:
                self._await_room()

    def _await_room(self) -> None:
        if not self._room.poll(STALL_S * 1000):
            raise stalled(self._where)

    def end_input(self) -> None:
        self._in.close()

    def read_out(self) -> bytes:
        return _read(self._out)

    def read_err(self) -> bytes:
        return _read(self._err)

    def wait(self, timeout: float | None) -> int | None:
        try:
            status = self._child.wait(timeout)
            return status if status >= 0 else 128 - status  # as shells tell of a signal
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self._in.close()
            self._child.wait(_GRACE_S)  # its input has ended: it may still tidy up
        except subprocess.TimeoutExpired:
            pass
        finally:
            # also where a second Ctrl-C has cut the wait short
            if self._child.poll() is None:
                self._signal(signal.SIGKILL)
                self._child.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def _read(stream: IO[bytes]) -> bytes:
    data = stream.read(_READ)
    if not data:
        stream.close()  # by the one thread that reads it
    return data
