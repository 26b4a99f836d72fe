"""The interface of transports that run commands on a board; the local transport without SSH; and
the byte streams of the protocol: JSON lines, counted pieces, frames of blobs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol, cast

from edgekit import timeouts
from edgekit.deployment.board import Progress
from edgekit.errors import BoardError
from edgekit.files import forget_pages
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import parse_json, read, write

#: Most bytes of a command's answer if its caller expects a document.
MOST_OUT = 64 << 20

Buffer = bytes | memoryview
_ERR_RETAINED = 64 * 1024
_PIECE = 256 * 1024
_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command: its exit status, its stdout and the end of its stderr."""

    status: int
    out: bytes
    err: bytes


class Transport(Protocol):
    """Runs commands on a board.

    ``run`` writes ``stdin`` to the command in chunks while it reads the output, and returns when
    the command has ended. It raises BoardError "board.connection-lost", "board.silent" or
    "board.timeout"; a failed command raises no error. ``timeout`` is in seconds, counted from the
    last byte of ``stdin`` or of the command's output; None waits forever. ``argv`` is passed to the
    command unchanged.

    With ``hold_input`` the command's input ends with the call (not after ``stdin``), even if the
    call fails: a command that watches its input notices that the caller is gone.

    A command that prints more than ``most_out`` bytes is ended with BoardError "board.protocol": a
    board's output is bounded before it is stored.

    ``on_output`` is called with the output as it arrives, in a thread of the transport, and with
    b"" at its end; the output is then not stored.
    """

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = timeouts.COMMAND_S,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Completed: ...

    def close(self) -> None: ...


