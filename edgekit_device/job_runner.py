"""Starts and runs jobs: the table of kinds, the command that starts or joins a job, the supervisor
that runs detached from any connection, and its child that does the work.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import BinaryIO, List, NamedTuple, Optional

from edgekit_device.board.identity import (
    LOADER,
    fingerprint,
    loader_digest,
    loader_file,
    unpacked_loader,
)
from edgekit_device.deployment.request import find_running, read_request
from edgekit_device.errors import DeviceError, map_os_errors, refuse_full
from edgekit_device.files import (
    fsync_folder,
    locked,
    open_locked,
    take_lock,
    workspace,
    write_durably,
)
from edgekit_device.jobs.job import (
    CANCEL,
    LIVE,
    LOG,
    MAX_REQUEST,
    REQUEST,
    RESULT,
    STARTS_S,
    STATE,
    Job,
    JobRequest,
    JobState,
    StartedJob,
    all_jobs,
    job_context,
    open_job,
    remove_outdated,
)
from edgekit_device.processes import ChildDied, Report, run_in_child
from edgekit_device.protocol.codec import dump, read, read_json, write
from edgekit_device.protocol.failure import Failure
from edgekit_device.store.root import Root

_POLL_S = 0.2
_GRACE_S = 10.0

# reserved with the job and freed before its last state is written, so that a job can report a full
# disk
_RESERVE = 64 * 1024
_RESERVED = "reserve"

JOBS = {
    "build": "edgekit_device.build.job",
    "deploy": "edgekit_device.deployment.job",
    "plugin": "edgekit_device.build.plugin_source",
    "selftest": "edgekit_device.selftest",
}
"""Kinds of jobs by the module whose ``run(context: JobContext)`` does the work; it returns a
document's class.
"""

CONCURRENT_JOBS = ("deploy",)
"""Kinds that do not wait for the board's turn: they run beside a build."""


