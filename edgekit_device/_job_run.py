"""The process that runs a job, away from any connection: a supervisor and the worker below it.

The supervisor holds the job's lock, waits for its turn (one job at a time on a board), runs the
work in a child of a process group of its own and writes how that ended. The work may crash,
eat the memory or hang in a builder: there is always somebody left to say so and to end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ._errors import DeviceError
from ._job import BESIDE, CANCEL, job_context
from ._job_worker import fields_of, work
from ._jobs import Job, all_jobs

__all__ = ["detach", "redirect", "supervise"]

_POLL_S = 0.2
_GRACE_S = 10.0
# freed before the last state is written, so that a job which filled the disk can say so
_RESERVE = 64 * 1024


def detach() -> None:
    """Leaves the caller's session for good; the caller goes on when this process's parent ends."""
    os.setsid()
    if os.fork():
        os._exit(0)
    # not a session's leader any more: no terminal can become this process's own


def redirect(log: Path) -> None:
    """Lets go of the caller's input and output: input is empty, output goes to ``log``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    target = os.open(str(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, descriptor in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, descriptor)
    os.close(nothing)
    os.close(target)


def supervise(job: Job, ready: Optional[int] = None) -> None:
    """Runs the job to its end, whatever that is.

    Args:
        job: Its request.json and state.json are there.
        ready: A descriptor that is closed once the job holds its lock and waits or runs.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lock = _lock(job.folder / "lock")
    if lock is None:
        return  # somebody else runs it already
    os.chdir("/")
    (job.folder / "reserve").write_bytes(b"\0" * _RESERVE)
    job.write(state="queued", pid=os.getpid(), starts_by=0)
    if ready is not None:
        os.close(ready)
    try:
        end = _in_turn(job)
    except SystemExit:  # main() turns SIGTERM into it
        end = _failed("the board ended the job, as it does when it shuts down", "job.terminated")
    except DeviceError as error:
        end = {"state": "failed", "error": fields_of(error)}
    except OSError as error:
        end = _failed("the job could not run: {}".format(error), "board.io")
    with contextlib.suppress(OSError):
        (job.folder / "reserve").unlink()
    job.write(ended_at=round(time.time(), 3), **end)
    os.close(lock)


def _in_turn(job: Job) -> Dict[str, Any]:
    if job.read().get("kind") in BESIDE:
        job.write(state="running", started_at=round(time.time(), 3))
        return _work(job)
    handle = os.open(
        str(job.root.folder / "jobs" / "turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        told = False
        while not _has_turn(job, handle):
            if (job.folder / CANCEL).exists():
                return {"state": "cancelled"}
            if not told:
                with job_context(job.root, job.folder, {}) as context:
                    context.progress("queue", 0, 0, "another job runs on this board")
                told = True
            time.sleep(_POLL_S)
        job.write(state="running", started_at=round(time.time(), 3))
        return _work(job)
    finally:
        os.close(handle)


def _has_turn(job: Job, handle: int) -> bool:
    """Whether the board is free and nobody has waited longer."""
    own = (job.read().get("queued_at") or 0.0, job.name)
    for other in all_jobs(job.root):
        state = other.read() if other.name != job.name else {}
        if state.get("kind") in BESIDE:
            continue
        if state.get("state") == "queued" and (state.get("queued_at") or 0.0, other.name) < own:
            return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _work(job: Job) -> Dict[str, Any]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        work(job, writing)
    os.close(writing)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # the child does it too: whoever comes first
    try:
        job.write(group=pid)
        told, status = _listen(job, reading, pid)
    finally:
        os.close(reading)
        _end_group(pid)  # what the work has started goes with it
    return _outcome(job, told, status)


def _listen(job: Job, reading: int, pid: int) -> Tuple[bytes, int]:
    """Waits for the work's last word and its end; ends its group when somebody cancels it."""
    told: List[bytes] = []
    deadline = None
    while True:
        if select.select([reading], [], [], _POLL_S)[0]:
            chunk = os.read(reading, 65536)
            told.append(chunk)
            if not chunk:
                # its descriptor closes when it ends
                return b"".join(told), os.waitpid(pid, 0)[1]
        else:
            # a process that it left behind may hold the descriptor
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return b"".join(told), status
        if deadline is None and (job.folder / CANCEL).exists():
            deadline = time.monotonic() + _grace(job)
            _signal_group(pid, signal.SIGTERM)
        if deadline is not None and time.monotonic() > deadline:
            _end_group(pid)


def _outcome(job: Job, told: bytes, status: int) -> Dict[str, Any]:
    try:
        answer = json.loads(told.decode("utf-8"))
    except ValueError:
        answer = None
    if answer == {"done": True}:
        return {"state": "done", "error": None}
    if (job.folder / CANCEL).exists():
        return {"state": "cancelled", "error": None}
    if isinstance(answer, dict):
        return {"state": "failed", "error": answer}
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        hint = "`edgekit jobs log` shows what it did last"
        if name == "SIGKILL":
            hint = "most often the board ran out of memory: see `dmesg` there; " + hint
        return _failed("the work was ended by {}".format(name), "job.crashed", hint)
    return _failed("the work ended without a word", "job.crashed", "see `edgekit jobs log`")


def _lock(path: Path) -> Optional[int]:
    handle = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + 2.0
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            # somebody who only looks whether it lives holds it for a moment
            if time.monotonic() > until:
                os.close(handle)
                return None
            time.sleep(0.01)


def _grace(job: Job) -> float:
    try:
        return float((job.folder / CANCEL).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _GRACE_S


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end_group(pid: int) -> None:
    _signal_group(pid, signal.SIGKILL)


def _failed(message: str, code: str, hint: str = "") -> Dict[str, Any]:
    return {"state": "failed", "error": fields_of(DeviceError(message, code=code, hint=hint))}
