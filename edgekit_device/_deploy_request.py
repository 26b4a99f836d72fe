"""What a deployment is asked for, checked field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from ._checks import is_app_name, is_digest
from ._errors import DeviceError
from ._policy import read_policy

__all__ = ["Request", "read_request"]

_FIELDS = (
    "app", "digest", "policy", "source", "operator", "nonce", "trust_unsigned", "resume", "again",
    "on_purpose", "put_back",
)  # fmt: skip
_MOST_TEXT = 4096


@dataclass(frozen=True)
class Request:
    """One deployment's request.

    Attributes:
        app: The app.
        digest: SHA-256 of the manifest.
        policy: As it came; ``limits`` is what it means.
        limits: The policy with its defaults (``read_policy``).
        source: Where the board itself gets what it lacks; None when it was sent.
        operator: Who asks, for others to read.
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


def read_request(document: Mapping[str, Any]) -> Request:
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
    return Request(
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