def do_job_start(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> StartedJob:
    """Starts a job, joins the same running job, or answers that it is already done."""
    document = read_json(stdin, MAX_REQUEST)
    request = read(JobRequest, document, "stdin", code="protocol.invalid")
    return start_job(root, request, held_back=arguments.no_run)


def start_job(root: Root, request: JobRequest, *, held_back: bool = False) -> StartedJob:
    """Starts a job like ``job-start``; with ``held_back`` only prepares it for ``job-run``."""
    if request.kind not in JOBS:
        known = ", ".join(sorted(JOBS))
        raise DeviceError(
            "unknown kind of job (known: {})".format(known),
            code="job.kind",
            where=request.kind[:80],
        )
    # the id is a digest of all that decides the result: equal work is found again, and another
    # loader or a changed board makes another job
    facts = [request.kind, request.request, loader_digest(), fingerprint(root.folder)]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    job = Job(root, hashlib.sha256(text.encode("utf-8")).hexdigest()[:16])
    with locked(root.folder / "jobs" / "lock"):
        if request.kind == "deploy":
            job = find_running(root, read_request(request.request)) or job
        state = job.read().state
        if state in LIVE:
            return StartedJob(job.name, state, joined=True)
        # a job whose blobs were collected or damaged runs again
        if job.complete():
            os.utime(job.folder / STATE)  # restarts its grace time before collection
            return StartedJob(job.name, "done", reused=True)
        _prepare(job, request, held_back)
        if not held_back:
            _launch(job)
    return StartedJob(job.name, job.read().state)


def do_job_run(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> bytes:
    """Runs a prepared job: in this process with --foreground, else detached from the caller."""
    job = open_job(root, arguments.job)
    if not arguments.foreground:
        # leaves the caller's session; the caller continues when this process ends
        os.setsid()
        # a child is no session leader, so it cannot get a controlling terminal
        if os.fork():
            os._exit(0)
    _redirect(job.folder / LOG)
    _supervise(job, arguments.ready)
    return b""


def _prepare(job: Job, request: JobRequest, held_back: bool) -> None:
    """Makes the job's folder anew, atomically."""
    now = time.time()
    state = JobState(
        job.name,
        request.kind,
        str(request.request.get("name") or request.request.get("app") or "")[:64],
        "queued",
        queued_at=round(now, 3),
        # until this time it counts as queued although no process holds its lock yet
        starts_by=now + STARTS_S if held_back else 0.0,
    )
    with workspace(job.root.folder) as work, map_os_errors(str(job.folder)):
        made = work / "job"
        made.mkdir()
        # the request unchanged, in the order of its fields
        write_durably(made / REQUEST, json.dumps(write(request)).encode("utf-8"))
        write_durably(made / STATE, dump(state))
        (made / LOG).touch()
        (made / "lock").touch()
        (made / _RESERVED).write_bytes(bytes(_RESERVE))
        loader = loader_file()
        if loader is not None:
            # newer loaders replace old loaders in bin; a job keeps its own
            try:
                os.link(str(loader), str(made / LOADER))
            except OSError:
                shutil.copyfile(str(loader), str(made / LOADER))
        if job.folder.exists():
            job.folder.rename(work / "old")
        made.rename(job.folder)
        fsync_folder(job.folder.parent)


def _launch(job: Job) -> None:
    loader = job.folder / LOADER
    program = ["-m", "edgekit_device"]
    if loader.exists():
        program = [str(unpacked_loader() or loader)]
    reading, writing = os.pipe()
    argv = [sys.executable, *program, "job-run", "--root", str(job.root.folder)]
    argv += ["--job", job.name, "--ready", str(writing)]
    try:
        with (job.folder / LOG).open("ab") as log:
            starter = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[writing],
                check=False,
            )
    finally:
        os.close(writing)
    with open(reading, "rb") as ready:
        ready.read()  # ends when the job waits, runs or has ended
    state = job.read()
    if starter.returncode or (state.state == "lost" and not state.started_at):
        last = job.log(0, 1 << 20)[0].decode("utf-8", "replace").strip().splitlines()
        if not last:
            refuse_full(job.folder)
        raise DeviceError(
            "the job did not start: {}".format(last[-1] if last else "it printed nothing"),
            code="job.not-started",
            where=job.name,
        )


class _End(NamedTuple):
    """A job's end: its last state, and the error if it failed."""

    state: str
    error: Optional[Failure] = None


def _redirect(log: Path) -> None:
    """Replaces the caller's input and output: input is empty, output is written to ``log``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    target = os.open(str(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, descriptor in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, descriptor)
    os.close(nothing)
    os.close(target)


def _supervise(job: Job, ready: Optional[int] = None) -> None:
    """Runs the job and records its end.

    The supervisor holds the job's lock, waits for its turn (a board runs one job at a time),
    runs the work in a child with its own process group and records its end. The work may crash,
    exhaust the memory or hang in a builder: the supervisor survives to report it and to end it.

    Args:
        job: The job; its request.json and state.json exist.
        ready: A descriptor that is closed once the job holds its lock and waits or runs.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # a command that checks if the job lives holds the lock for a moment
    lock = open_locked(job.folder / "lock", 2.0)
    if lock is None:
        return  # another process runs it already
    # a job must not keep the caller's folder or its disk in use
    os.chdir("/")
    try:
        try:
            job.write(state="queued", pid=os.getpid(), starts_by=0)
        finally:
            if ready is not None:
                os.close(ready)
        end = _wait_for_turn(job)
    except SystemExit:  # main() turns SIGTERM into it
        end = _failed_end("the board stopped the job, as it does on shutdown", "job.terminated")
    except DeviceError as error:
        end = _End("failed", Failure.of(error))
    except OSError as error:
        end = _failed_end("the job could not run: {}".format(error), "board.io")
    with contextlib.suppress(OSError):
        (job.folder / _RESERVED).unlink()
    job.write(ended_at=round(time.time(), 3), state=end.state, error=end.error)
    # before the collection: a job that holds its lock counts as alive
    os.close(lock)
    # if this fails, the next job that ends does it
    with contextlib.suppress(DeviceError, OSError), locked(job.root.folder / "jobs" / "lock"):
        remove_outdated(job.root)


def _wait_for_turn(job: Job) -> _End:
    if job.read().kind in CONCURRENT_JOBS:
        job.write(state="running", started_at=round(time.time(), 3))
        return _run_child(job)
    handle = os.open(
        str(job.root.folder / "jobs" / "turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        reported = False
        while not _has_turn(job, handle):
            if job.is_cancelled():
                return _End("cancelled")
            if not reported:
                with job_context(job.root, job.folder, {}) as context:
                    context.progress("queue", 0, 0, "another job runs on this board")
                reported = True
            time.sleep(_POLL_S)
        job.write(state="running", started_at=round(time.time(), 3))
        return _run_child(job)
    finally:
        os.close(handle)


def _has_turn(job: Job, handle: int) -> bool:
    """Returns True if the board is free and no other job has waited longer."""
    place = (job.read().queued_at or 0.0, job.name)
    for other in all_jobs(job.root):
        state = other.read()
        if other.name == job.name or state.kind in CONCURRENT_JOBS:
            continue
        # names decide between equal times, so that two waiting jobs never both give way
        if state.state == "queued" and (state.queued_at or 0.0, other.name) < place:
            return False
    return take_lock(handle)


def _run_child(job: Job) -> _End:
    """Runs the work in its own process group; returns its end."""
    # before the fork: the child would write the buffered text again
    sys.stdout.flush()
    sys.stderr.flush()
    group: List[int] = []
    deadline: List[float] = []

    def stopped() -> None:
        if group and job.is_cancelled():
            if not deadline:
                # first SIGTERM: the processes that the work has started may clean up
                deadline.append(time.monotonic() + _read_grace(job))
                _signal_group(group[0], signal.SIGTERM)
            elif time.monotonic() > deadline[0]:
                _signal_group(group[0], signal.SIGKILL)

    try:
        run_in_child(
            lambda turn, report: _do_work(job, report),
            on_report=group.append,
            stopped=stopped,
            apart=True,
        )
        return _End("done")
    except ChildDied as error:
        hint = "`edgekit jobs log` shows its last step"
        if error.cause == "SIGKILL":
            hint = "usually the board ran out of memory: check `dmesg` there; " + hint
        end = _failed_end("the work was stopped by {}".format(error.cause), "job.crashed", hint)
    except DeviceError as error:
        end = _End("failed", Failure.of(error))
    finally:
        for pid in group:  # the processes that the work has started
            _signal_group(pid, signal.SIGKILL)
    return _End("cancelled") if job.is_cancelled() else end


def _read_grace(job: Job) -> float:
    try:
        return float((job.folder / CANCEL).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _GRACE_S


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _failed_end(message: str, code: str, hint: str = "") -> _End:
    return _End("failed", Failure(code, message, "", hint))


def _do_work(job: Job, report: Report) -> None:
    """Does the work; writes result.json atomically."""
    # a cancelled job sees a file in its folder and has a moment to clean up; a builder's C++ that
    # does not return then gets a SIGKILL
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with contextlib.suppress(BrokenPipeError):  # its supervisor has ended
            report(os.getpid())
        request = job.request()
        module = None if request is None else JOBS.get(request.kind)
        if request is None or module is None:
            raise DeviceError("unknown kind of job", code="job.kind", where=job.name)
        opened = job_context(job.root, job.folder, request.request)
        with opened as context, map_os_errors(str(job.folder)):
            result = write(importlib.import_module(module).run(context))
            write_durably(job.folder / RESULT, json.dumps(result).encode("utf-8"))
    except DeviceError as error:
        if isinstance(error.__cause__, OSError):
            # an error's name alone does not show the cause, so the traceback is logged if the disk
            # takes it
            with contextlib.suppress(OSError):
                traceback.print_exc()
        raise
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
