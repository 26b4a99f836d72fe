"""Commands about existing jobs: list, watch, log, cancel, result and remove."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import BinaryIO, Dict, List, Optional, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import fsync_folder, locked, workspace
from edgekit_device.jobs.job import (
    CANCEL,
    LIVE,
    STATES,
    Job,
    JobRow,
    NumberedEvent,
    all_jobs,
    open_job,
)
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    member,
    nullable,
    record,
    records,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.store.root import Root

_POLL_S = 0.1
_CANCEL_MORE_S = 5.0


@document(frozen=True)
class JobList:
    """The answer of ``job-list``, the newest first."""

    jobs: Tuple[JobRow, ...] = member(records(JobRow))


@document(frozen=True)
class JobNews:
    """The answer of ``job-watch``.

    Attributes:
        next: Number of the last known event.
        ended: True if no more events follow.
    """

    job: str = member(text())
    state: str = member(choice(*STATES))
    events: Tuple[NumberedEvent, ...] = member(records(NumberedEvent))
    next: int = member(fields.count)
    ended: bool = member(flag)
    error: Optional[Failure] = member(nullable(record(Failure)))


@document(frozen=True)
class CancelledJob:
    """The answer of ``job-cancel``: the job's state afterwards."""

    job: str = member(text())
    state: str = member(choice(*STATES))


@document(frozen=True)
class RemovedJobs:
    """The answer of ``job-remove``."""

    removed: Tuple[str, ...] = member(array(text()))


def do_job_list(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> JobList:
    """Lists jobs, the newest first."""
    return JobList(tuple(job.describe() for job in all_jobs(root)))


def do_job_watch(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> JobNews:
    """Answers the events after a number: waits for news, then up to ``--gather-s`` for more.

    An answer has several events, so that not each costs a round trip.
    """
    job = open_job(root, arguments.job)
    deadline = time.monotonic() + arguments.wait_s
    before, size, is_news = job.read().state, -1, False
    events: List[NumberedEvent] = []
    while True:
        # the state first: then the events of an ended job are complete
        state = job.read()
        now = job.events_size()
        # events are parsed only if the file has grown
        if now != size:
            events, size = job.events(arguments.after), now
        if not is_news and (events or state.state != before):
            is_news = True
            # counted from the first news, so that a busy job's events are not held back
            deadline = min(deadline, time.monotonic() + arguments.gather_s)
        if state.state not in LIVE or time.monotonic() >= deadline:
            last = events[-1].n if events else arguments.after
            # an answer has at most 1,000 events: an ended job may have more
            ended = state.state not in LIVE and not job.events(last)
            return JobNews(job.name, state.state, tuple(events), last, ended, state.error)
        time.sleep(_POLL_S)


@document(frozen=True)
class LogHead:
    """The line before a part of a job's log.

    Attributes:
        log: The job's id.
        bytes: Number of bytes of the log that follow.
        size: Size of the whole log in bytes.
        state: The job's state.
    """

    log: str = member(text())
    bytes: int = member(fields.count)
    size: int = member(fields.count)
    state: str = member(text())


def do_job_log(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> bytes:
    """Answers a part of the log: a line of JSON about the part, then its bytes."""
    job = open_job(root, arguments.job)
    data, size = job.log(getattr(arguments, "from"), arguments.most)
    head = LogHead(job.name, len(data), size, job.read().state)
    return (json.dumps(write(head)) + "\n").encode("utf-8") + data


def do_job_cancel(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> CancelledJob:
    """Cancels a job: requests its end, then kills its processes; answers when it has ended."""
    job = open_job(root, arguments.job)
    if job.read().state in LIVE:
        with map_os_errors(str(job.folder)):
            # need not be durable: a power cut also ends the job
            (job.folder / CANCEL).write_text(str(arguments.grace_s), encoding="ascii")
        if not _wait_for_end(job, arguments.grace_s + _CANCEL_MORE_S) and not _kill(job):
            raise DeviceError(
                "the job does not stop",
                code="job.stuck",
                where=job.name,
                hint="its processes cannot be stopped from here: check `ps` on the board",
            )
    return CancelledJob(job.name, job.read().state)


def do_job_result(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, object]:
    """Answers a job's result, or fails with the job's error."""
    return open_job(root, arguments.job).result()


def do_job_remove(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> RemovedJobs:
    """Removes a job that has ended; the next collection removes its blobs."""
    job = open_job(root, arguments.job)
    with locked(root.folder / "jobs" / "lock"), workspace(root.folder) as work:
        # under the lock of all jobs: it cannot be started again meanwhile
        if job.read().state in LIVE:
            raise DeviceError(
                "the job is still running",
                code="job.running",
                where=job.name,
                hint="cancel it first: edgekit jobs cancel",
            )
        with map_os_errors(str(job.folder)):
            # renamed first: a reader never sees half a job
            job.folder.rename(work / job.name)
            fsync_folder(job.folder.parent)
    return RemovedJobs((job.name,))


def _wait_for_end(job: Job, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while job.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _kill(job: Job) -> bool:
    """Kills the processes of a job whose supervisor has ended."""
    for pid in _processes(job):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return _wait_for_end(job, _CANCEL_MORE_S)


def _processes(job: Job) -> List[int]:
    """Returns the job's own processes, by their command line: a process id may have been reused."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            words = path.read_bytes().split(b"\0")
            if b"job-run" in words and job.name.encode("ascii") in words:
                found.append(int(path.parent.name))
    return found
