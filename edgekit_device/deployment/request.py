"""A deployment's request, checked field by field, and the search for a job that does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from edgekit_device.jobs.job import LIVE, Job, all_jobs
from edgekit_device.protocol.codec import (
    app_name,
    digest,
    document,
    flag,
    member,
    nullable,
    read,
    text,
)
from edgekit_device.release.changed import find_change, is_readable
from edgekit_device.release.journal import busy_error, is_claimed, read_journal
from edgekit_device.release.offer import read_incoming
from edgekit_device.release.policy import Policy, read_policy
from edgekit_device.store.root import Root, sha256
from edgekit_device.trust.bundle import MANIFEST, open_release


@document(frozen=True)
class DeployRequest:
    """One deployment's request.

    Attributes:
        app: The app.
        digest: SHA-256 of the manifest.
        policy: The release's checks and their limits.
        operator: Name of the operator, for people.
        nonce: Makes two equal requests two jobs.
        trust_unsigned: True if the manifest may lack a signature.
        resume: The id of the deployment to continue; None for a new deployment.
        again: True to deploy even if the bundle already came to serve under the same policy.
        on_purpose: The operator's reason to install a refused bundle, with the refusal; None
            otherwise.
        put_back: True to accept a bundle that was rolled back on this board.
    """

    app: str = member(app_name)
    digest: str = member(digest)
    policy: Policy = member(read_policy, absent=Policy(), always=True)
    operator: Optional[str] = member(nullable(text()), absent=None)
    nonce: Optional[str] = member(nullable(text()), absent=None)
    trust_unsigned: bool = member(flag, absent=False)
    resume: Optional[str] = member(nullable(text()), absent=None)
    again: bool = member(flag, absent=True)
    on_purpose: Optional[str] = member(nullable(text()), absent=None)
    put_back: bool = member(flag, absent=False)


def read_request(document: object) -> DeployRequest:
    """Checks a request.

    Raises:
        DeviceError: "deploy.bad-request" or "policy.invalid".
    """
    hint = "use the same version of edgekit_device and edgekit"
    return read(DeployRequest, document, "request", code="deploy.bad-request", hint=hint)


def find_running(root: Root, requested: DeployRequest) -> Optional[Job]:
    """Returns the job that deploys the same bundle, or just did; the caller holds jobs/lock.

    Raises:
        DeviceError: "deploy.busy" if a job deploys another bundle of the app.
    """
    for job in all_jobs(root):
        if job.read().state not in LIVE:
            continue
        other = job.request()
        if other is None or other.kind != "deploy" or other.request.get("app") != requested.app:
            continue
        if other.request.get("digest") == requested.digest:
            return job
        raise busy_error(root.app(requested.app), job.name)
    return None if requested.again else _find_committed(root, requested)


def _find_committed(root: Root, requested: DeployRequest) -> Optional[Job]:
    """Returns the job that made the bundle serve: it may have ended since the host looked.

    None if the board or its releases have changed since: then the bundle is tested anew.
    """
    app = root.app(requested.app)
    journal = read_journal(app)
    if journal is None or journal.state != "committed" or is_claimed(app):
        return None
    facts = journal.facts
    # other limits have not been checked
    if (facts.digest, facts.policy) != (requested.digest, requested.policy):
        return None
    if facts.release is None or facts.release != app.link("current") or facts.job is None:
        return None
    folder = app.releases_folder / facts.release
    if not _is_intact(folder, requested.digest) or find_change(root, app) is not None:
        return None
    offered = read_incoming(root, requested.digest)
    if offered is not None and offered[1] != open_release(root, folder).signature:
        return None  # the signature that was sent counts
    # a collected or damaged job has no result to answer with
    job = Job(root, facts.job)
    return job if job.complete() else None


def _is_intact(folder: Path, digest: str) -> bool:
    try:
        manifest = (folder / MANIFEST).read_bytes()
    except OSError:
        return False
    return sha256(manifest) == digest and is_readable(folder)
