"""The job "deploy": brings an app to a bundle, and takes it back when it does not do well.

It goes on when the operator is gone. A power cut or a SIGKILL at any moment leaves the release of
before or the new one, whole; ``resume``, the same command again, a server's start or the board's
next boot carry it on (docs/deploying.md).
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, Optional

from edgekit_device.deployment.child import OnProgress
from edgekit_device.deployment.request import DeployRequest, read_request
from edgekit_device.deployment.rollback import BACK, wanted_back
from edgekit_device.deployment.states import Deployment
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import CANCEL, JobCancelled, JobContext
from edgekit_device.release.journal import (
    AFTER_SWITCH,
    SCHEMA,
    DeploymentJournal,
    claim,
    complete_history,
    read_journal,
    refuse_taken_back,
    stamp,
)
from edgekit_device.store.root import App, Root


def run(context: JobContext) -> Dict[str, Any]:
    """Does the job.

    Returns:
        See ``Deployment.to_end``.

    Raises:
        DeviceError: Why the deployment failed or was rolled back.
        JobCancelled: It was cancelled, and taken back where it served already.
    """
    request = read_request(context.request)
    return deploy(
        context.root,
        request,
        on_progress=context.progress,
        cancelled=context.cancelled,
        job=context.folder.name,
    )


def deploy(
    root: Root,
    request: DeployRequest,
    *,
    on_progress: OnProgress = lambda phase, done, total, text: None,
    cancelled: Callable[[], bool] = lambda: False,
    job: Optional[str] = None,
) -> Dict[str, Any]:
    """Deploys in this process; one that died is carried on or settled first.

    Args:
        root: The installation.
        request: What for.
        on_progress: Called with progress; phases are the deployment's states.
        cancelled: Returns whether to stop.
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
                return Deployment(root, app, left, on_progress, stopped, held).to_end()
            settle(root, app, left, held)
        elif request.resume is not None:
            return left.facts if left is not None else {}
        if not (request.put_back or _serves(app, request.digest)):
            refuse_taken_back(app, request.digest)
        journal = _begin(root, app, request, job)
        return Deployment(root, app, journal, on_progress, stopped, held).to_end()


def settle(root: Root, app: App, left: DeploymentJournal, held: int) -> None:
    """Ends a deployment whose process died, so that another one may begin.

    What had switched is judged by one examination, and stays or goes back; what had not is over.
    """
    steps = Deployment(root, app, left, lambda *step: None, lambda: None, held)
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


def _begin(root: Root, app: App, request: DeployRequest, job: Optional[str]) -> DeploymentJournal:
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
    journal = DeploymentJournal(app, facts)
    journal.enter("downloading" if request.source else "verifying")
    return journal


def _serves(app: App, digest: str) -> bool:
    current = app.link("current")
    return current is not None and current.endswith("-" + digest[:12])


def _was_cancelled(root: Root, journal: DeploymentJournal) -> bool:
    """Whether its job was cancelled before its process ended."""
    job = journal.facts.get("job")
    return isinstance(job, str) and (root.folder / "jobs" / job / CANCEL).exists()
