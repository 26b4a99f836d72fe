"""Speaks the loader's protocol (docs/architecture.md, "On the board") to one board."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgekit.deploy._answers import failure
from edgekit.deploy._channel import LONG_S, SHORT_S
from edgekit.deploy._deliver import deliver
from edgekit.deploy._deployments import DeploymentClient
from edgekit.deploy._lanes import Heap
from edgekit.deploy._offering import offer
from edgekit.deploy._streams import json_line, read_frames
from edgekit.deploy._transport import Buffer
from edgekit.deploy._types import Progress

__all__ = ["BoardClient", "Buffer"]

# what a container knows of the board itself is less than the board does
_PROBE_S = 600.0
# engines and outputs
_MOST_BYTES = 4 << 30
_OUTSIDE = ("module", "board_id", "l4t", "power", "docker", "groups", "user", "memory")


class BoardClient(DeploymentClient):
    """One board, connected: releases, blobs, runs, deployments
    (``DeploymentClient``) and jobs (``JobClient``)."""

    def hello(self) -> dict[str, Any]:
        """Returns the board's versions, backends, root and free bytes."""
        return self._ask("hello")

    def probe(self) -> dict[str, Any]:
        """Returns ``edgekit.probe/1``: all that a build needs to know, JetPack filled in.

        Of a board whose loader runs in a container, what only the board itself can tell is from
        there, and the software is the container's.
        """
        from edgekit.targets import jetpack_of_l4t

        found = self._ask("probe", timeout=_PROBE_S)
        if self.board.container:
            outside = self._ask_outside("probe", "--remember")
            found.update({name: outside[name] for name in _OUTSIDE})
            found["dla"]["devices"] = outside["dla"]["devices"]
            found["notes"] = [f"board: {note}" for note in outside["notes"]] + [
                f"container: {note}" for note in found["notes"]
            ]
        found["jetpack"] = jetpack_of_l4t(found["l4t"]) if found["l4t"] else None
        return found

    def setup(self, *, undo: bool = False, apply: bool = False) -> dict[str, Any]:
        """Says what `doctor --setup` changes on the board itself, or changes it.

        Returns:
            "state" ("shown", "applied", "undone", "unneeded", "by-hand" or "failed"), "text" for
            people, "sudoers", "groups" and "script".
        """
        options = [*(["--undo"] if undo else []), *(["--apply"] if apply else [])]
        return self._ask_outside("setup", *options)

    def trust(self, lines: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
        """Says who may sign, and changes it.

        Args:
            lines: To add, in the form of OpenSSH's allowed_signers.
            changes: "new" (lines to add whose keys are not trusted yet), "remove" (fingerprints,
                identities or keys), "force" (whether the last key may go), "revoke" (public keys),
                "signers" (all lines, instead of those that are there) and "revocations" (base64 of
                a KRL or a list of keys, instead of the one that is there).

        Returns:
            "added", "removed", "revoked", "signers" (identities), "keys", "revocations" and
            "refused" (releases whose signatures the board does not believe any more).
        """
        return self._ask("trust", stdin=[json_line({"lines": list(lines), **changes})])

    def missing(self, digests: Iterable[str], *, verify: bool = False) -> tuple[str, ...]:
        """Returns which blobs the board lacks; ``verify`` reads those that it has again."""
        options = ["--verify"] if verify else []
        timeout = LONG_S if verify else SHORT_S
        answer = self._ask("missing", *options, stdin=[json_line(list(digests))], timeout=timeout)
        return tuple(answer["missing"])

    def offer(self, manifest: bytes, signature: bytes | None, app: str) -> dict[str, Any]:
        """Announces a bundle: first by its digest, and where it is new with its manifest.

        Returns:
            "digest", "app", "signer", "missing" (a list of [digest, bytes of it that are kept]),
            "serving" (the release that serves this very bundle, whole, or None), "deployment" (how
            that came to serve, or None) and "hello", as the command.
        """
        return offer(self._offer, manifest, signature, app)

    def _offer(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask("offer", "--hello", stdin=[json_line(document)])

    def receive(
        self,
        blobs: Mapping[str, Buffer],
        progress: Progress | None = None,
        *,
        kept: Mapping[str, int] | None = None,
    ) -> int:
        """Sends blobs by digest and returns the bytes sent; what arrives stays, also in part.

        Args:
            blobs: Bytes by digest.
            progress: Called in this thread with phase "send" and bytes.
            kept: Bytes of blobs that the board has already, by digest, as ``offer`` told them.
        """
        if not blobs:
            return 0
        heap = Heap(blobs, kept or {}, progress)
        argv = self._argv("receive")
        apart = deliver(heap, argv, self._transport, self.name, self.board.python)
        self._apart += heap.to_send if apart else 0
        return heap.to_send

    def wire_bytes(self) -> int | None:
        """Returns the bytes that went over the wire so far, both ways; None where nobody counts.

        What OpenSSH's client carried on connections of its own counts with its payload.
        """
        count = getattr(self._transport, "wire_bytes", None)
        carried = None if count is None else count()
        return None if carried is None else int(carried) + self._apart

    def fetch(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Returns blobs of the board's store by digest; BoardError "blob.missing" if one lacks."""
        if not digests:
            return {}
        stdin = [json_line(list(digests))]
        done = self._transport.run(
            self._argv("fetch"), stdin=stdin, timeout=LONG_S, most_out=_MOST_BYTES
        )
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        return read_frames(done.out, self.name, digests)

    def verify(self, manifest: bytes, signature: bytes | None) -> dict[str, Any]:
        """Checks what ``stage`` checks first, before any blob is sent: signature and manifest."""
        return self._ask("verify", stdin=_envelope(manifest, signature))

    def stage(self, manifest: bytes, signature: bytes | None) -> dict[str, Any]:
        """Makes a release of a manifest whose blobs are there, after checking its signature."""
        return self._ask("stage", stdin=_envelope(manifest, signature), timeout=LONG_S)

    def refit(self, app: str, release: str | None = None) -> dict[str, Any]:
        """Fills the release's stripped engines from the board's store."""
        return self._ask_watched("refit", *_which(app, release), timeout=LONG_S)

    def selftest(self, app: str, release: str | None = None) -> dict[str, Any]:
        """Runs the golden vectors; BoardError "selftest.failed" when one is off."""
        return self._ask_watched("selftest", *_which(app, release), timeout=LONG_S)

    def switch(self, app: str, release: str) -> dict[str, Any]:
        """Makes ``release`` the one that serves."""
        return self._ask("switch", *_which(app, release))

    def infer(
        self, app: str, npz: bytes, *, release: str | None = None, frames: bool = False
    ) -> bytes:
        """Runs the release on an ``.npz`` of inputs and returns one of outputs."""
        options = [*_which(app, release), *(["--frames"] if frames else [])]
        done = self._watched("infer", *options, data=npz, timeout=LONG_S, most_out=_MOST_BYTES)
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        start = done.out.find(b"PK")  # after whatever the board's shell may print
        return done.out[max(start, 0) :]

    def bench(
        self,
        app: str,
        *,
        release: str | None = None,
        warmup_ms: float = 200.0,
        duration_s: float = 3.0,
        iterations: int = 10,
        profile: bool = False,
        threads: int = 0,
    ) -> dict[str, Any]:
        """Measures the release on the board by trtexec's method."""
        options = [
            *_which(app, release),
            f"--warmup-ms={warmup_ms:g}",
            f"--duration-s={duration_s:g}",
            f"--iterations={iterations}",
            f"--threads={threads}",
            *(["--profile"] if profile else []),
        ]
        return self._ask_watched("bench", *options, timeout=LONG_S + 4 * duration_s)

    def releases(self, app: str | None = None) -> dict[str, Any]:
        """Returns apps with their releases, the current and the previous one."""
        return self._ask("releases", *([f"--app={app}"] if app else []))

    def remove(self, app: str, release: str | None = None) -> dict[str, Any]:
        """Removes a release, or without one the whole app."""
        return self._ask("remove", *_which(app, release))

    def gc(self, app: str, keep: int) -> dict[str, Any]:
        """Removes the app's oldest releases beyond ``keep``, and blobs that nothing names."""
        return self._ask("gc", f"--app={app}", f"--keep={keep}", timeout=LONG_S)


def _which(app: str, release: str | None) -> list[str]:
    return [f"--app={app}", *([f"--release={release}"] if release else [])]


def _envelope(manifest: bytes, signature: bytes | None) -> list[bytes]:
    text = None if signature is None else signature.decode("utf-8")
    return [json_line({"manifest": manifest.decode("utf-8"), "signature": text})]
