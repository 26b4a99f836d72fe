"""The commands ``install`` (brings an app to a bundle on the board), ``rehearse`` (reports the
changes of an install) and ``resume`` (continues interrupted deployments).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, List, Optional, Tuple

from edgekit_device.board.power import restore_interrupted
from edgekit_device.deployment.request import DeployRequest
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.job_runner import start_job
from edgekit_device.jobs.job import LIVE, Job, JobRequest, open_job
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    app_name,
    array,
    digest,
    document,
    flag,
    member,
    nullable,
    parse_json,
    read,
    read_json,
    record,
    records,
    release_name,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.release.changed import Health
from edgekit_device.release.journal import (
    DeploymentResult,
    deployment_result,
    is_claimed,
    read_journal,
    refuse_taken_back,
)
from edgekit_device.release.offer import (
    MAX_ENVELOPE,
    Envelope,
    find_serving,
    find_working,
    take_offer,
)
from edgekit_device.release.policy import read_policy
from edgekit_device.release.requirements import check_requires
from edgekit_device.store.partial import BlobWriter
from edgekit_device.store.root import App, Root
from edgekit_device.trust.bundle import (
    BundleFiles,
    Checked,
    check_bundle,
    need_app,
    open_bundle,
    read_checked,
)
from edgekit_device.trust.counters import check_install
from edgekit_device.trust.signature import revoked_file

_POLL_S = 0.1
_MOST_REASON = 2048


@document(frozen=True)
class Resumed:
    """A deployment that continues as a job: ``state`` is its interrupted state, or its end."""

    app: str = member(app_name)
    job: str = member(text())
    state: str = member(text())


@document(frozen=True)
class NotResumed:
    """A deployment that cannot continue, and the reason."""

    app: str = member(app_name)
    error: Failure = member(record(Failure))


@document(frozen=True)
class ResumeAnswer:
    """The answer of ``resume``; ``power``: power mode and clocks that a benchmark left changed."""

    resumed: Tuple[Resumed, ...] = member(records(Resumed))
    failed: Tuple[NotResumed, ...] = member(records(NotResumed))
    power: Optional[str] = member(nullable(text()))


@document(frozen=True)
class Installed:
    """The answer of ``install``.

    Attributes:
        changed: True if another release serves now.
        release: The release of the bundle.
        digest: SHA-256 of the manifest.
        previous: The release that served before.
        state: The deployment's last state.
        health: The measured figures; None if the bundle served already.
    """

    changed: bool = member(flag)
    app: str = member(app_name)
    release: Optional[str] = member(nullable(release_name))
    digest: str = member(digest)
    previous: Optional[str] = member(nullable(release_name))
    state: str = member(text())
    health: Optional[Health] = member(record(Health), absent=None)


@document(frozen=True)
class RehearsalRequest(Envelope):
    """A bundle's manifest and signature, and the lines to add to allowed_signers first."""

    lines: Tuple[str, ...] = member(array(text(most=1 << 16)), absent=())


@document(frozen=True)
class RehearsedInstall:
    """The answer of ``rehearse``.

    Attributes:
        changed: True if ``install`` would bring another release into service.
        digest: SHA-256 of the manifest.
        current: The release that serves now.
        keys: Number of lines that are not in allowed_signers yet.
    """

    changed: bool = member(flag)
    app: str = member(app_name)
    digest: str = member(digest)
    current: Optional[str] = member(nullable(release_name))
    keys: int = member(fields.count)


def resume(
    root: Root, app: Optional[App] = None, *, no_run: bool = False
) -> Tuple[List[Resumed], List[NotResumed]]:
    """Starts a job for each deployment whose process died.

    Returns:
        Deployments that continue, and deployments that cannot; these do not stop other apps'.

    Raises:
        DeviceError: "deploy.busy" and similar errors, if ``app`` is given.
    """
    found: List[Resumed] = []
    failed: List[NotResumed] = []
    for target in root.apps() if app is None else [app]:
        try:
            journal = read_journal(target)
            if journal is None or not journal.live or is_claimed(target):
                continue
            facts = journal.facts
            request = DeployRequest(
                app=target.name,
                digest=facts.digest,
                policy=facts.policy,
                operator=facts.operator or "",
                # another try of the same deployment is another job
                nonce="{}.{}".format(facts.id, facts.attempts),
                resume=facts.id,
            )
            started = _start_deployment(root, request, no_run)
        except DeviceError as error:
            if app is not None:
                raise
            failed.append(NotResumed(target.name, Failure.of(error)))
            continue
        found.append(Resumed(target.name, started, journal.state))
    return found, failed


