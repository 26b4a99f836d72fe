"""Runs the work of a deployment in a process of its own, with a time limit for each state.

An engine that crashes its process, eats the memory or hangs in a driver is a deployment that
failed, and the parent is left to take it back. The child waits for its turn before each state, so
that the parent has written the state down before its work begins.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence

from edgekit_device.errors import DeviceError
from edgekit_device.processes import cause_of_death, send_line

StateTurn = Callable[[str], None]
"""Called by the work with the state that it is about to begin; returns when it may."""
OnProgress = Callable[[str, int, int, str], None]
"""Called with progress: phase, done, total, text."""

_CHILD_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1  # prctl(2)


def in_child(
    work: Callable[[StateTurn, OnProgress], Dict[str, Any]],
    on_turn: Callable[[str], Optional[float]],
    on_progress: OnProgress,
    stopped: Callable[[], None],
    closes: Sequence[int] = (),
) -> Dict[str, Any]:
    """Runs ``work`` in a forked process and returns its JSON-like answer.

    Args:
        work: What to do there.
        on_turn: Called here before a state of the work begins; returns its limit in seconds, or
            None for no limit.
        on_progress: Called here with the work's progress.
        stopped: Called a few times a second; what it raises ends the work.
        closes: Descriptors that the child closes first (locks that only this process holds).

    Raises:
        DeviceError: What the work raised; "deploy.crashed", "deploy.timeout".
    """
    reading, writing = os.pipe()
    go_reading, go_writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(go_writing)
        _child(work, writing, go_reading, closes, parent)
    os.close(writing)
    os.close(go_reading)
    listener = _Listener(pid, reading, go_writing, on_turn, on_progress, stopped)
    try:
        answer = listener.listen()
    finally:
        os.close(reading)
        os.close(go_writing)
        listener.end()
    if answer is None:
        raise DeviceError(
            "the process that was {} died: {}".format(
                listener.state, cause_of_death(listener.status)
            ),
            code="deploy.crashed",
            hint="`dmesg` on the board tells of memory that ran out; the job's log ends with what "
            "it did last",
        )
    if "error" in answer:
        raise DeviceError(**answer["error"])
    result: Dict[str, Any] = answer["result"]
    return result


class _Listener:
    def __init__(
        self,
        pid: int,
        reading: int,
        go: int,
        on_turn: Callable[[str], Optional[float]],
        on_progress: OnProgress,
        stopped: Callable[[], None],
    ) -> None:
        self.state = "starting"
        self.status = 0
        self._pid, self._reading, self._go = pid, reading, go
        self._on_turn, self._on_progress, self._stopped = on_turn, on_progress, stopped
        self._deadline: Optional[float] = None
        self._limit = 0.0
        self._ended = False
        self._answer: Optional[Dict[str, Any]] = None

    def listen(self) -> Optional[Dict[str, Any]]:
        """Follows the child to its end; returns its answer, None where it gave none."""
        buffer = b""
        while not self._ended:
            if select.select([self._reading], [], [], _CHILD_POLL_S)[0]:
                data = os.read(self._reading, 1 << 16)
                if not data:
                    self.status = os.waitpid(self._pid, 0)[1]
                    self._ended = True
                lines: List[bytes] = (buffer + data).split(b"\n")
                buffer = lines.pop()
                for line in lines:
                    self._take(json.loads(line.decode("utf-8")))
            elif self._answer is not None:
                self._reap()  # what it has started may hold the pipe
            self._stopped()
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise DeviceError(
                    "{} takes longer than {:g} s".format(self.state, self._limit),
                    code="deploy.timeout",
                    hint="give it more with deploy.health.timeouts, if it does not hang",
                )
        return self._answer

    def end(self) -> None:
        """Ends the child, if it has not."""
        if not self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                self.status = os.waitpid(self._pid, 0)[1]
            self._ended = True

    def _reap(self) -> None:
        found, status = os.waitpid(self._pid, os.WNOHANG)
        if found:
            self.status, self._ended = status, True

    def _take(self, message: Dict[str, Any]) -> None:
        if "turn" in message:
            self.state = str(message["turn"])
            limit = self._on_turn(self.state)
            self._limit = limit or 0.0
            self._deadline = None if limit is None else time.monotonic() + limit
            with contextlib.suppress(BrokenPipeError):
                os.write(self._go, b".")
        elif "progress" in message:
            self._on_progress(*message["progress"])
        else:
            self._answer = message
            self._deadline = None


def _child(
    work: Callable[[StateTurn, OnProgress], Dict[str, Any]],
    writing: int,
    go: int,
    closes: Sequence[int],
    parent: int,
) -> None:
    """Never returns; nothing of the parent (files, exit handlers, tests) is cleaned up here."""
    try:
        for handle in closes:
            os.close(handle)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _die_with(parent)

        def turn(state: str) -> None:
            send_line(writing, {"turn": state})
            if not os.read(go, 1):
                os._exit(1)

        def on_progress(phase: str, done: int, total: int, text: str) -> None:
            send_line(writing, {"progress": [phase, done, total, text]})

        try:
            answer: Dict[str, Any] = {"result": work(turn, on_progress)}
        except DeviceError as error:
            answer = error.to_json()
        except MemoryError:
            answer = DeviceError("the board's memory ran out", code="board.no-memory").to_json()
        except Exception as error:
            traceback.print_exc()
            text = "{}: {}".format(type(error).__name__, error)
            answer = DeviceError(text, code="loader.internal").to_json()
        send_line(writing, answer)
    finally:
        os._exit(0)


def _die_with(parent: int) -> None:
    """Ends this process when the parent dies, however that comes: it works under its lock."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
