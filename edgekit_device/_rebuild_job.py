"""The job that builds a release's engines on its own board, and how often it may be cut off.

    releases/<id>/rebuilt/<fingerprint>/tries.json   {"job", "tries"}

A build that takes the board's power or memory with it would do so at each load. So a try is counted
before its work begins; one that ended by itself, was ended by somebody, or met a full disk does not
count. After three the release is refused (``_retested`` keeps that) until it is deployed again.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from pathlib import Path
from typing import Any, Dict

from ._errors import DeviceError, map_os_errors
from ._files import write_durably
from ._job_start import do_job_start
from ._jobs import LIVE, Job, json_of
from ._root import Root
from ._verify import Checked, read_checked

__all__ = ["MOST_TRIES", "TRIES", "run_build"]

TRIES = "tries.json"
MOST_TRIES = 3
_POLL_S = 0.2
# as the job's states and errors say it; the work itself did nothing to the board
_NOT_ITS_FAULT = ("job.cancelled", "job.terminated", "job.not-started")


def run_build(checked: Checked, home: Path, *, anew: bool = False) -> Dict[str, Any]:
    """Runs the board's own job, or joins it, and waits for its result.

    Args:
        checked: A release whose manifest has "rebuild".
        home: Where its engines will be; the caller holds its lock.
        anew: Whether somebody deploys the release, so that tries of before do not end it.

    Raises:
        DeviceError: "build.cut-off" after too many tries; "build.*", "job.*", "blob.*".
    """
    root, rebuild = checked.files.root, checked.manifest.rebuild
    assert root is not None
    assert rebuild is not None
    known = json_of(home / TRIES)
    counted = known.get("tries")
    tries: int = counted if isinstance(counted, int) else 0
    goes_on = _goes_on(root, str(known.get("job")))
    if tries >= MOST_TRIES and not goes_on:
        if not anew:
            raise _cut_off(checked, str(known.get("job")))
        tries = 0
    before, tries = tries, tries if goes_on else tries + 1
    _write(home, str(known.get("job")), tries)
    request = json.loads(read_checked(checked, rebuild.request).decode("utf-8"))
    text = json.dumps({"kind": "build", "request": request}).encode("utf-8")
    try:
        started = do_job_start(root, argparse.Namespace(no_run=False), io.BytesIO(text))
        _write(home, started["job"], before if started["reused"] else tries)
        job = Job(root, started["job"])
        while job.read()["state"] in LIVE:
            time.sleep(_POLL_S)
        return job.result()
    except DeviceError as error:
        if error.code in _NOT_ITS_FAULT or error.code.startswith(("board.", "blob.")):
            _write(home, str(json_of(home / TRIES).get("job")), before)
        raise


def _goes_on(root: Root, name: str) -> bool:
    """Whether the job of the last try runs still, or is done by now."""
    job = Job(root, name)
    return job.read()["state"] in LIVE or job.complete()


def _write(home: Path, job: str, tries: int) -> None:
    with map_os_errors(str(home)):
        write_durably(home / TRIES, json.dumps({"job": job, "tries": tries}).encode("utf-8"))
        (home / TRIES).chmod(0o600)


def _cut_off(checked: Checked, job: str) -> DeviceError:
    return DeviceError(
        "building its engines here was cut off {} times (power, memory or SIGKILL; job {})".format(
            MOST_TRIES, job
        ),
        code="build.cut-off",
        where=checked.files.where,
        hint="deploy again: that tries anew, best with more memory free",
    )
