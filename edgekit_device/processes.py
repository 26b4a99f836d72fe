"""Child processes: ``run_in_child`` forks a process for work that may crash, hang or exhaust the
memory; ``child_argv`` starts Python with this process's modules; ``read_watched`` ends a command
whose caller has ended.

A forked child answers in lines of JSON::

    {"turn": state}            it begins a state as soon as it receives a byte
    {"report": [...]}          the arguments of ``on_report``
    {"result": ...}            the answer, or {"error": {...}} instead
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Callable, List, NoReturn, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    anything,
    array,
    document,
    member,
    read,
    record,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure

# -I: ``python -c`` would search the working folder first, even for json
_PATH = "import json, sys\nsys.path[:] = json.loads(sys.argv.pop(1))\n"
_GRACE_S = 1.0
_EXIT_GONE = 143
_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1  # prctl(2)


# --- work in a forked child

Turn = Callable[[str], None]
"""Called by the work with the state that it is about to begin; returns when it may."""
Report = Callable[..., None]
"""Called by the work; its JSON-like arguments come to ``on_report``."""


@document(frozen=True)
class _Message:
    """A line of a child's output; without any field the answer is null."""

    turn: Optional[str] = member(text(), absent=None)
    report: Optional[Tuple[Any, ...]] = member(array(anything), absent=None)
    result: Any = member(anything, absent=None)
    error: Optional[Failure] = member(record(Failure), absent=None)


class ChildDied(Exception):
    """A child ended before it answered.

    Attributes:
        state: The child's state; "" before the first.
        cause: The signal's name, or "exit status N".
    """

    def __init__(self, state: str, status: int) -> None:
        self.state = state
        if os.WIFSIGNALED(status):
            self.cause = signal.Signals(os.WTERMSIG(status)).name
        else:
            self.cause = "exit status {}".format(os.WEXITSTATUS(status))
        super().__init__("{}: {}".format(state, self.cause))


class ChildTooSlow(Exception):
    """A child was ended in ``state``, whose limit was ``limit_s`` seconds."""

    def __init__(self, state: str, limit_s: float) -> None:
        self.state, self.limit_s = state, limit_s
        super().__init__("{} took longer than {:g} s".format(state, limit_s))


def run_in_child(
    work: Callable[[Turn, Report], Any],
    *,
    on_turn: Callable[[str], Optional[float]] = lambda state: None,
    on_report: Callable[..., None] = lambda *values: None,
    stopped: Callable[[], None] = lambda: None,
    limit_s: Optional[float] = None,
    closes: Sequence[int] = (),
    apart: bool = False,
) -> Any:
    """Runs ``work`` in a forked process, which ends with this one, and returns its answer's JSON.

    This process must not have loaded CUDA, which does not survive a fork.

    Args:
        work: Function that the child calls; its answer is a document's class or JSON-like.
        on_turn: Called here before a state of the work begins; returns its limit in seconds, or
            None for no limit.
        on_report: Called here with the work's reports.
        stopped: Called a few times a second; an exception from it ends the work.
        limit_s: The limit before the first state, in seconds; None for no limit.
        closes: Descriptors that the child closes first (locks that only this process holds).
        apart: True to give the child its own process group and to let it survive this process.

    Raises:
        DeviceError: The work's error; "board.no-memory"; "loader.internal", whose traceback is on
            standard error.
        ChildDied, ChildTooSlow
    """
    reading, writing = os.pipe()
    go_reading, go_writing = os.pipe()
    parent = os.getpid()
    # not subprocess: the work is a closure over objects of this process
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(go_writing)
        _run_child(work, writing, go_reading, closes, 0 if apart else parent)
    os.close(writing)
    os.close(go_reading)
    child = _Child(pid, reading, go_writing, on_turn, on_report, limit_s)
    try:
        answer = child.listen(stopped)
    finally:
        os.close(reading)
        os.close(go_writing)
        child.end()
    if answer is None:
        raise ChildDied(child.state, child.status)
    if answer.error is not None:
        raise answer.error.error()
    return answer.result


