"""Announcing a bundle: by digest, as a difference to what the board has, or whole."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from edgekit.errors import BoardError
from edgekit_device._checks import is_digest
from edgekit_device._delta import pack
from edgekit_device._manifest import MAX_MANIFEST

__all__ = ["offer"]

# up to here a question before would cost more than the manifest itself
_SMALL = 12 << 10
_REFUSED = ("offer.invalid", "manifest.invalid")
_MOST_PRINTS = 64 << 10  # as many as a board tells


def offer(
    ask: Callable[[Mapping[str, Any]], dict[str, Any]],
    manifest: bytes,
    signature: bytes | None,
    app: str,
) -> dict[str, Any]:
    """Returns the board's answer to the offer of a manifest.

    Args:
        ask: Sends one document to the command ``offer``.
        manifest: Its bytes.
        signature: OpenSSH's signature of them, None when there is none.
        app: The bundle's name: manifests of the same app are much alike.

    Raises:
        BoardError, BundleError: As ``ask``.
    """
    signed = {"signature": None if signature is None else signature.decode("utf-8")}
    whole = pack(manifest)
    if len(whole["packed"]) <= _SMALL:
        return ask({**whole, **signed})
    digest = hashlib.sha256(manifest).hexdigest()
    answer = ask({"digest": digest, "app": app, **signed})
    if answer["known"]:
        return answer
    if _sound(answer.get("base")):
        try:
            return ask({**pack(manifest, answer["base"]), **signed})
        except BoardError as error:
            # another command may have removed what it builds on: whole then
            if error.code not in _REFUSED:
                raise
    return ask({**whole, **signed})


def _sound(base: object) -> bool:
    """Whether a board tells something to build a difference on; what is odd costs bytes alone."""
    if not isinstance(base, dict):
        return False
    digest, grain, prints = base.get("digest"), base.get("grain"), base.get("prints")
    if not is_digest(digest) or type(grain) is not int or not 1 <= grain <= MAX_MANIFEST:
        return False
    if not isinstance(prints, str) or len(prints) > _MOST_PRINTS:
        return False
    try:
        base64.b64decode(prints, validate=True)
    except ValueError:
        return False
    return True
