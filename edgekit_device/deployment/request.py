"""A deployment's request, checked field by field, with the policy by which the release is
judged; and which job already does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import LIVE, Job, all_jobs, json_of
from edgekit_device.protocol import checks as check
from edgekit_device.protocol.checks import is_app_name, is_digest
from edgekit_device.release.changed import changed_of
from edgekit_device.release.journal import busy, is_claimed, read_journal
from edgekit_device.store.root import Root

_DAY_S = 86400.0

# field: its value when absent, the least and the most that it may be
_NUMBERS: Dict[str, Tuple[Optional[float], float, float]] = {
    "latency_ms": (None, 1e-6, 1e9),
    "accuracy_min": (None, -1e9, 1e9),
    "measure_s": (0.5, 0.0, 600.0),
    "soak_s": (0.0, 0.0, _DAY_S),
    "soak_every_s": (1.0, 0.01, _DAY_S),
}
_TIMEOUTS = {"download_s": 3600.0, "refit_s": 600.0, "test_s": 300.0}
_KEEP = 3
_FIELDS = (
    "app", "digest", "policy", "source", "operator", "nonce", "trust_unsigned", "resume", "again",
    "on_purpose", "put_back",
)  # fmt: skip
_MOST_TEXT = 4096


def read_policy(value: object) -> Dict[str, Any]:
    """Checks a policy as a request brings it and fills in what it leaves out.

    Returns:
        "latency_ms" and "accuracy_min" (None: no gate), "measure_s", "soak_s", "soak_every_s",
        "keep" and "timeouts" ("download_s", "refit_s", "test_s").

    Raises:
        DeviceError: "policy.invalid", about the first field that is wrong.
    """
    try:
        return _policy({} if value is None else value)
    except DeviceError as error:
        raise DeviceError(
            error.message,
            code="policy.invalid",
            where=error.where,
            hint=error.hint or "docs/health.md has every field",
        ) from error


def _policy(value: object) -> Dict[str, Any]:
    given = _known(value, "policy", [*_NUMBERS, "keep", "timeouts"])
    found: Dict[str, Any] = {}
    for name, (default, low, high) in _NUMBERS.items():
        said = given.get(name)
        found[name] = default if said is None else check.number(said, "policy." + name, low, high)
    keep = given.get("keep")
    found["keep"] = _KEEP if keep is None else check.integer(keep, "policy.keep", 1, 1 << 20)
    limits = _known(given.get("timeouts") or {}, "policy.timeouts", list(_TIMEOUTS))
    found["timeouts"] = {
        name: default
        if limits.get(name) is None
        else check.number(limits[name], "policy.timeouts." + name, 1e-3, _DAY_S)
        for name, default in _TIMEOUTS.items()
    }
    return found


def _known(value: object, where: str, fields: "list[str]") -> Dict[str, Any]:
    return check.record(value, where, [name for name in fields if _has(value, name)])


def _has(value: object, name: str) -> bool:
    return isinstance(value, dict) and name in value


@dataclass(frozen=True)
class DeployRequest:
    """One deployment's request.

    Attributes:
        app: The app.
        digest: SHA-256 of the manifest.
        policy: As it came; ``limits`` is what it means.
        limits: The policy with its defaults (``read_policy``).
        source: Where the board itself gets what it lacks; None when it was sent.
        operator: Who deploys, for others to read.
        trust_unsigned: Whether the manifest may lack a signature.
        resume: The id of the deployment that is carried on; None for a new one.
        again: Also where the bundle came to serve under the same policy already.
        on_purpose: Why an operator has it installed although it was refused, and what refused it.
        put_back: Also a bundle that was taken back here.
    """

    app: str
    digest: str
    policy: Dict[str, Any]
    limits: Dict[str, Any]
    source: Optional[str] = None
    operator: str = ""
    trust_unsigned: bool = False
    resume: Optional[str] = None
    again: bool = True
    on_purpose: Optional[str] = None
    put_back: bool = False


def read_request(document: Mapping[str, Any]) -> DeployRequest:
    """Checks a request.

    Raises:
        DeviceError: "deploy.bad-request" or "policy.invalid".
    """
    unknown = sorted(set(document) - set(_FIELDS))
    if unknown:
        _fail("unknown: {}".format(", ".join(repr(name)[:80] for name in unknown[:5])))
    app, digest = document.get("app"), document.get("digest")
    if not isinstance(app, str) or not is_app_name(app):
        _fail('"app" is no app\'s name')
    if not isinstance(digest, str) or not is_digest(digest):
        _fail('"digest" is no SHA-256')
    texts = {
        name: document.get(name) for name in ("source", "operator", "nonce", "resume", "on_purpose")
    }
    for name, value in texts.items():
        if value is not None and (not isinstance(value, str) or len(value) > _MOST_TEXT):
            _fail('"{}" is no text'.format(name))
    flags = {"trust_unsigned": False, "again": True, "put_back": False}
    for name, default in list(flags.items()):
        flags[name] = document.get(name, default)
        if not isinstance(flags[name], bool):
            _fail('"{}" is neither true nor false'.format(name))
    policy = document.get("policy") or {}
    limits = read_policy(policy)
    return DeployRequest(
        str(app),
        str(digest),
        dict(policy),
        limits,
        texts["source"] or None,
        texts["operator"] or "",
        flags["trust_unsigned"],
        texts["resume"],
        flags["again"],
        texts["on_purpose"],
        flags["put_back"],
    )


def _fail(message: str) -> None:
    raise DeviceError(
        message,
        code="deploy.bad-request",
        hint="use the loader and the edgekit of the same version",
    )


def running(root: Root, document: Dict[str, Any]) -> Optional[Job]:
    """The job that deploys the same bundle already, or just did; jobs/lock is held.

    Raises:
        DeviceError: "deploy.busy" when one deploys another bundle of the app;
            "deploy.bad-request".
    """
    requested = read_request(document["request"])
    for job in all_jobs(root):
        request = json_of(job.folder / "request.json")
        if request.get("kind") != "deploy" or not isinstance(request.get("request"), dict):
            continue
        if request["request"].get("app") != requested.app or job.read()["state"] not in LIVE:
            continue
        if request["request"].get("digest") == requested.digest:
            return job
        raise busy(root.app(requested.app), job.name)
    return None if requested.again or requested.source else _just_done(root, requested)


def _just_done(root: Root, requested: DeployRequest) -> Optional[Job]:
    """The job by which the bundle serves: it may have ended since its host looked.

    None where the board has changed since: then the bundle is tested anew.
    """
    app = root.app(requested.app)
    journal = read_journal(app)
    if journal is None or journal.state != "committed" or is_claimed(app):
        return None
    facts = journal.facts
    if (facts["digest"], facts["policy"]) != (requested.digest, requested.policy):
        return None
    if facts.get("release") != app.link("current") or not isinstance(facts.get("job"), str):
        return None
    if changed_of(root, app) is not None:
        return None
    job = Job(root, facts["job"])
    return job if job.complete() else None
