"""A job is long work that outlives the connection that started it: a folder, ROOT/jobs/<id>/, with
request.json, state.json, events.jsonl, log.txt, blobs.txt, result.json and lock
(docs/board-protocol.md). ``Job`` reads it from outside; the job's work gets a ``JobContext``.

state.json has the last state that a job wrote; the flock on its lock file shows if it still lives:
the kernel always releases it at the job's end. So after a power cut jobs are lost, but none seems
to run.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from edgekit_device.errors import DeviceError, map_os_errors, refuse_full
from edgekit_device.files import is_locked, workspace, write_durably
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    anything,
    choice,
    document,
    dump,
    flag,
    integer,
    is_digest,
    load,
    mapping,
    member,
    nullable,
    number,
    parse_json,
    read,
    record,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.store.partial import BlobWriter
from edgekit_device.store.root import Root, sha256

LOG, EVENTS, BLOBS, CANCEL = "log.txt", "events.jsonl", "blobs.txt", "cancel"

# a builder reports thousands of steps a second; people and connections need only a few
_EVENT_EVERY_S = 0.2
LIVE = ("queued", "running")
REQUEST, STATE, RESULT = "request.json", "state.json", "result.json"

# seconds for which a job that was only prepared counts as queued
STARTS_S = 60.0

_ID = re.compile(r"[0-9a-f]{16}\Z")
_MOST_EVENTS = 1000

_RETAINED = 16  # ended jobs, newest first

_TIME = number(0.0, 1e12)
_PROCESS = nullable(integer(0, 1 << 31))

#: Largest size of a request in bytes.
MAX_REQUEST = 128 << 20
STATES = (*LIVE, "done", "failed", "cancelled", "lost")
_STATE = choice(*STATES)


@document(frozen=True)
class JobRequest:
    """request.json, and the request that starts a job: its kind, and that kind's own document."""

    kind: str = member(text())
    request: Dict[str, object] = member(mapping(anything))


@document(frozen=True)
class StartedJob:
    """The answer of ``job-start``.

    Attributes:
        reused: True if it was done before.
        joined: True if it was started before and still runs.
    """

    job: str = member(text())
    state: str = member(_STATE)
    reused: bool = member(flag, default=False)
    joined: bool = member(flag, default=False)


@document(frozen=True)
class JobState:
    """state.json: the last state that a job wrote. Times are seconds since 1970.

    Attributes:
        name: The job's subject, for people.
        starts_by: Time until which it counts as queued although no process holds its lock.
        pid: Process id of the supervisor.
    """

    job: str = member(text(), default="")
    kind: Optional[str] = member(nullable(text()), default=None)
    name: Optional[str] = member(nullable(text()), default=None)
    state: str = member(_STATE, default="lost")
    queued_at: Optional[float] = member(nullable(_TIME), default=None)
    started_at: Optional[float] = member(nullable(_TIME), default=None)
    ended_at: Optional[float] = member(nullable(_TIME), default=None)
    error: Optional[Failure] = member(nullable(record(Failure)), default=None)
    starts_by: float = member(_TIME, default=0.0)
    pid: Optional[int] = member(_PROCESS, absent=None)


@document(frozen=True)
class JobEvent:
    """A line of events.jsonl: ``done`` of ``total`` (0: unknown) in ``phase``."""

    time: float = member(_TIME)
    phase: str = member(text())
    done: int = member(fields.count)
    total: int = member(fields.count)
    text: str = member(text(most=1 << 18))


@document(frozen=True)
class NumberedEvent(JobEvent):
    """An event as ``job-watch`` answers it: ``n`` counts from 1."""

    n: int = member(fields.count)


@document(frozen=True)
class WatchedEvent(NumberedEvent):
    """An event that a host follows, with the job's state at that time.

    ``n`` is 0 in the phase "connection": the host has not reached the board.
    """

    state: str = member(_STATE)


