"""Speaks the loader's protocol (docs/architecture.md, "On the board") to one board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgekit.deploy._answers import document, failure
from edgekit.deploy._bench_settings import BenchSettings
from edgekit.deploy._channel import LONG_S
from edgekit.deploy._sending import SendingClient
from edgekit.deploy._stages import Staged
from edgekit.deploy._streams import json_line, read_frames
from edgekit.deploy._transport import Buffer

__all__ = ["BoardClient", "Buffer"]

# what a container knows of the board itself is less than the board does
_PROBE_S = 600.0
# engines and outputs
_MOST_BYTES = 4 << 30
_OUTSIDE = ("module", "board_id", "l4t", "power", "docker", "groups", "user", "memory")


class BoardClient(SendingClient):
    """One board, connected: releases, runs, what is sent (``SendingClient``), deployments
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

    def sample(
        self, told: Callable[[dict[str, Any]], bool], *, interval_ms: int = 1000, count: int = 0
    ) -> None:
        """Has the board sampled (docs/monitoring.md), each sample told as it comes.

        Args:
            told: Gets each sample; no more come when it answers False.
            interval_ms: Between two samples.
            count: How many; 0 goes on until ``told`` has seen enough.

        Raises:
            BoardError: The board failed, or was silent for long ("board.timeout").
        """
        from edgekit.deploy._samples import take_samples

        options = (f"--interval-ms={interval_ms}", f"--count={count}", "--watch-stdin=0")
        # a container sees less of the board than the board itself
        argv = self._argv("sample", *options, outside=True)
        take_samples(self._transport, argv, told, self.name, interval_ms / 1e3)

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

    def fetch(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Returns blobs of the board's store by digest; BoardError "blob.missing" if one lacks."""
        if not digests:
            return {}
        stdin = [json_line(list(digests))]
        done = self._run(
            "fetch", self._argv("fetch"), stdin=stdin, timeout=LONG_S, most_out=_MOST_BYTES
        )
        if done.status != 0:
            raise failure(done, self.name, self.board.python)
        return read_frames(done.out, self.name, digests)

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
        settings: BenchSettings | None = None,
        *,
        release: str | None = None,
        inputs: bytes | None = None,
        progress: Callable[[str, float | None], None] | None = None,
    ) -> dict[str, Any]:
        """Measures the release on the board by trtexec's method.

        Args:
            app: Its application.
            settings: How.
            release: Which; the one that serves by default.
            inputs: An ``.npz`` with one array an input, or with several frames in a further leading
                axis. By default the bundle's samples, else its golden frames.
            progress: Told of each stage as it begins ("measure", ...) and the seconds left at
                least (None: nobody knows), in a thread of the transport's.

        Returns:
            ``edgekit.device.bench/1`` (docs/architecture.md).
        """
        settings = settings or BenchSettings()
        options = [*_which(app, release), *settings.options(), *(["--inputs"] if inputs else [])]
        staged = None if progress is None else Staged(progress)
        options += ["--progress"] if staged else []
        limit, told = LONG_S + settings.seconds(), staged.put if staged else None
        with settings.told_of_clocks(self.name):
            done = self._watched("bench", *options, data=inputs or b"", timeout=limit, told=told)
            return document(
                staged.completed(done) if staged else done, self.name, self.board.python, "bench"
            )

    def releases(self, app: str | None = None) -> dict[str, Any]:
        """Returns apps with their releases, the current and the previous one."""
        return self._ask("releases", *_which(app))

    def remove(
        self, app: str, release: str | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        """Removes a release, or without one the whole app.

        Args:
            app: The application.
            release: Which.
            reason: With the whole app: what serves is taken back by that, and why.
        """
        options = [] if reason is None else [f"--reason={reason}"]
        return self._ask("remove", *_which(app, release), *options)


def _which(app: str | None, release: str | None = None) -> list[str]:
    # an empty text goes to the board, which refuses it: it is not the same as none, which means all
    given = {"app": app, "release": release}
    return [f"--{name}={value}" for name, value in given.items() if value is not None]