class Process(Protocol):
    """A running command, the interface between transports and ``converse``.

    ``send`` raises BrokenPipeError once the command no longer reads; ``read_out`` and ``read_err``
    return b"" at the end; ``wait`` returns None after a timeout. ``stop`` ends the command from the
    reading thread, while another thread may still write: the writer's resources stay open.
    """

    def send(self, data: Buffer) -> None: ...

    def end_input(self) -> None: ...

    def read_out(self) -> bytes: ...

    def read_err(self) -> bytes: ...

    def wait(self, timeout: float | None) -> int | None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class _StreamReader(threading.Thread):
    """Reads a stream to its end, so that neither side blocks on a full buffer."""

    def __init__(
        self,
        read: Callable[[], bytes],
        keep: int | None = None,
        most: int | None = None,
        stop: Callable[[], None] | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._read = read
        self._on_output = on_output
        self._keep = keep
        self._most = most
        self._flood = stop
        self._data = bytearray()
        self.flooded = False
        self.heard = time.monotonic()
        self.start()

    def run(self) -> None:
        """Collects data until the stream ends or is lost."""
        try:
            self._collect()
        finally:
            if self._on_output:
                self._on_output(b"")

    def _collect(self) -> None:
        while True:
            try:
                chunk = self._read()
            except (OSError, ValueError):
                return
            if not chunk:
                return
            self.heard = time.monotonic()
            if self._on_output:
                self._on_output(chunk)
                continue
            if self.flooded:
                continue  # read the rest of the pipe, then close it
            self._data += chunk
            if self._keep is not None and len(self._data) > self._keep:
                del self._data[: -self._keep]
            if self._most is not None and len(self._data) > self._most:
                self.flooded = True
                self._data.clear()
                if self._flood:
                    self._flood()

    def result(self) -> bytes:
        """Returns the whole stream; does not wait for a daemon that holds it open."""
        self.join(timeouts.DRAIN_S)
        return bytes(self._data)


def converse(
    process: Process,
    stdin: Iterable[Buffer],
    *,
    timeout: float | None,
    where: str,
    hold_input: bool = False,
    most_out: int = MOST_OUT,
    on_output: Callable[[bytes], None] | None = None,
) -> Completed:
    """Writes a command's input, reads its output and waits for its end; kills it on any error.

    ``stdin`` is iterated in the calling thread, so its exceptions (a Ctrl-C in a progress callback)
    propagate to the caller, and the command's input is truncated.
    """
    try:
        out = _StreamReader(process.read_out, most=most_out, stop=process.stop, on_output=on_output)
        err = _StreamReader(process.read_err, _ERR_RETAINED)
        try:
            for chunk in stdin:
                process.send(chunk)
            if not hold_input:
                process.end_input()
        except BrokenPipeError:
            pass  # it ended before its input: its answer has the reason
        try:
            status = _wait_for_end(process, timeout, (out, err))
        except BoardError:
            if not out.flooded:
                raise
            # the flood ended the command, so the error is only a consequence
            status = -1
        said, complaint = (b"", b"") if status is None else (out.result(), err.result())
        if out.flooded:
            raise BoardError(
                f"the board's answer is longer than {most_out} bytes",
                code="board.protocol",
                where=where,
                hint="check whether a start-up file of the board's shell prints without end, "
                "or another service answers there",
            )
        if status is None:
            raise BoardError(
                f"the board did not answer within {timeout:g} s",
                code="board.timeout",
                where=where,
                hint="find the load that keeps the board busy, then run the same command again",
            )
        return Completed(status, said, complaint)
    finally:
        process.kill()


def _wait_for_end(
    process: Process, timeout: float | None, outputs: Sequence[_StreamReader]
) -> int | None:
    """Returns a command's status; None after ``timeout`` seconds without output."""
    if timeout is None:
        return process.wait(None)
    since = time.monotonic()
    while True:
        since = max(since, *(output.heard for output in outputs))
        left = since + timeout - time.monotonic()
        status = process.wait(max(left, 0.0))
        if status is not None or all(output.heard <= since for output in outputs):
            return status


def silent_error(where: str, seconds: float) -> BoardError:
    """Returns the error of an open connection on which the board sends no data."""
    return BoardError(
        f"the board has sent no data for {seconds:g} s on an open connection",
        code="board.silent",
        where=where,
        hint="check the jump host, VPN or NAT on the way, and whether the board still runs; "
        "received data is kept and the current release is unchanged; run the same command again",
    )


def stalled_error(where: str) -> BoardError:
    """Returns the error of an open connection on which the board accepts no more data."""
    return BoardError(
        f"the connection has stalled: no data was accepted for {timeouts.STALL_S:g} s",
        code="board.connection-lost",
        where=where,
        hint="received data is kept and the current release is unchanged; run the same command "
        "again",
    )


def json_line(value: object) -> bytes:
    """Returns a JSON document as a line."""
    return json.dumps(value).encode("ascii") + b"\n"


def pieces(data: Buffer) -> Iterator[memoryview]:
    """Yields ``data`` without a copy, in pieces that a channel takes at once."""
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        yield view[start : start + _PIECE]


def reported_pieces(data: bytes, phase: str, progress: Progress | None) -> Iterator[Buffer]:
    """Yields ``data`` in pieces and reports the bytes handed over."""
    done = 0
    for piece in pieces(data):
        yield piece
        done += len(piece)
        if progress:
            progress(phase, done, len(data))


def frames(
    blobs: Mapping[str, Buffer], partial: Mapping[str, int], progress: Progress | None
) -> Iterator[Buffer]:
    """Yields the stream of ``receive``, the largest blob first.

    Args:
        blobs: Bytes by digest.
        partial: Number of bytes of each blob that the board already has, by digest.
        progress: Called with phase "send" and bytes.
    """
    from edgekit_device.store.transfer import BlobFrame

    total, done = sum(map(len, blobs.values())), sum(partial.get(digest, 0) for digest in blobs)
    for digest in sorted(blobs, key=lambda digest: partial.get(digest, 0) - len(blobs[digest])):
        data, start = blobs[digest], partial.get(digest, 0)
        yield json_line(write(BlobFrame(digest, len(data), start)))
        for piece in pieces(memoryview(data)[start:]):
            yield piece
            done += len(piece)
            if progress:
                progress("send", done, total)
        # sent pages of a mapped weight file would count as this process's memory
        forget_pages(data)
    yield b"\n"


def read_frames(data: bytes, where: str, wanted: Collection[str]) -> dict[str, bytes]:
    """Reads the stream of ``fetch``; checks every blob's digest, and that all wanted blobs are
    there.

    Raises:
        BoardError: "board.protocol" or "board.transfer".
    """
    from edgekit_device.store.transfer import BlobFrame

    found: dict[str, bytes] = {}
    position = max(data.find(b'{"digest":'), 0)  # skip output of the board's shell
    while data[position : position + 1] != b"\n":
        end = data.find(b"\n", position)
        try:
            frame = read(BlobFrame, parse_json(data[position : max(end, 0)], where))
        except DeviceError as error:
            raise _stream_error(where) from error
        digest, size = frame.digest, frame.size
        if frame.start or size > len(data) - end or digest not in wanted or digest in found:
            raise _stream_error(where)
        blob = data[end + 1 : end + 1 + size]
        if hashlib.sha256(blob).hexdigest() != digest:
            raise BoardError(
                f"the received bytes do not have the SHA-256 {digest}",
                code="board.transfer",
                where=where,
                hint="run the same command again; if it fails again, the board's store is damaged",
            )
        found[digest] = blob
        position = end + 1 + size
    if len(found) != len(set(wanted)):
        raise BoardError("the board sent too few blobs", code="board.protocol", where=where)
    return found


def _stream_error(where: str) -> BoardError:
    return BoardError(
        "the stream of blobs ended early or is not valid", code="board.protocol", where=where
    )


class LocalTransport:
    """Runs commands as child processes; ``where`` names the board in errors."""

    def __init__(self, where: str = "local") -> None:
        self._where = where

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
        """See ``Transport.run``; a missing program has status 127, as in a shell."""
        try:
            child = subprocess.Popen(
                [os.path.expanduser(argv[0]), *argv[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # only the host handles the terminal's Ctrl-C, as with a remote board
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
            _LocalChild(child, self._where),
            stdin,
            timeout=timeout,
            where=self._where,
            hold_input=hold_input,
            most_out=most_out,
            on_output=on_output,
        )

    def close(self) -> None:
        """Returns at once: no resources are held."""


class _LocalChild:
    """A child process as a ``Process`` for ``converse``.

    Only this thread uses its input: if another thread closed it, later writes could go to a reused
    file descriptor.
    """

    def __init__(self, child: subprocess.Popen[bytes], where: str = "") -> None:
        self._child = child
        self._where = where
        # all three were requested as pipes
        self._in = cast(IO[bytes], child.stdin)
        self._out = cast(IO[bytes], child.stdout)
        self._err = cast(IO[bytes], child.stderr)
        self._handle = self._in.fileno()
        # a blocking write to a full pipe could not time out
        os.set_blocking(self._handle, False)
        self._writable = select.poll()
        self._writable.register(self._handle, select.POLLOUT)

    def send(self, data: Buffer) -> None:
        view = memoryview(data)
        if view.nbytes:  # an empty view cannot be cast
            view = view.cast("B")
        while view:
            try:
                view = view[os.write(self._handle, view) :]
            except BlockingIOError:
                if not self._writable.poll(timeouts.STALL_S * 1000):
                    raise stalled_error(self._where) from None

    def end_input(self) -> None:
        self._in.close()

    def read_out(self) -> bytes:
        return _read(self._out)

    def read_err(self) -> bytes:
        return _read(self._err)

    def wait(self, timeout: float | None) -> int | None:
        try:
            status = self._child.wait(timeout)
            return status if status >= 0 else 128 - status  # as shells report a signal
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._child.wait(timeouts.GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self._in.close()
            self._child.wait(timeouts.GRACE_S)  # its input has ended: it may still tidy up
        except subprocess.TimeoutExpired:
            pass
        finally:
            # also if a second Ctrl-C interrupted the wait
            if self._child.poll() is None:
                self._signal(signal.SIGKILL)
                self._child.wait()

    def _signal(self, number: signal.Signals) -> None:
        # after the child is reaped, its number may belong to another process
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def _read(stream: IO[bytes]) -> bytes:
    data = stream.read(_READ)
    if not data:
        stream.close()  # in the thread that reads it
    return data
