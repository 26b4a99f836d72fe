"""The job "deploy", which brings an app to a bundle and rolls it back if it fails its checks; and
the command ``rollback``, by hand or at a server's request, also during a soak.

It continues when the operator disconnects. After a power cut or a SIGKILL at any moment either the
previous or the new release serves, complete; ``resume``, the same command again, a server's start
or the board's next boot continue the deployment (docs/deploying.md).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from dataclasses import replace
from typing import BinaryIO, Callable, List, Optional

from edgekit_device.deployment.request import DeployRequest, read_request
from edgekit_device.deployment.states import Deployment
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.jobs.job import Job, JobCancelled, JobContext
from edgekit_device.processes import Report
from edgekit_device.protocol.codec import (
    choice,
    document,
    dump,
    load,
    member,
    text,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.server import reload_server
from edgekit_device.release.journal import (
    AFTER_SWITCH,
    ASKED,
    OTHERS_FAILED,
    ROLLBACK_SCHEMA,
    SCHEMA,
    DeploymentFacts,
    DeploymentJournal,
    HistoryEntry,
    busy_error,
    claim,
    complete_history,
    find_last_taken_back,
    is_claimed,
    read_journal,
    record_end,
    refuse_taken_back,
    timestamp,
)
from edgekit_device.release.releases import RolledBack, rollback
from edgekit_device.store.root import App, Root, no_such_app, release_digest

BACK = "back.json"
_POLL_S = 0.1
_WAIT_S = 120.0
_MOST_TEXT = 4096


@document(frozen=True)
class NothingToResume:
    """The answer of a deployment that was to continue if its app no longer exists."""


def run(context: JobContext) -> "DeploymentFacts | NothingToResume":
    """Runs the job.

    Returns:
        As ``deploy``.

    Raises:
        DeviceError: The deployment failed or was rolled back; the error is the reason.
        JobCancelled: It was cancelled, and rolled back if it served already.
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
    on_progress: Report = lambda phase, done, total, text: None,
    cancelled: Callable[[], bool] = lambda: False,
    job: Optional[str] = None,
) -> "DeploymentFacts | NothingToResume":
    """Deploys in this process; first continues or settles a deployment whose process died.

    Args:
        root: The installation.
        request: The deployment's request.
        on_progress: Called with progress; phases are the deployment's states.
        cancelled: Returns True to stop.
        job: The job's id, by which other commands find it.

    Returns:
        A ``DeploymentResult``; the deployment's journal if the deployment to continue has ended or
        is no longer the app's last.

    Raises:
        DeviceError: "deploy.busy"; "install.taken-back"; or the reason why the deployment failed or
            was rolled back.
    """
    app = root.app(request.app)
    with claim(app) as held:

        def stopped() -> None:
            if cancelled():
                raise JobCancelled
            check_rollback_request(app)

        left = read_journal(app)
        # before the journal is replaced: it may be the only record of the last deployment
        complete_history(app)
        if left is not None and left.live:
            # another deployment has begun since: there is nothing left to continue
            if request.resume not in (None, left.facts.id):
                return left.facts
            # the same command again: before the switch it starts anew, after it the soak continues
            goes_on = left.facts.digest == request.digest and left.state != "rolling-back"
            if request.resume is not None or (goes_on and left.state in AFTER_SWITCH):
                if _was_cancelled(root, left):
                    settle(root, app, left, held)
                    raise JobCancelled
                left.update(job=job)
                return Deployment(root, app, left, on_progress, stopped, held).run_to_end()
            settle(root, app, left, held)
        elif request.resume is not None:
            return NothingToResume() if left is None else left.facts
        current = app.link("current")
        serves = current is not None and release_digest(current) == request.digest[:12]
        if not (request.put_back or serves):
            refuse_taken_back(app, request.digest)
        with contextlib.suppress(FileNotFoundError):
            # a request for an earlier deployment must not end this one
            (app.folder / BACK).unlink()
        journal = _begin(root, app, request, job)
        return Deployment(root, app, journal, on_progress, stopped, held).run_to_end()


def settle(root: Root, app: App, left: DeploymentJournal, held: int) -> None:
    """Ends a deployment whose process died, so that another may begin.

    If it had switched, an examination decides whether its release stays or is rolled back.
    """
    deployment = Deployment(root, app, left, lambda *step: None, lambda: None, held)
    # one examination decides: another deployment waits
    left.update(policy=replace(left.facts.policy, soak_s=0.0))
    with contextlib.suppress(DeviceError):
        if left.state in AFTER_SWITCH and not _was_cancelled(root, left):
            deployment.run_to_end()
        else:
            deployment.give_up(
                DeviceError(
                    "its process died while {}, and another deployment started".format(left.state),
                    code="deploy.cut-off",
                )
            )


