"""The host's end of a board's agent: a process on the board that runs every command over one
channel.

``edgekit_device.agent`` has the protocol. A thread reads and writes the channel. Commands of
several threads share it; each has a window of its own, so that none blocks another.
"""

from __future__ import annotations

import copy
import itertools
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from edgekit import timeouts
from edgekit.deployment.answers import failure, protocol_error, read_answer
from edgekit.deployment.board import Progress
from edgekit.deployment.loader import ENSURE, LoaderLocation
from edgekit.deployment.transport import (
    MOST_OUT,
    Buffer,
    Completed,
    Transport,
    converse,
    json_line,
    pieces,
    reported_pieces,
    stalled_error,
)
from edgekit.errors import BoardError, EdgekitError

_WINDOW = 4 << 20  # bytes of a command's input in flight, as the agent expects
_MAX_LINE = 1 << 16
_MAX_PART = 1 << 20
_MAX_START = 1 << 20  # bytes of a login shell's output before the agent's first line
_FIRST, _LACKS = b'{"agent": 1}\n', b'{"lacks": '
_MAX_CHUNKS = 64  # unread chunks of a command's output


class Agent:
    """Puts the loader on a board if it is missing, and runs commands through one process.

    Args:
        transport: Connection to the board, used for one channel until ``close``.
        python: The board's interpreter.
        root: The board's ROOT.
        name: The loader's file name on the board, derived from its digest.
        digest: The loader's SHA-256 (hex).
        packed: Returns the loader's deflated bytes; called only if the board lacks the loader.
        where: The board's name for errors.
        progress: Called with phase "loader" and bytes during the transfer.

    Attributes:
        place: The loader's path on the board.
        bytes_sent: Bytes sent to put the loader there.

    Raises:
        BoardError, EnvironmentLack: As ``Transport.run``, or the board's own error.
    """

    def __init__(
        self,
        transport: Transport,
        python: str,
        root: str,
        name: str,
        digest: str,
        packed: Callable[[], bytes],
        where: str,
        progress: Progress | None = None,
    ) -> None:
        self._where = where
        self._argv = [python, "-c", ENSURE, root, name, digest]
        self._transport = transport
        self._out: queue.SimpleQueue[tuple[Buffer, ...] | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._commands: dict[int, _SentCommand] = {}
        self._error: EdgekitError | None = None
        # output before the agent's first line; then "lacks", "started" and "ended" in turn
        self._start: bytearray | None = bytearray()
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        # the command whose output follows, the stream's name, and the remaining bytes
        self._part: tuple[int, str, int] = (0, "", 0)
        self._line = bytearray()
        self.bytes_sent = 0
        self._thread = threading.Thread(
            target=self._hold_channel, name=f"agent of {where}", daemon=True
        )
        self._thread.start()
        try:
            if self._next_line() == "lacks":
                data = packed()
                self._out.put((b"%012d" % len(data),))
                for piece in reported_pieces(data, "loader", progress):
                    self._out.put((piece,))
                self.bytes_sent = len(data)
                self._next_line()
            if self._error is not None:
                raise self._error
            placed = Completed(0, self._head, b"")
            self.place: LoaderLocation = read_answer(placed, where, python, "place")
        except BaseException:
            self.close()
            raise

    def _next_line(self) -> str:
        """Waits for the next line of the program that puts the loader there."""
        try:
            return self._news.get(timeout=timeouts.AGENT_START_S)
        except queue.Empty:
            raise BoardError(
                f"the board did not answer within {timeouts.AGENT_START_S:g} s",
                code="board.timeout",
                where=self._where,
                hint="find the load that keeps the board busy, then run the same command again",
            ) from None

    def _hold_channel(self) -> None:
        """Holds the channel until the agent ends."""
        try:
            done = self._transport.run(
                self._argv,
                stdin=self._outgoing(),
                timeout=timeouts.AGENT_END_S,
                on_output=self._receive,
            )
            if self._start is not None:
                said = Completed(done.status, bytes(self._start), done.err)
                read_answer(said, self._where, self._argv[0], "place")
                raise protocol_error("the board did not start edgekit_device", self._where)
            error: EdgekitError = BoardError(
                "the connection to edgekit_device on the board ended: "
                f"{failure(done, self._where, self._argv[0]).message}",
                code="board.connection-lost",
                where=self._where,
                hint="run the same command again",
            )
        except EdgekitError as caught:
            error = caught
        self._fail(error)
        self._news.put("ended")

    def _fail(self, error: EdgekitError) -> None:
        """Fails all commands; they get the first error."""
        with self._lock:
            self._error = self._error or error
            commands = list(self._commands.values())
        # without the lock: a full queue blocks until the command's reader has taken a chunk
        for command in commands:
            command.lose()
        self._out.put(None)

    def _outgoing(self) -> Iterator[Buffer]:
        while (chunks := self._out.get()) is not None:
            yield from chunks

    def close(self) -> None:
        """Ends the agent and all running commands."""
        self._out.put(None)
        self._thread.join(2 * timeouts.AGENT_END_S)

    @property
    def alive(self) -> bool:
        """True while the agent runs commands."""
        return self._error is None

    def run(
        self,
        argv: Sequence[str],
        *,
        program: bool = False,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = timeouts.COMMAND_S,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Completed:
        """Runs a command like ``Transport.run``.

        Args:
            argv: A loader's command with its options; with ``program``, another program.
            program: See ``argv``.
            stdin, timeout, hold_input, most_out, on_output: See ``Transport.run``.
        """
        command = _SentCommand(self, next(self._numbers))
        with self._lock:
            if self._error is not None:
                # each thread gets its own copy: raising and callers change the error
                raise copy.copy(self._error)
            # before the request is sent, so that no answer is dropped
            self._commands[command.number] = command
        self.send({"run": command.number, "argv": list(argv), "program": program})
        try:
            return converse(
                command,
                stdin,
                timeout=timeout,
                where=self._where,
                hold_input=hold_input,
                most_out=most_out,
                on_output=on_output,
            )
        finally:
            with self._lock:
                del self._commands[command.number]

    def send(self, line: dict[str, object], data: Buffer = b"") -> None:
        """Queues a line and its bytes for sending."""
        self._out.put((json_line(line), data))

    def lost(self) -> BoardError:
        """Returns the error that ended the agent, for a command that it interrupted."""
        assert self._error is not None
        error: BoardError = copy.copy(self._error)  # type: ignore[assignment]
        return error

    def stalled(self) -> BoardError:
        """Returns the error of a command that stopped reading its input."""
        return stalled_error(self._where)

    def _receive(self, data: bytes) -> None:
        """Handles data from the channel, in the transport's thread."""
        if not data:
            self._out.put(None)  # the agent has ended: end its input
        if self._error is not None:
            return
        try:
            if self._start is not None:
                data = self._read_start(data)
            self._read_output(data)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._fail(
                protocol_error("the answer is not of edgekit_device's protocol", self._where)
            )

    def _read_start(self, data: bytes) -> bytes:
        """Collects output before the agent's first line; returns the data after it."""
        assert self._start is not None
        self._start += data
        if len(self._start) > _MAX_START:
            raise ValueError(len(self._start))
        head, mark, rest = bytes(self._start).partition(_FIRST)
        if mark:
            self._head, self._start = head, None
            self._news.put("started")
            return rest
        if _LACKS in self._start and self._start.endswith(b"\n"):
            del self._start[self._start.find(_LACKS) :]
            self._news.put("lacks")
        return b""

    def _read_output(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            number, name, left = self._part
            if left:
                part = view[:left]
                view = view[len(part) :]
                self._part = (number, name, left - len(part))
                command = self._commands.get(number)
                if command is not None:
                    command.outputs[name].put(bytes(part))
                continue
            # ``find`` exists for bytes only, so the position is that in ``data``
            position = len(data) - len(view)
            end = data.find(b"\n", position)
            until = len(data) if end < 0 else end + 1
            self._line += data[position:until]
            view = view[until - position :]
            if len(self._line) > _MAX_LINE:
                raise ValueError(len(self._line))
            if end >= 0:
                line = json.loads(self._line)
                self._line.clear()
                self._handle_line(line)

    def _handle_line(self, line: Any) -> None:
        for name in ("out", "err"):
            if name in line:
                size = line["bytes"]
                # not isinstance: JSON's true would be an int
                if type(size) is not int or not 0 < size <= _MAX_PART:
                    raise ValueError(size)
                self._part = int(line[name]), name, size
                return
        number = line["took" if "took" in line else "status"]
        command = self._commands.get(number)
        if command is None:
            return  # a command that has been abandoned
        if "took" in line:
            command.credit(int(line["bytes"]))
        else:
            command.end(int(line["code"]))


class _SentCommand:
    """A running command, with the interface that ``converse`` needs."""

    def __init__(self, agent: Agent, number: int) -> None:
        self.number = number
        self.outputs: dict[str, queue.Queue[bytes]] = {
            name: queue.Queue(_MAX_CHUNKS) for name in ("out", "err")
        }
        self._agent = agent
        self._status: int | None = None
        self._ended = threading.Event()
        self._credit = _WINDOW
        self._taken = threading.Condition()

    def credit(self, size: int) -> None:
        with self._taken:
            self._credit += size
            self._taken.notify_all()

    def end(self, status: int) -> None:
        self._status = status
        self.lose()

    def lose(self) -> None:
        """Wakes the waiting threads; a command without a status was interrupted."""
        if self._ended.is_set():
            return
        self._ended.set()
        for output in self.outputs.values():
            output.put(b"")
        with self._taken:
            self._taken.notify_all()

    def send(self, data: Buffer) -> None:
        for piece in pieces(memoryview(data)):
            with self._taken:
                until = time.monotonic() + timeouts.STALL_S
                # the agent returns credit for input that the command has read: without it, input
                # would pile up in the agent and block other commands
                while self._credit < len(piece) and not self._ended.is_set():
                    if not self._taken.wait(until - time.monotonic()):
                        raise self._agent.stalled()
                self._credit -= len(piece)
            if self._ended.is_set():
                raise BrokenPipeError  # ``wait`` raises the reason
            self._agent.send({"in": self.number, "bytes": len(piece)}, piece)

    def end_input(self) -> None:
        self._agent.send({"end": self.number})

    def read_out(self) -> bytes:
        return self.outputs["out"].get()

    def read_err(self) -> bytes:
        return self.outputs["err"].get()

    def wait(self, timeout: float | None) -> int | None:
        if not self._ended.wait(timeout):
            return None
        if self._status is None:
            raise self._agent.lost()
        return self._status

    def stop(self) -> None:
        self._agent.send({"drop": self.number})

    def kill(self) -> None:
        if not self._ended.is_set():
            self.stop()
            self.lose()
