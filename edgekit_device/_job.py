"""What a job is given: its request, the blob store, a log, progress, and whether to stop.

A job is long work that outlives the connection that asked for it. Its folder
ROOT/jobs/<id>/ holds request.json, state.json, events.jsonl, log.txt, blobs.txt, result.json and
lock; whether it lives is told by the flock on that lock alone (docs/architecture.md).
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from ._errors import DeviceError, map_os_errors
from ._files import workspace
from ._root import Root
from ._store import sha256

__all__ = [
    "BESIDE",
    "BLOBS",
    "CANCEL",
    "EVENTS",
    "JOBS",
    "LOG",
    "JobCancelled",
    "JobContext",
    "job_context",
]

JOBS = {
    "build": "edgekit_device._build",
    "deploy": "edgekit_device._deploy",
    "selftest": "edgekit_device._board_selftest",
}
"""Kinds of jobs by the module whose ``run(context: JobContext) -> dict`` does the work."""

BESIDE = ("deploy",)
"""Kinds that do not wait for the board's turn: they run beside a build."""

LOG, EVENTS, BLOBS, CANCEL = "log.txt", "events.jsonl", "blobs.txt", "cancel"

# a builder reports thousands of steps a second; people and links need a few
_EVENT_EVERY_S = 0.2


class JobCancelled(DeviceError):
    """Somebody cancelled the job."""

    def __init__(self) -> None:
        super().__init__("the job was cancelled", code="job.cancelled")


class JobContext:
    """One running job; its methods may be called from any thread.

    Attributes:
        root: The board's folder and store.
        folder: The job's own folder, for files that should outlive it.
        work: A folder that is gone when the job ends, for files that should not.
        request: The request, as it came.
    """

    def __init__(self, root: Root, folder: Path, request: Mapping[str, Any], work: Path) -> None:
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
        """Says how far the work is: ``done`` of ``total`` (0: unknown) in ``phase``.

        A phase's first and last event are kept, of those between at most one in 0.2 seconds.
        """
        with self._lock:
            now = time.monotonic()
            known, when = self._last
            if phase == known and not text and done != total and now - when < _EVENT_EVERY_S:
                return
            self._last = (phase, now)
            event = {"time": round(time.time(), 3), "phase": phase, "done": done, "total": total}
            event["text"] = text
            self._append(EVENTS, json.dumps(event) + "\n")

    def cancelled(self) -> bool:
        """Whether somebody wants the job to stop; the work has a few seconds from then on.

        It is a file that says so: a signal's handler would wait for a builder's C++ to return.
        """
        return (self.folder / CANCEL).exists()

    def check_cancelled(self) -> None:
        """Raises JobCancelled once ``cancelled`` is true."""
        if self.cancelled():
            raise JobCancelled

    def blob(self, digest: str) -> bytes:
        """The bytes of a blob of the board's store.

        Raises:
            DeviceError: "blob.missing", "blob.digest-mismatch".
        """
        data = bytes(self.root.store.read(digest))
        if sha256(data) != digest:
            raise DeviceError(
                "the stored bytes have another SHA-256",
                code="blob.digest-mismatch",
                where=digest,
                hint="run the same command again: what is damaged is sent again",
            )
        return data

    def store(self, data: bytes) -> str:
        """Puts bytes into the board's store and returns their SHA-256.

        The job's blobs.txt names them, so that a collection leaves them alone.

        Raises:
            DeviceError: "board.disk-full" and the like.
        """
        digest = sha256(data)
        self._append(BLOBS, digest + "\n")
        with self.root.lock(shared=True):
            if not self.root.store.missing([digest]):
                return digest
            self.root.store.receive(digest, len(data), io.BytesIO(data), self.work)
        return digest

    def _append(self, name: str, text: str) -> None:
        # one write in append mode: lines of several threads and programs never mix
        data = text.encode("utf-8", "backslashreplace")
        with map_os_errors(str(self.folder)):
            handle = os.open(str(self.folder / name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, data)
            finally:
                os.close(handle)


@contextmanager
def job_context(
    root: Root, folder: Path, request: Optional[Mapping[str, Any]] = None
) -> Iterator[JobContext]:
    """A context for the job whose folder is ``folder``; ``request`` is read there when None."""
    if request is None:
        found: Dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        request = found["request"]
    with workspace(root.folder) as work:
        yield JobContext(root, folder, request, work)
