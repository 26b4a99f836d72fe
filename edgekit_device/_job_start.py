"""Commands that start a job and run it: what makes it the same job, its folder, its process."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict

from ._checks import parse_json
from ._errors import DeviceError, map_os_errors
from ._files import fsync_folder, locked, workspace, write_durably
from ._hello import loader_file
from ._job import JOBS, LOG
from ._job_run import detach, redirect, supervise
from ._jobs import LIVE, STARTS_S, Job, open_job
from ._root import Root

__all__ = ["do_job_run", "do_job_start"]

_MAX_REQUEST = 128 << 20
_LOADER = "loader.pyz"


def do_job_start(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Starts a job, joins the same one that runs, or answers that it is done already."""
    data = stdin.read(_MAX_REQUEST + 1)
    document = parse_json(data, "stdin", "protocol.invalid") if len(data) <= _MAX_REQUEST else None
    if (
        not isinstance(document, dict)
        or set(document) != {"kind", "request"}
        or not isinstance(document["request"], dict)
    ):
        raise DeviceError(
            'expected {"kind": text, "request": object}', code="protocol.invalid", where="stdin"
        )
    kind = document["kind"]
    if kind not in JOBS:
        known = ", ".join(sorted(JOBS))
        raise DeviceError(
            "this loader has no job of that kind (it has {})".format(known),
            code="job.kind",
            where=str(kind)[:80],
        )
    job = Job(root, _id(root, document))
    with locked(root.folder / "jobs" / "lock"):
        if kind == "deploy":
            from ._deploy_start import running

            job = running(root, document) or job
        state = job.read()["state"]
        if state in LIVE:
            return {"job": job.name, "state": state, "reused": False, "joined": True}
        if job.complete():
            os.utime(job.folder / "state.json")  # young again for a collection
            return {"job": job.name, "state": "done", "reused": True, "joined": False}
        _prepare(job, document, held_back=arguments.no_run)
        if not arguments.no_run:
            _launch(job)
    state = job.read()["state"]
    return {"job": job.name, "state": state, "reused": False, "joined": False}


def do_job_run(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> bytes:
    """Runs a prepared job: as this process with --foreground, otherwise away from the caller."""
    job = open_job(root, arguments.job)
    if not arguments.foreground:
        detach()
    redirect(job.folder / LOG)
    supervise(job, arguments.ready)
    return b""


def _id(root: Root, document: Dict[str, Any]) -> str:
    from ._fingerprint import fingerprint
    from ._hello import loader_digest

    facts = [document["kind"], document["request"], loader_digest(), fingerprint(root.folder)]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _prepare(job: Job, document: Dict[str, Any], held_back: bool) -> None:
    """Makes the job's folder anew, whole at once."""
    now = time.time()
    state = {
        "job": job.name,
        "kind": document["kind"],
        "name": str(document["request"].get("name") or document["request"].get("app") or "")[:64],
        "state": "queued",
        "queued_at": round(now, 3),
        "started_at": None,
        "ended_at": None,
        "error": None,
        # until then it counts as queued although no process holds its lock yet
        "starts_by": now + STARTS_S if held_back else 0,
    }
    with workspace(job.root.folder) as work, map_os_errors(str(job.folder)):
        made = work / "job"
        made.mkdir()
        write_durably(made / "request.json", json.dumps(document).encode("utf-8"))
        write_durably(made / "state.json", json.dumps(state).encode("utf-8"))
        (made / LOG).touch()
        (made / "lock").touch()
        loader = loader_file()
        if loader is not None:
            # newer loaders push old ones out of bin; a job's own stays with it
            _link(loader, made / _LOADER)
        if job.folder.exists():
            job.folder.rename(work / "old")
        made.rename(job.folder)
        fsync_folder(job.folder.parent)


def _launch(job: Job) -> None:
    loader = job.folder / _LOADER
    program = [str(loader)] if loader.exists() else ["-m", "edgekit_device"]
    reading, writing = os.pipe()
    argv = [sys.executable, *program, "job-run", "--root", str(job.root.folder)]
    argv += ["--job", job.name, "--ready", str(writing)]
    try:
        with (job.folder / LOG).open("ab") as log:
            done = subprocess.run(
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
        ready.read()  # ends when the job waits or runs, or is no more
    state = job.read()
    if done.returncode or (state["state"] == "lost" and not state.get("started_at")):
        last = job.log(0, 1 << 20)[0].decode("utf-8", "replace").strip().splitlines()
        raise DeviceError(
            "the job did not start: {}".format(last[-1] if last else "it said nothing"),
            code="job.not-started",
            where=job.name,
        )


def _link(source: Path, target: Path) -> None:
    try:
        os.link(str(source), str(target))
    except OSError:
        shutil.copyfile(str(source), str(target))
