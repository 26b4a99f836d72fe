"""Each attempt in a process of its own: a crash of the builder is a failed attempt, not the end.

The child also gives all of its memory back, which on a board is the GPU's too, and it can be ended
in the middle of a call that knows no way to stop (no IProgressMonitor before 10.0).
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

from ._errors import DeviceError
from ._job import JobCancelled, JobContext

__all__ = ["CRASHED", "Tell", "isolated"]

#: Code of an attempt whose process died.
CRASHED = "build.crashed"
#: Told of progress: phase, done, total, text.
Tell = Callable[[str, int, int, str], None]

_POLL_S = 0.2
# a builder that can stop does so at its next step; then the process is ended
_GRACE_S = 5.0


def isolated(context: JobContext, work: Callable[[Tell], Dict[str, Any]]) -> Dict[str, Any]:
    """Runs ``work`` in a forked process and returns its JSON-like answer.

    Raises:
        DeviceError: What ``work`` raised, or "build.crashed" with the signal.
        JobCancelled: The job was cancelled; the process has ended.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(writing, context, work)
    os.close(writing)
    ended = False
    try:
        answer = _listen(reading, pid, context)
        status = _wait(pid)
        ended = True
    finally:
        os.close(reading)
        if not ended:
            _kill(pid)
    if context.cancelled():
        raise JobCancelled
    if answer is None:
        raise DeviceError(
            "the builder's process died: {}".format(_cause(status)),
            code=CRASHED,
            hint="the job's log ends with what it did last; `dmesg` tells of memory that ran out",
        )
    if "error" in answer:
        raise DeviceError(**answer["error"])
    result: Dict[str, Any] = answer["result"]
    return result


def _child(writing: int, context: JobContext, work: Callable[[Tell], Dict[str, Any]]) -> None:
    """Never returns; nothing of the parent (files, exit handlers, tests) is cleaned up here."""
    try:
        # the parent's handlers would raise into the builder's calls
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

        def tell(phase: str, done: int, total: int, text: str) -> None:
            _send(writing, {"progress": [phase, done, total, text]})

        try:
            answer: Dict[str, Any] = {"result": work(tell)}
        except DeviceError as error:
            answer = error.to_json()
        except MemoryError:
            answer = DeviceError("the board's memory ran out", code="build.no-memory").to_json()
        except Exception as error:
            context.log(traceback.format_exc())
            text = "{}: {}".format(type(error).__name__, error)
            answer = DeviceError(text, code="build.internal").to_json()
        _send(writing, answer)
    finally:
        os._exit(0)


def _send(writing: int, message: Dict[str, Any]) -> None:
    data = json.dumps(message).encode("utf-8") + b"\n"
    while data:
        data = data[os.write(writing, data) :]


def _listen(reading: int, pid: int, context: JobContext) -> Optional[Dict[str, Any]]:
    buffer, answer = b"", None
    deadline: Optional[float] = None
    while True:
        ready = select.select([reading], [], [], _POLL_S)[0]
        if ready:
            data = os.read(reading, 1 << 16)
            if not data:
                return answer
            lines: List[bytes] = (buffer + data).split(b"\n")
            buffer = lines.pop()
            for line in lines:
                message = json.loads(line.decode("utf-8"))
                if "progress" in message:
                    context.progress(*message["progress"])
                else:
                    answer = message
        if context.cancelled():
            deadline = time.monotonic() + _GRACE_S if deadline is None else deadline
            if time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)


def _wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return "exit status {}".format(os.WEXITSTATUS(status))