@document(frozen=True)
class JobRow:
    """A row of ``job-list``: the parts of the state that are for people, and the last event.

    Attributes:
        queued_at: Seconds of Unix time.
        started_at: Seconds of Unix time.
        ended_at: Seconds of Unix time.
        done: Completed steps of the phase.
        total: All steps of the phase; 0 if unknown.
    """

    job: str = member(text())
    kind: Optional[str] = member(nullable(text()))
    name: Optional[str] = member(nullable(text()))
    state: str = member(_STATE)
    queued_at: Optional[float] = member(nullable(_TIME))
    started_at: Optional[float] = member(nullable(_TIME))
    ended_at: Optional[float] = member(nullable(_TIME))
    phase: str = member(text())
    done: int = member(fields.count)
    total: int = member(fields.count)
    error: Optional[Failure] = member(nullable(record(Failure)))


class JobCancelled(DeviceError):
    """The error that the job was cancelled."""

    def __init__(self) -> None:
        super().__init__("the job was cancelled", code="job.cancelled")


class JobContext:
    """A running job; its methods may be called from any thread.

    Attributes:
        root: The board's folder and store.
        folder: The job's own folder, for files that should outlive it.
        work: A folder for temporary files; it is removed when the job ends.
        request: The request, unchanged.
    """

    def __init__(self, root: Root, folder: Path, request: Mapping[str, object], work: Path) -> None:
        self.root = root
        self.folder = folder
        self.work = work
        self.request = request
        self._last: Tuple[str, float] = ("", 0.0)
        self._lock = threading.Lock()

    def log(self, text: str) -> None:
        """Appends a line to the job's log.

        Raises:
            DeviceError: "board.disk-full" and the like.
        """
        self._append(LOG, text.rstrip("\n") + "\n")

    def progress(self, phase: str, done: int, total: int, text: str = "") -> None:
        """Reports the progress: ``done`` of ``total`` (0: unknown) in ``phase``.

        A phase's first and last event are stored, others at most every 0.2 seconds.
        """
        with self._lock:
            now = time.monotonic()
            known, when = self._last
            # events with a text are never dropped: a text has more information than a count
            if phase == known and not text and done != total and now - when < _EVENT_EVERY_S:
                return
            self._last = (phase, now)
            event = JobEvent(round(time.time(), 3), phase, done, total, text)
            self._append(EVENTS, json.dumps(write(event)) + "\n")

    def cancelled(self) -> bool:
        """Returns True if the job was cancelled; the work then has a few seconds to end.

        A file marks the cancellation: a signal's handler would wait for a builder's C++ to return.
        """
        return (self.folder / CANCEL).exists()

    def check_cancelled(self) -> None:
        """Raises JobCancelled once ``cancelled`` is true."""
        if self.cancelled():
            raise JobCancelled

    def blob(self, digest: str) -> bytes:
        """Returns the bytes of a blob in the board's store.

        Raises:
            DeviceError: "blob.missing", "blob.digest-mismatch".
        """
        data = bytes(self.root.store.read(digest))
        if sha256(data) != digest:
            raise DeviceError(
                "the stored bytes do not match their SHA-256",
                code="blob.digest-mismatch",
                where=digest,
                hint="run the same command again to send damaged blobs again",
            )
        return data

    def store(self, data: bytes) -> str:
        """Puts bytes into the board's store and returns their SHA-256.

        The job's blobs.txt lists the blob, so that a collection keeps it.

        Raises:
            DeviceError: "board.disk-full" and the like.
        """
        digest = sha256(data)
        # listed first: a collection between the two keeps the blob
        self._append(BLOBS, digest + "\n")
        with self.root.lock(shared=True):
            # verified: a damaged blob of the same digest is written again
            if self.root.store.missing([digest], verify=True):
                with BlobWriter(self.root) as writer:
                    writer.add(digest, data)
        return digest

    def _append(self, name: str, text: str) -> None:
        # a single write in append mode: lines of several threads and programs never mix
        data = text.encode("utf-8", "backslashreplace")
        with map_os_errors(str(self.folder)):
            handle = os.open(str(self.folder / name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, data)
            finally:
                os.close(handle)


@contextmanager
def job_context(
    root: Root, folder: Path, request: Optional[Mapping[str, object]] = None
) -> Iterator[JobContext]:
    """Yields the context of the job with this folder; reads its request there if None is given."""
    if request is None:
        found = Job(root, folder.name).request()
        request = {} if found is None else found.request
    with workspace(root.folder) as work:
        yield JobContext(root, folder, request, work)


class Job:
    """A job's folder; reading creates no files."""

    def __init__(self, root: Root, name: str) -> None:
        self.root = root
        self.name = name
        self.folder = root.folder / "jobs" / name

    def request(self) -> Optional[JobRequest]:
        """Returns its request; None if the file is missing or damaged."""
        return load(JobRequest, self.folder / REQUEST, MAX_REQUEST)

    def read(self) -> JobState:
        """Returns state.json, with the state corrected by the lock."""
        # the lock first, then the file: a job that ends in between has already written its end
        alive = self.alive()
        found = self._read_state()
        # a job that was only prepared may still start; after a jump of the clock it may not
        may_start = 0.0 <= found.starts_by - time.time() <= STARTS_S
        if found.state in LIVE and not alive and not may_start:
            return self._lost_state(found)
        return found

    def write(self, **changes: Any) -> None:
        """Changes fields of state.json atomically."""
        data = dump(replace(self._read_state(), **changes))
        with map_os_errors(str(self.folder)):
            write_durably(self.folder / STATE, data)

    def describe(self) -> JobRow:
        """Returns the job's row of ``job-list``."""
        state = self.read()
        last = self._last_event()
        return JobRow(
            job=self.name,
            kind=state.kind,
            name=state.name,
            state=state.state,
            queued_at=state.queued_at,
            started_at=state.started_at,
            ended_at=state.ended_at,
            phase="" if last is None else last.phase,
            done=0 if last is None else last.done,
            total=0 if last is None else last.total,
            error=state.error,
        )

    def alive(self) -> bool:
        """Returns True if a process holds the job's lock."""
        return is_locked(self.folder / "lock")

    def events(self, after: int) -> List[NumberedEvent]:
        """Returns complete events with a number above ``after``, oldest first, at most 1,000."""
        try:
            # the last piece is empty, or a line that is still being written
            lines = (self.folder / EVENTS).read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        found = []
        first = max(after, 0)
        for n, line in enumerate(lines[first:][:_MOST_EVENTS], first + 1):
            event = _parse_event(line)
            if event is not None:
                # an event's number is its line number: several processes append to the file
                found.append(NumberedEvent(**vars(event), n=n))
        return found

    def events_size(self) -> int:
        """Returns the bytes of all events so far, which grow with each event."""
        try:
            return (self.folder / EVENTS).stat().st_size
        except FileNotFoundError:
            return 0

    def log(self, start: int, most: int) -> Tuple[bytes, int]:
        """Returns at most ``most`` bytes of the log from byte ``start``, and its whole size."""
        try:
            with (self.folder / LOG).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = min(start, size)
                file.seek(start)
                return file.read(min(most, size - start)), size  # the work may still write
        except FileNotFoundError:
            return b"", 0

    def result(self) -> Dict[str, object]:
        """Returns the result of a job that is done.

        Raises:
            DeviceError: The job's own error, or "job.unfinished", "job.lost", "job.cancelled",
                "board.disk-full".
        """
        state = self.read()
        if state.state == "done":
            with map_os_errors(str(self.folder)):
                return dict(json.loads((self.folder / RESULT).read_bytes()))
        if state.state == "failed" and state.error is not None:
            raise state.error.error()
        if state.state == "lost":
            refuse_full(self.folder)  # a full disk may have prevented any other record
        code, message, hint = {
            "cancelled": ("job.cancelled", "the job was cancelled", "start it again"),
            "lost": (
                "job.lost",
                (
                    "the job ended without a result: the board lost power, or its processes "
                    "were killed"
                ),
                "start it again; `edgekit jobs log` shows its last step",
            ),
        }.get(state.state, ("job.unfinished", "the job is still running", "edgekit jobs attach"))
        raise DeviceError(message, code=code, where=self.name, hint=hint)

    def stored_blobs(self) -> Set[str]:
        """Returns the blobs that the job has put into the store."""
        try:
            names = (self.folder / BLOBS).read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return set()
        return {name for name in names if is_digest(name)}

    def complete(self) -> bool:
        """Returns True if the job is done and all its blobs are still in the store."""
        if self.read().state != "done":
            return False
        return not self.root.store.missing(sorted(self.stored_blobs()), verify=True)

    def _read_state(self) -> JobState:
        return load(JobState, self.folder / STATE) or JobState(self.name)

    def _lost_state(self, found: JobState) -> JobState:
        """Returns the state of a job whose supervisor ended without writing it."""
        try:
            # result.json is written atomically: the work was done when its supervisor was killed
            ended = (self.folder / RESULT).stat().st_mtime
        except OSError:
            return replace(found, state="cancelled" if self.is_cancelled() else "lost")
        return replace(found, state="done", ended_at=round(ended, 3), error=None)

    def is_cancelled(self) -> bool:
        """Returns True if it was cancelled; it may still run."""
        return (self.folder / CANCEL).exists()

    def _last_event(self) -> Optional[JobEvent]:
        try:
            with (self.folder / EVENTS).open("rb") as file:
                # the last event only: a build's file may be long, and ``job-list`` reads all jobs
                file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return None
        # lines[-1] is what follows the last line break
        return _parse_event(lines[-2]) if len(lines) > 1 else None


def _parse_event(line: bytes) -> Optional[JobEvent]:
    """Returns a line's event; None for a line that a full disk or a power cut truncated."""
    try:
        return read(JobEvent, parse_json(line, EVENTS))
    except DeviceError:
        return None


def open_job(root: Root, name: str) -> Job:
    """Returns the job called ``name``.

    Raises:
        DeviceError: "job.unknown".
    """
    job = Job(root, name)
    if not _ID.match(name) or not job.folder.is_dir():
        raise DeviceError(
            "the job does not exist on this board",
            code="job.unknown",
            where=name[:80],
            hint="list the board's jobs with edgekit jobs list",
        )
    return job


def all_jobs(root: Root) -> List[Job]:
    """Returns every job, the newest first."""
    folder = root.folder / "jobs"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    jobs = [Job(root, name) for name in names if _ID.match(name)]
    return sorted(jobs, key=lambda job: (-modified_at(job.folder), job.name))


def modified_at(folder: Path) -> float:
    """Returns the last modification time of a job's state.json; 0.0 if it is missing."""
    try:
        return (folder / STATE).stat().st_mtime
    except OSError:
        return 0.0


def outdated_jobs(root: Root, grace_s: float) -> List[Job]:
    """Returns jobs that ended more than ``grace_s`` seconds ago and are not among the newest."""
    ended = [job for job in all_jobs(root) if not job.alive()]
    horizon = time.time() - grace_s
    return [job for job in ended[_RETAINED:] if modified_at(job.folder) <= horizon]


def remove_outdated(root: Root, grace_s: float = 0.0) -> None:
    """Removes the jobs of ``outdated_jobs``; the caller holds the lock of all jobs."""
    old = outdated_jobs(root, grace_s)
    if old:
        with workspace(root.folder) as work:
            for job in old:
                job.folder.rename(work / job.name)


def needed_blobs(root: Root) -> Set[str]:
    """Returns the blobs that a collection keeps: inputs of running jobs, and blobs that jobs
    stored.
    """
    needed: Set[str] = set()
    for job in all_jobs(root):
        needed |= job.stored_blobs()
        if job.read().state in LIVE:
            request = job.request()
            # kinds have different requests, so any digest in it counts
            needed.update(_find_digests({} if request is None else request.request))
    return needed


def _find_digests(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if is_digest(value):
            yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find_digests(key)
            yield from _find_digests(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_digests(item)
