"""Installs a bundle on a board: ship what is missing, stage, refit, self-test, switch."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

from edgekit.deploy._client import BoardClient, Buffer
from edgekit.deploy._types import Progress, Release
from edgekit.errors import BoardError, BundleError, EdgekitError

__all__ = ["Shipment", "install"]


class Shipment(Protocol):
    """What ``install`` needs of a bundle: its manifest's bytes, and its blobs by SHA-256.

    ``blobs`` are the engines and golden outputs, ``weights`` the tensors that were stripped.
    """

    @property
    def manifest_bytes(self) -> bytes: ...

    @property
    def blobs(self) -> Mapping[str, Any]: ...

    @property
    def weights(self) -> Mapping[str, Any]: ...


def install(
    bundle: Shipment,
    board: BoardClient,
    *,
    signature: bytes | None = None,
    progress: Progress | None = None,
    keep: int = 3,
) -> Release:
    """Installs ``bundle`` and makes it the release that serves.

    Until the board has switched, which is the last step and one rename, the release of before
    serves; whatever fails before that (a Ctrl-C too) removes the new release. Blobs that arrived
    whole stay for the next try.

    Args:
        bundle: What to install.
        board: Where to.
        signature: OpenSSH's signature of the manifest; None for an unsigned one, which boards
            refuse.
        progress: Called as (phase, done, total): "hello", "loader" and "send" in bytes, "stage",
            "refit", "selftest", "switch" with 0 of 1 before and 1 of 1 after.
        keep: Releases that stay on the board.

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: The board failed; ``where`` names it.
    """
    step = _Steps(progress)
    facts = _facts(bundle.manifest_bytes)
    app = str(facts["name"])
    with step("hello"):
        loader_bytes = board.ensure_loader(progress)
        hello = board.hello()
        _check_fits(facts, hello, board.name)
    payload = {
        **{digest: _buffer(value) for digest, value in bundle.weights.items()},
        **{digest: _buffer(value) for digest, value in bundle.blobs.items()},
    }
    lacking = dict.fromkeys(board.missing(payload))
    to_send = {digest: payload[digest] for digest in payload if digest in lacking}
    sent = sum(len(data) for data in to_send.values())
    _check_space(sent, hello, board.name)
    board.receive(to_send, progress)
    release = ""
    try:
        with step("stage"):
            release = str(board.stage(bundle.manifest_bytes, signature)["release"])
        with step("refit"):
            refit = board.refit(app, release)
        with step("selftest"):
            selftest = board.selftest(app, release)
        with step("switch"):
            switched = board.switch(app, release)
    except BaseException:
        if release:
            _withdraw(board, app, release)
        raise
    # what is left over costs space, not the deployment
    with contextlib.suppress(EdgekitError):
        board.gc(app, keep)
    signed = len(signature) if signature else 0
    return Release(
        id=release,
        board=board.name,
        kind=board.kind,
        app=app,
        digest=hashlib.sha256(bundle.manifest_bytes).hexdigest(),
        bytes_sent=loader_bytes + sent + len(bundle.manifest_bytes) + signed,
        bytes_reused=sum(len(data) for data in payload.values()) - sent,
        blobs_sent=len(to_send),
        blobs_reused=len(payload) - len(to_send),
        previous=switched.get("previous"),
        hello=hello,
        refit=refit,
        selftest=selftest,
    )


class _Steps:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Any:
        if self._progress:
            self._progress(phase, 0, 1)
        yield
        if self._progress:
            self._progress(phase, 1, 1)


def _withdraw(board: BoardClient, app: str, release: str) -> None:
    """Removes a release that will not serve, if the board can still be asked to."""
    with contextlib.suppress(EdgekitError):
        state = board.releases(app)["apps"].get(app, {})
        if release not in (state.get("current"), state.get("previous")):
            board.remove(app, release)


def _facts(manifest: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(manifest)
        if isinstance(facts, dict) and isinstance(facts.get("name"), str):
            return facts
    except ValueError:
        pass
    raise BundleError(
        "the bundle's manifest cannot be read",
        code="bundle.malformed",
        where="manifest.json",
        hint="make the bundle again with `edgekit bundle`",
    )


def _check_fits(facts: Mapping[str, Any], hello: Mapping[str, Any], where: str) -> None:
    """Refuses a board that cannot run what the bundle was built for, before anything is sent."""
    backend = str(facts.get("backend"))
    needed = facts.get("fingerprint")
    fingerprint = needed if isinstance(needed, dict) else {}
    runtime = str(fingerprint.get("runtime") or "")
    if runtime in hello and hello[runtime] is None:
        raise BundleError(
            f"the bundle needs {runtime} {fingerprint.get('runtime_version', '')}".rstrip()
            + ", which the board does not have",
            code="bundle.no-runtime",
            where=where,
            hint=f"install {runtime} for {hello.get('python') or 'the Python'} there, or name "
            "another interpreter with `python:`",
        )
    offered = [str(name) for name in hello.get("backends") or ()]
    if backend not in offered:
        raise BundleError(
            f"the bundle was built by the {backend} backend, the board runs "
            f"{', '.join(offered) or 'none'}",
            code="bundle.backend",
            where=where,
            hint="build for a backend that the board has",
        )


def _check_space(sent: int, hello: Mapping[str, Any], where: str) -> None:
    free = hello.get("free_bytes")
    if isinstance(free, int) and sent > free:
        raise BoardError(
            f"the bundle needs {sent:,} bytes more, {free:,} are free on the board",
            code="board.disk-full",
            where=where,
            hint="free space there, or give the board another `root:`",
        )


def _buffer(value: Any) -> Buffer:
    """Returns the bytes of a blob that is bytes or an array in C order."""
    if isinstance(value, bytes):
        return value
    view = memoryview(value)
    return view.cast("B") if view.nbytes else b""