def do_resume(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> ResumeAnswer:
    """Continues deployments whose processes died, as jobs; --wait waits until they have ended.

    Restores the power mode and clocks that a dead benchmark left changed.
    """
    left = restore_interrupted(root.folder)
    app = None if arguments.app is None else root.app(arguments.app)
    found, failed = resume(root, app, no_run=arguments.no_run)
    if arguments.wait:
        found = [
            replace(resumed, state=_wait_for_end(open_job(root, resumed.job))) for resumed in found
        ]
    return ResumeAnswer(tuple(found), tuple(failed), left)


def do_install(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Installed:
    """Brings an app to a bundle on the board: deploys it and waits for the end.

    Does no work if the bundle serves already and is complete.
    """
    given = parse_json((arguments.policy or "{}").encode("utf-8"), "--policy", "policy.invalid")
    policy = read_policy(given)
    source = getattr(arguments, "from")
    if "://" in source:
        raise DeviceError(
            "install takes a bundle that is on the board, not an address",
            code="usage",
            where=source,
            hint="copy the bundle to the board and give its path, or run edgekit deploy on the "
            "host",
        )
    if arguments.allow_older is not None and not arguments.allow_older.strip():
        raise DeviceError("--allow-older needs a reason", code="usage", hint="it is recorded")
    trust = bool(arguments.trust_unsigned)
    files = open_bundle(Path(os.path.expanduser(source)))
    checked = check_bundle(files, root.allowed_signers, trust)
    if arguments.app is not None:
        need_app(checked, arguments.app)
    refused = _find_refusal(root, checked, arguments.allow_older, put_back=bool(arguments.again))
    # before the blobs: a collection keeps blobs that an offered manifest names
    answer = take_offer(root, files.manifest, files.signature, trust)
    with root.lock(shared=True), map_os_errors(str(root.folder)), BlobWriter(root) as writer:
        for digest, _ in answer.missing:
            writer.add(digest, read_checked(checked, digest))
    app = root.app(answer.app)
    journal = read_journal(app)
    # an unfinished deployment may still roll this release back
    if answer.serving and (journal is None or not journal.live):
        return Installed(
            changed=False,
            app=app.name,
            release=answer.serving,
            digest=answer.digest,
            previous=app.link("previous"),
            state="committed",
        )
    request = DeployRequest(
        app=app.name,
        digest=answer.digest,
        policy=policy,
        operator=arguments.operator or "",
        nonce=os.urandom(8).hex(),
        trust_unsigned=trust,
        on_purpose=(
            "{} ({})".format(arguments.allow_older[:_MOST_REASON], refused) if refused else None
        ),
        put_back=bool(arguments.again),
    )
    job = open_job(root, _start_deployment(root, request))
    _wait_for_end(job)
    result = deployment_result(job.result())
    return Installed(
        changed=isinstance(result, DeploymentResult) and result.changed,
        app=result.app,
        release=result.release,
        digest=result.digest,
        previous=result.previous,
        state=result.state,
        health=result.health,
    )


def do_rehearse(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> RehearsedInstall:
    """Reports the changes that ``trust`` and ``install`` would make; writes no file below ROOT.

    A ``RehearsalRequest`` is on stdin.

    Raises:
        DeviceError: The error with which ``install`` would refuse the bundle before copying blobs.
    """
    request = read_json(stdin, MAX_ENVELOPE)
    sent = read(RehearsalRequest, request, "stdin", code="protocol.invalid")
    files = BundleFiles("the bundle", sent.manifest, sent.signature, root.store)
    with map_os_errors(str(root.folder)), tempfile.TemporaryDirectory(prefix="edgekit-") as aside:
        known = root.allowed_signers.read_text("utf-8") if root.allowed_signers.exists() else ""
        new = [line for line in dict.fromkeys(sent.lines) if line not in known.splitlines()]
        signers = Path(aside, root.allowed_signers.name)
        signers.write_text("".join(line + "\n" for line in [*known.splitlines(), *new]), "utf-8")
        # a dangling link keeps its meaning: a list that revokes all keys
        revoked = revoked_file(root.allowed_signers)
        if os.path.lexists(str(revoked)):
            revoked_file(signers).symlink_to(revoked)
        # with the keys that ``trust`` would add first, in a copy outside ROOT
        checked = check_bundle(files, signers, bool(arguments.trust_unsigned))
    if arguments.app is not None:
        need_app(checked, arguments.app)
    _find_refusal(
        root, checked, arguments.allow_older, put_back=bool(arguments.again), remember=False
    )
    manifest, app = checked.manifest, root.app(checked.manifest.name)
    complete = all(
        root.store.size(digest) == size and root.store.is_whole(digest)
        for digest, size in manifest.sizes().items()
    )
    changed = not complete or find_working(root, checked) is None
    if changed:
        check_requires(root, manifest)
    return RehearsedInstall(changed, app.name, manifest.digest, app.link("current"), len(new))


def _find_refusal(
    root: Root,
    checked: Checked,
    allow_older: Optional[str],
    *,
    put_back: bool,
    remember: bool = True,
) -> Optional[str]:
    """Returns why the board would refuse the bundle that the operator installs on purpose.

    Raises:
        DeviceError: "install.*": it is older or expired without ``allow_older``, or it was rolled
            back on this board and ``put_back`` is false.
    """
    if find_serving(root, checked) is not None:
        return None  # the serving bundle is never refused
    refused = None
    try:
        check_install(root, checked, remember=remember)
    except DeviceError as error:
        if not allow_older:
            raise
        # recorded with the reason: the history shows what was overridden
        refused = error.message
    if not put_back:
        manifest = checked.manifest
        refuse_taken_back(root.app(manifest.name), manifest.digest, checked.files.where)
    return refused


def _start_deployment(root: Root, request: DeployRequest, no_run: bool = False) -> str:
    return start_job(root, JobRequest("deploy", write(request)), held_back=no_run).job


def _wait_for_end(job: Job) -> str:
    while True:
        state = job.read().state
        if state not in LIVE:
            return state
        time.sleep(_POLL_S)