def _begin(root: Root, app: App, request: DeployRequest, job: Optional[str]) -> DeploymentJournal:
    with app.lock():
        pass  # finishes an interrupted switch by hand: then the links show which release serves
    now = timestamp()
    known = app.find_releases(request.digest)
    facts = DeploymentFacts(
        schema=SCHEMA,
        id=os.urandom(8).hex(),
        app=app.name,
        state="verifying",
        release=None,
        previous=app.link("current"),
        started_at=now,
        state_at=now,
        error=None,
        fallback=app.link("previous"),
        digest=request.digest,
        known=bool(known),
        operator=request.operator,
        trust_unsigned=request.trust_unsigned,
        on_purpose=request.on_purpose,
        job=job,
        attempts=0,
        issued=None,
        policy=request.policy,
        health=None,
        steps=(),
    )
    journal = DeploymentJournal(app, facts)
    journal.enter(facts.state)
    return journal


def _was_cancelled(root: Root, journal: DeploymentJournal) -> bool:
    """Returns True if its job was cancelled before its process ended."""
    job = journal.facts.job
    return job is not None and Job(root, job).is_cancelled()


def do_rollback(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> RolledBack:
    """Goes back to the previous release."""
    app = root.app(arguments.app)
    return roll_back(
        root,
        app,
        arguments.reason or "requested",
        to=arguments.release,
        others_failed=arguments.others_failed,
    )


def roll_back(
    root: Root,
    app: App,
    reason: str,
    *,
    wait: bool = True,
    to: Optional[str] = None,
    others_failed: bool = False,
) -> RolledBack:
    """Makes an earlier release serve again, and records why the current release is rolled back.

    It never switches to a release that was rolled back itself. A deployment that has switched and
    is not committed yet is asked to roll itself back.

    Args:
        root: The installation.
        app: The app.
        reason: The reason for the history.
        wait: True to wait for a deployment that rolls itself back.
        to: The release to switch to; by default the previous release.
        others_failed: True if other boards are the reason: then the bundle may be installed again.

    Raises:
        DeviceError: "release.no-previous", "release.unknown", "install.taken-back", "deploy.busy".
    """
    if not app.folder.is_dir():
        raise no_such_app(app)
    before = app.link("current")
    code = OTHERS_FAILED if others_failed else ASKED
    # a living deployment holds the lock: it must roll back itself
    if is_claimed(app):
        journal = read_journal(app)
        if journal is not None and journal.state in AFTER_SWITCH:
            return _request_rollback(app, _RollbackRequest(reason[:_MOST_TEXT], code), before, wait)
        if journal is not None and journal.live:
            raise busy_error(app)
    with claim(app) as held:
        journal = read_journal(app)
        if journal is not None and journal.live:
            deployment = Deployment(root, app, journal, lambda *step: None, lambda: None, held)
            back = journal.state in AFTER_SWITCH
            deployment.give_up(_requested_error(reason, code))
            # giving up has already gone back one release: no second step
            if back:
                return _answer(app, before)
        with contextlib.suppress(DeviceError):
            complete_history(app)
        ended: List[HistoryEntry] = []

        def note(current: Optional[str], target: str) -> None:
            # before the change, so that a power cut does not lose the reason; a full disk may
            # prevent the record, but not the rollback
            error = Failure.of(_requested_error(reason, code))
            ended.append(_rollback_entry(app, current, target, error))
            with contextlib.suppress(DeviceError):
                record_end(app, ended[0])

        rollback(app, to, note)
        if ended:
            # again: record_end skips a line that it has, and a failure is an error only now
            record_end(app, ended[0])
        with contextlib.suppress(DeviceError):
            reload_server(app.folder)
        return _answer(app, before)


def _rollback_entry(app: App, current: Optional[str], target: str, error: Failure) -> HistoryEntry:
    now = timestamp()
    return HistoryEntry(
        schema=ROLLBACK_SCHEMA,
        id=os.urandom(8).hex(),
        app=app.name,
        state="rolled-back",
        release=current,
        previous=target,
        started_at=now,
        state_at=now,
        error=error,
    )


@document(frozen=True)
class _RollbackRequest:
    """back.json: a request that a running deployment roll itself back, and the reason."""

    reason: str = member(text())
    code: str = member(choice(ASKED, OTHERS_FAILED), absent=ASKED)


def check_rollback_request(app: App) -> None:
    """Raises DeviceError "rollback.*" if a rollback was requested."""
    found = load(_RollbackRequest, app.folder / BACK)
    journal = None if found is None else read_journal(app)
    if found is not None and journal is not None and journal.state in AFTER_SWITCH:
        raise _requested_error(found.reason, found.code)


def _request_rollback(
    app: App, request: _RollbackRequest, before: Optional[str], wait: bool
) -> RolledBack:
    """Makes the running deployment roll itself back."""
    with map_os_errors(str(app.folder)):
        write_durably(app.folder / BACK, dump(request))
    until = time.monotonic() + _WAIT_S
    while wait and is_claimed(app):
        if time.monotonic() > until:
            raise busy_error(app)
        time.sleep(_POLL_S)
    return _answer(app, before)


def _answer(app: App, before: Optional[str]) -> RolledBack:
    current, previous = app.link("current"), app.link("previous")
    return RolledBack(app.name, current, previous, before, find_last_taken_back(app))


def _requested_error(reason: str, code: str) -> DeviceError:
    return DeviceError(reason[:_MOST_TEXT], code=code)
