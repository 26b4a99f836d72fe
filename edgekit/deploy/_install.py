"""Installs a bundle on a board: what it lacks is sent, then the board deploys by itself."""

from __future__ import annotations

import contextlib
import getpass
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.deploy._client import BoardClient
from edgekit.deploy._fits import check_fits, check_space
from edgekit.deploy._follow import follow
from edgekit.deploy._send import send
from edgekit.deploy._types import Progress, Release

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.deploy._send import Sent

__all__ = ["install"]

_GATES = ("latency_ms", "accuracy_min")


def install(
    bundle: Bundle,
    board: BoardClient,
    *,
    signature: bytes | None = None,
    progress: Progress | None = None,
    keep: int = 3,
    policy: Mapping[str, Any] | None = None,
    again: bool = True,
    put_back: bool = False,
    source: str | None = None,
    on_start: Callable[[str], None] | None = None,
) -> Release:
    """Installs ``bundle`` and makes it the release that serves.

    Once everything is sent the board works alone, as a job: it checks, refits, tests, switches,
    watches the new release and keeps it, or goes back to the one before; a Ctrl-C or a lost
    connection changes nothing about that. The same call joins what runs, carries on what was cut
    off, and sends only what is missing.

    Args:
        bundle: What to install.
        board: Where to.
        signature: OpenSSH's signature of the manifest; the bundle's own when None. Boards refuse
            a bundle without.
        progress: Called as (phase, done, total): "hello", "loader" and "send" in bytes, "download"
            (with ``source``), "stage", "refit", "selftest", "switch" and "soak" with 0 of 1 before
            and 1 of 1 after; in between "soak" in seconds.
        keep: Releases that stay on the board.
        policy: How the board judges the release: ``deploy.health`` of a configuration.
        again: Also deploy a bundle that serves already and is whole.
        put_back: Also deploy a bundle that was taken back on the board.
        source: Where the board gets the blobs itself; None to send them.
        on_start: Called with the job's id when the board works alone.

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: The board failed, or took the release back; ``where`` names it. "deploy.busy"
            when it deploys another bundle, "install.taken-back" when this one was taken back there.
    """
    step = _Steps(progress)
    signature = bundle.signature if signature is None else signature

    def check(missing: int, hello: Mapping[str, Any]) -> None:
        check_fits(bundle.manifest, hello, board.name)
        check_space(missing, hello, board.name)

    with step("hello"):
        loader_bytes = board.ensure_loader(progress)
    fetches = source is not None
    sent = send(board, bundle, signature, progress, check=check, fetches=fetches, put_back=put_back)
    policy = {"keep": keep, **(policy or {})}
    deployed: Mapping[str, Any] | None = None if again else _serving(sent, policy)
    reused = deployed is not None
    if deployed is None:
        check(0, sent.hello)
        request = {
            "app": bundle.name,
            "digest": bundle.digest,
            "policy": policy,
            "source": source,
            "operator": _operator(),
            "nonce": secrets.token_hex(8),
            # what was sent anew is tested anew
            "again": again or sent.blobs_sent > 0,
            "put_back": put_back,
        }
        deployed = follow(board, request, progress, on_start)
    return _release(bundle, board, sent, deployed, loader_bytes + len(signature or b""), reused)


def _release(
    bundle: Bundle,
    board: BoardClient,
    sent: Sent,
    deployed: Mapping[str, Any],
    more: int,
    reused: bool,
) -> Release:
    health = deployed.get("health") or {}
    golden = health.get("golden") or {}
    before = deployed["previous"]
    if before == deployed["release"]:
        before = deployed.get("fallback")
    return Release(
        id=str(deployed["release"]),
        board=board.name,
        kind=board.kind,
        app=bundle.name,
        digest=bundle.digest,
        bytes_sent=0 if reused else sent.bytes_sent + len(bundle.manifest_bytes) + more,
        bytes_reused=sent.bytes_reused,
        blobs_sent=sent.blobs_sent,
        blobs_reused=sent.blobs_reused,
        previous=before,
        hello=dict(sent.hello),
        refit=dict(deployed.get("refit") or {}),
        selftest={"ok": True, "bit_equal": bool(golden.get("bit_equal")),
                  "notes": list(health.get("notes") or ())},
        health=dict(health),
        reused=reused,
        steps=tuple(step for step in deployed.get("steps") or () if isinstance(step, Mapping)),
    )  # fmt: skip


def _serving(sent: Sent, policy: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the bundle came to serve that does; None unless it passed the same gates."""
    deployment = sent.deployment or {}
    if deployment.get("state") != "committed" or deployment.get("digest") != sent.digest:
        return None
    if deployment.get("release") != sent.serving or not deployment.get("health"):
        return None
    passed = deployment.get("policy") or {}
    if any(passed.get(gate) != policy.get(gate) for gate in _GATES):
        return None
    return deployment


class _Steps:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        if self._progress:
            self._progress(phase, 0, 1)
        yield
        if self._progress:
            self._progress(phase, 1, 1)


def _operator() -> str:
    """Who deploys, for others to read."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        name = "somebody"
    return f"{name}@{socket.gethostname()}"