class _Child:
    """A child process, seen from its parent."""

    def __init__(
        self,
        pid: int,
        reading: int,
        go: int,
        on_turn: Callable[[str], Optional[float]],
        on_report: Callable[..., None],
        limit_s: Optional[float],
    ) -> None:
        self.state = ""
        self.status = 0
        self._pid, self._reading, self._go = pid, reading, go
        self._on_turn, self._on_report = on_turn, on_report
        self._set_limit(limit_s)
        self._ended = False
        self._rest = b""
        self._answer: Optional[_Message] = None

    def listen(self, stopped: Callable[[], None]) -> Optional[_Message]:
        """Follows the child to its end; returns its answer, None without an answer."""
        while not self._ended:
            if select.select([self._reading], [], [], _POLL_S)[0]:
                self._read()
            else:
                found, status = os.waitpid(self._pid, os.WNOHANG)
                if found:
                    self.status, self._ended = status, True
                    # processes that it has started may hold the pipe open
                    while select.select([self._reading], [], [], 0)[0] and self._read():
                        pass
            stopped()
            if time.monotonic() > self._deadline:
                raise ChildTooSlow(self.state, self._limit_s)
        return self._answer

    def end(self) -> None:
        """Ends the child if it still runs."""
        if not self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                self.status = os.waitpid(self._pid, 0)[1]
            self._ended = True

    def _read(self) -> bool:
        """Reads the pipe; returns False at its end, when the child has ended."""
        data = os.read(self._reading, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(read(_Message, json.loads(line.decode("utf-8"))))
        if not data and not self._ended:
            self.status, self._ended = os.waitpid(self._pid, 0)[1], True
        return bool(data)

    def _set_limit(self, limit_s: Optional[float]) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._deadline = time.monotonic() + self._limit_s

    def _take(self, message: _Message) -> None:
        if message.turn is not None:
            self.state = message.turn
            self._set_limit(self._on_turn(self.state))
            with contextlib.suppress(BrokenPipeError):
                os.write(self._go, b".")
        elif message.report is not None:
            self._on_report(*message.report)
        else:
            self._answer = message
            # the work is over; only the process's end is awaited
            self._set_limit(None)


def _run_child(
    work: Callable[[Turn, Report], Any],
    writing: int,
    go: int,
    closes: Sequence[int],
    parent: int,
) -> NoReturn:
    """Runs the work in the child and never returns; skips the parent's cleanup (files, exit
    handlers, tests).

    It ends with the process ``parent``; with 0 it has its own process group instead.
    """
    try:
        for handle in closes:
            os.close(handle)
        # the parent's handlers would raise into the work's calls; ignored signals stay ignored
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        if parent:
            # it works under its parent's lock, so the kernel ends it when the parent dies
            end_with_parent()()
            # the parent died before prctl: the kernel will send no signal
            if os.getppid() != parent:
                os._exit(1)
        else:
            os.setpgid(0, 0)

        def send(message: _Message) -> None:
            data = json.dumps(write(message)).encode("utf-8") + b"\n"
            while data:
                # os.write: the parent's buffered streams were copied by the fork
                data = data[os.write(writing, data) :]

        def turn(state: str) -> None:
            send(_Message(turn=state))
            # the pipe's end: the parent has died
            if not os.read(go, 1):
                os._exit(1)

        try:
            answer = _Message(result=work(turn, lambda *values: send(_Message(report=values))))
        except DeviceError as error:
            answer = _Message(error=Failure.of(error))
        except MemoryError:
            failed = DeviceError("the board ran out of memory", code="board.no-memory")
            answer = _Message(error=Failure.of(failed))
        except Exception as error:
            with contextlib.suppress(OSError):  # a full disk takes no traceback
                traceback.print_exc()
            reason = "{}: {}".format(type(error).__name__, error)
            answer = _Message(error=Failure.of(DeviceError(reason, code="loader.internal")))
        send(answer)
    finally:
        # not sys.exit: exit handlers and buffered files belong to the parent
        os._exit(0)


def end_with_parent() -> Callable[[], None]:
    """Returns a function that makes the kernel kill the calling process when its parent dies.

    The function imports no module, so it may be a ``preexec_fn``.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return lambda: None

    def end() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return end


# --- another start of Python


def child_argv(code: str, *arguments: str) -> List[str]:
    """Returns the command that runs ``code`` with ``arguments`` in ``sys.argv[1:]``.

    It finds the same modules as this process, except in a working folder that is only the empty
    entry of ``sys.path`` (as in ``python -c`` and at a prompt).
    """
    path = [entry for entry in sys.path if entry]
    return [sys.executable, "-I", "-c", _PATH + code, json.dumps(path), *arguments]


# --- a caller that has ended


def read_watched(stdin: BinaryIO, size: int) -> BinaryIO:
    """Reads the command's input; ends this process when stdin ends afterwards.

    The process gets a SIGTERM, so that it cleans up. If an engine does not return within a second,
    the next command removes the remaining files.

    Args:
        stdin: The process's standard input.
        size: Bytes of input; after these the host keeps stdin open until it has the answer.

    Returns:
        The input.

    Raises:
        DeviceError: "transfer.truncated".
    """
    data = stdin.read(size)
    if len(data) < size:
        raise DeviceError(
            "the input ended after {} of {} bytes".format(len(data), size),
            code="transfer.truncated",
            hint="the connection broke; run the command again",
        )
    threading.Thread(
        target=_wait_for_end, args=(stdin.fileno(),), name="edgekit-watch", daemon=True
    ).start()
    return io.BytesIO(data)


def _wait_for_end(descriptor: int) -> None:
    # not through the buffered stream: a thread that holds its lock stops the interpreter's exit
    while os.read(descriptor, 4096):
        pass
    # a signal, not an exception: only the main thread may clean up
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(_EXIT_GONE)
