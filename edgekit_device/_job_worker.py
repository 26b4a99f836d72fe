"""The process that does a job's work, below its supervisor: runs it and says how it ended."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any, Dict

from ._errors import DeviceError, map_os_errors
from ._files import write_durably
from ._job import JOBS, JobCancelled, job_context
from ._jobs import RESULT, Job

__all__ = ["fields_of", "work"]


def work(job: Job, writing: int) -> None:
    """Does the job's work and says through ``writing`` how it ended; never returns.

    Args:
        job: Its request.json is there; its result.json is written whole, or not at all.
        writing: A pipe that takes {"done": true}, an error's fields, or {} when it was cancelled.
    """
    status = 1
    try:
        os.setpgid(0, 0)
        # a cancelled job is told by its folder and has a moment to tidy up; a builder's C++ that
        # does not come back gets a SIGKILL after it
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        answer: Dict[str, Any] = {"done": True}
        try:
            _run(job)
            status = 0
        except JobCancelled:
            answer = {}
        except DeviceError as error:
            if isinstance(error.__cause__, OSError):
                _log_traceback()  # a name of the system's alone does not say whose fault it was
            answer = fields_of(error)
        except MemoryError:
            answer = fields_of(DeviceError("out of memory", code="board.no-memory"))
        except BaseException as error:
            _log_traceback()
            answer = fields_of(
                DeviceError(
                    "the job failed: {}: {}".format(type(error).__name__, error),
                    code="loader.internal",
                    hint="its log has the traceback: report it",
                )
            )
        _tell(writing, json.dumps(answer).encode("utf-8"))
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _run(job: Job) -> None:
    document = json.loads((job.folder / "request.json").read_text(encoding="utf-8"))
    module = JOBS.get(document["kind"])
    if module is None:
        raise DeviceError("no such kind of job", code="job.kind", where=str(document["kind"]))
    opened = job_context(job.root, job.folder, document["request"])
    with opened as context, map_os_errors(str(job.folder)):
        result = importlib.import_module(module).run(context)
        write_durably(job.folder / RESULT, json.dumps(result).encode("utf-8"))


def _tell(writing: int, data: bytes) -> None:
    while data:
        data = data[os.write(writing, data) :]


def _log_traceback() -> None:
    # a full disk takes no traceback, and how the work ended must be told all the same
    with contextlib.suppress(OSError):
        traceback.print_exc()
        sys.stderr.flush()


def fields_of(error: Any) -> Dict[str, str]:
    """An error's "code", "message", "where" and "hint"."""
    fields: Dict[str, str] = error.to_json()["error"]
    return fields
