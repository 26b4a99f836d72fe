"""The job "deploy": brings an app to a bundle, and takes it back when it does not do well.

It goes on when the operator is gone. A power cut or a SIGKILL at any moment leaves the release of
before or the new one, whole; ``resume``, the same command again, a server's start or the board's
next boot carry it on (docs/deploying.md).
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, Optional

from ._deploy_back import BACK, wanted_back
from ._deploy_child import Progress
from ._deploy_lock import claim
from ._deploy_request import Request, read_request
from ._deploy_run import Deploying
from ._deployment import (
    AFTER_SWITCH,
    SCHEMA,
    Journal,
    complete_history,
    read_journal,
    refuse_taken_back,
    stamp,
)
from ._errors import DeviceError
from ._job import CANCEL, JobCancelled, JobContext
from ._root import App, Root

__all__ = ["deploy", "run", "settle"]


def run(context: JobContext) -> Dict[str, Any]:
    """Does the job.

    Returns:
        See ``Deploying.to_end``.

    Raises:
        DeviceError: Why the deployment failed or was rolled back.
        JobCancelled: It was cancelled, and taken back where it served already.
    """
    request = read_request(context.request)
    return deploy(
        context.root,
        request,
        tell=context.progress,
        cancelled=context.cancelled,
        job=context.folder.name,
    )


def deploy(
    root: Root,
    request: Request,
    *,
    tell: Progress = lambda phase, done, total, text: None,
    cancelled: Callable[[], bool] = lambda: False,
    job: Optional[str] = None,
) -> Dict[str, Any]:
    """Deploys in this process; one that died is carried on or settled first.

    Args:
        root: The installation.
        request: What for.
        tell: Told of progress; phases are the deployment's states.
        cancelled: Whether somebody wants it to stop.
        job: The job's id, for others to find it.

    Raises:
        DeviceError: "deploy.busy"; "install.taken-back"; why the deployment failed or was rolled
            back.
    """
    app = root.app(request.app)
    with claim(app) as held:
        with contextlib.suppress(FileNotFoundError):
            (app.folder / BACK).unlink()

        def stopped() -> None:
            if cancelled():
                raise JobCancelled
            wanted_back(app)

        left = read_journal(app)
        complete_history(app)
        if left is not None and left.live:
            if request.resume not in (None, left.facts["id"]):
                return left.facts
            goes_on = left.facts["digest"] == request.digest and left.state != "rolling-back"
            if request.resume is not None or (goes_on and left.state in AFTER_SWITCH):
                if _was_cancelled(root, left):
                    settle(root, app, left, held)
                    raise JobCancelled
                left.facts["job"] = job
                return Deploying(root, app, left, tell, stopped, held).to_end()
            settle(root, app, left, held)
        elif request.resume is not None:
            return left.facts if left is not None else {}
        if not (request.put_back or _serves(app, request.digest)):
            refuse_taken_back(app, request.digest)
        journal = _begin(root, app, request, job)
        return Deploying(root, app, journal, tell, stopped, held).to_end()


def settle(root: Root, app: App, left: Journal, held: int) -> None:
    """Ends a deployment whose process died, so that another one may begin.

    What had switched is judged by one examination, and stays or goes back; what had not is over.
    """
    steps = Deploying(root, app, left, lambda *told: None, lambda: None, held)
    policy = dict(left.facts["policy"], soak_s=0)
    left.facts["policy"] = policy
    with contextlib.suppress(DeviceError):
        if left.state in AFTER_SWITCH and not _was_cancelled(root, left):
            steps.to_end()
        else:
            steps.give_up(
                DeviceError(
                    "its process ended while {}, and another deployment came".format(left.state),
                    code="deploy.cut-off",
                )
            )


def _begin(root: Root, app: App, request: Request, job: Optional[str]) -> Journal:
    with app.lock():
        pass  # which finishes a switch by hand that was cut off: then the links say what serves
    now = stamp()
    known = [name for name in app.releases() if name.endswith("-" + request.digest[:12])]
    facts: Dict[str, Any] = {
        "schema": SCHEMA,
        "id": os.urandom(8).hex(),
        "app": app.name,
        "state": "",
        "release": None,
        "digest": request.digest,
        "previous": app.link("current"),
        "fallback": app.link("previous"),
        "known": bool(known),
        "policy": request.policy,
        "operator": request.operator,
        "source": request.source,
        "trust_unsigned": request.trust_unsigned,
        "on_purpose": request.on_purpose,
        "job": job,
        "attempts": 0,
        "started_at": now,
        "state_at": now,
        "steps": [],
        "error": None,
        "health": None,
    }
    journal = Journal(app, facts)
    journal.enter("downloading" if request.source else "verifying")
    return journal


def _serves(app: App, digest: str) -> bool:
    current = app.link("current")
    return current is not None and current.endswith("-" + digest[:12])


def _was_cancelled(root: Root, journal: Journal) -> bool:
    """Whether its job was cancelled before its process ended."""
    job = journal.facts.get("job")
    return isinstance(job, str) and (root.folder / "jobs" / job / CANCEL).exists()
