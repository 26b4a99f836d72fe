"""Installs a bundle on a board: ship what is missing, stage, refit, self-test, switch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.deploy._client import BoardClient, Buffer
from edgekit.deploy._types import Progress, Release
from edgekit.errors import BoardError, BundleError, EdgekitError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.bundle import Bundle

__all__ = ["install"]


def install(
    bundle: Bundle,
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
        signature: OpenSSH's signature of the manifest; the bundle's own when None. Boards refuse
            a bundle without.
        progress: Called as (phase, done, total): "hello", "loader" and "send" in bytes, "stage",
            "refit", "selftest", "switch" with 0 of 1 before and 1 of 1 after.
        keep: Releases that stay on the board.

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: The board failed; ``where`` names it.
    """
    step = _Steps(progress)
    signature = bundle.signature if signature is None else signature
    sizes = _sizes(bundle)
    with step("hello"):
        loader_bytes = board.ensure_loader(progress)
        hello = board.hello()
        _check_fits(bundle.manifest, hello, board.name)
        # stage checks it again; here so that nothing of a bundle that is refused is sent
        board.verify(bundle.manifest_bytes, signature)
    to_send = _payload(bundle, board.missing(sizes), board.name)
    sent = sum(len(data) for data in to_send.values())
    _check_space(sent, hello, board.name)
    board.receive(to_send, progress)
    release = ""
    try:
        with step("stage"):
            release = str(board.stage(bundle.manifest_bytes, signature)["release"])
        with step("refit"):
            refit = board.refit(bundle.name, release)
        with step("selftest"):
            selftest = board.selftest(bundle.name, release)
        with step("switch"):
            switched = board.switch(bundle.name, release)
    except BaseException:
        if release:
            _withdraw(board, bundle.name, release)
        raise
    # what is left over costs space, not the deployment
    with contextlib.suppress(EdgekitError):
        board.gc(bundle.name, keep)
    signed = len(signature) if signature else 0
    return Release(
        id=release,
        board=board.name,
        kind=board.kind,
        app=bundle.name,
        digest=bundle.digest,
        bytes_sent=loader_bytes + sent + len(bundle.manifest_bytes) + signed,
        bytes_reused=sum(sizes.values()) - sent,
        blobs_sent=len(to_send),
        blobs_reused=len(sizes) - len(to_send),
        previous=switched.get("previous"),
        hello=hello,
        refit=refit,
        selftest=selftest,
    )


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


def _withdraw(board: BoardClient, app: str, release: str) -> None:
    """Removes a release that will not serve, if the board can still be asked to."""
    with contextlib.suppress(EdgekitError):
        state = board.releases(app)["apps"].get(app, {})
        if release not in (state.get("current"), state.get("previous")):
            board.remove(app, release)


def _sizes(bundle: Bundle) -> dict[str, int]:
    """Returns the bytes of everything that the board must have, by digest."""
    blobs = {digest: int(blob["bytes"]) for digest, blob in bundle.manifest["blobs"].items()}
    return {**bundle.weight_bytes, **blobs}


def _payload(bundle: Bundle, lacking: Sequence[str], where: str) -> dict[str, Buffer]:
    """Returns what to send; a stripped bundle can only go where its weights already are."""
    have = {**bundle.weights, **bundle.blobs}
    absent = set(lacking) - set(have)
    if absent:
        names = [n for n, w in bundle.manifest["weights"].items() if w["digest"] in absent]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise BundleError(
            f"neither the bundle nor the board has the weights {shown or 'and blobs it names'}",
            code="bundle.stripped",
            where=where,
            hint="deploy the full bundle, or from the configuration that it was built from",
        )
    return {digest: _buffer(have[digest]) for digest in lacking}


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


def _buffer(blob: bytes | memoryview | np.ndarray) -> Buffer:
    """Returns a blob's bytes, in C order, without a copy where it is contiguous."""
    if isinstance(blob, (bytes, memoryview)):
        return blob
    import numpy as np

    return np.ascontiguousarray(blob).reshape(-1).view(np.uint8).data
