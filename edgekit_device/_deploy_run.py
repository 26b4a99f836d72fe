"""One deployment, from its journal's state to its end: committed, rolled back or failed.

Every state is journaled before its work begins, and its work may be done again: so the same code
runs a new deployment and carries on one whose process died.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Optional

from ._collect import collect, remove
from ._deploy_child import Progress, Turn, in_child
from ._deploy_soak import soak
from ._deployment import AFTER_SWITCH, BEFORE_SWITCH, Journal, record
from ._errors import DeviceError
from ._job import JobCancelled
from ._manifest import parse
from ._offer import drop_incoming, read_incoming
from ._policy import read_policy
from ._refit_release import refit_release
from ._release import is_ready, restore, stage, switch
from ._root import App, Root

__all__ = ["Deploying"]

_MOST_ATTEMPTS = 3
# another bundle may be arriving: then the next deployment tidies up
_TIDY_S = 2.0


class Deploying:
    """A deployment under its app's lock.

    Args:
        root: The installation.
        app: The app; its ``deploying`` lock is held by this process.
        journal: The deployment.
        tell: Told of progress; phases are the states.
        stopped: Raises when somebody has cancelled it or wants the release before back.
        held: The lock's descriptor.
    """

    def __init__(
        self,
        root: Root,
        app: App,
        journal: Journal,
        tell: Progress,
        stopped: Callable[[], None],
        held: int,
    ) -> None:
        self.root = root
        self.app = app
        self.journal = journal
        self.tell = tell
        self.stopped = stopped
        self._held = held
        self._done: Dict[str, Any] = {"refit": {}}

    def to_end(self) -> Dict[str, Any]:
        """Carries the deployment on from its state to its end.

        Returns:
            The journal's document, with "changed" and what the refit said as "refit".

        Raises:
            DeviceError: Why it failed or was rolled back; the journal has ended then.
        """
        facts = self.journal.facts
        attempts = int(facts.get("attempts") or 0) + 1
        if self.journal.state == "rolling-back":
            error = _error_of(facts)
            self._back(error)
            raise error
        try:
            if attempts > _MOST_ATTEMPTS:
                raise DeviceError(
                    "it was cut off {} times, the last time while {}".format(
                        attempts - 1, self.journal.state
                    ),
                    code="deploy.cut-off",
                    hint="does the release crash the board? `dmesg` and the job's log may tell",
                )
            facts["attempts"] = attempts
            return self._forward()
        except (DeviceError, OSError, MemoryError) as error:
            known = _as_device_error(error)
            self.give_up(known)
            if self.journal.state == "rolled-back":
                raise _told(known, facts) from error
            raise known from error

    def give_up(self, error: DeviceError) -> None:
        """Ends it as it is: back to the release before where it has switched."""
        facts = self.journal.facts
        if error.code == "blob.digest-mismatch":
            self._drop_rotten()
        if self.journal.state in AFTER_SWITCH and facts["previous"] != facts["release"]:
            self._back(error)
        else:
            self._fail(error)

    def _forward(self) -> Dict[str, Any]:
        facts = self.journal.facts
        if self.journal.state in BEFORE_SWITCH:
            self._prepare()
            self._enter("switching")
        self.stopped()
        switch(self.app, facts["release"])
        self._told("switching")
        self._enter("soaking")
        soak(self)
        self._told("soaking")
        # from here on it serves for good: what follows costs space, not the deployment
        self._enter("committed", error=None)
        self._end()
        return {
            **facts,
            "refit": self._done["refit"],
            "changed": facts["previous"] != facts["release"],
        }

    def _prepare(self) -> None:
        """Everything before the switch."""
        facts = self.journal.facts
        limits = read_policy(facts["policy"])["timeouts"]
        if facts.get("source"):
            self.child(self._download, {"downloading": limits["download_s"]})
        self._enter("verifying")
        manifest, signature = self._offered()
        staged = stage(
            self.root,
            manifest,
            signature,
            app=self.app.name,
            trust_unsigned=bool(facts.get("trust_unsigned")),
        )
        facts["release"] = staged.release
        if not is_ready(self.app.releases_folder / staged.release):
            from ._requires import check_requires

            check_requires(self.root, staged.checked.manifest)
        self._told("verifying")
        found = self.child(
            self._test, {"refitting": limits["refit_s"], "testing": limits["test_s"]}
        )
        self._told("testing")
        self._done["refit"] = found["refit"]
        facts["health"] = found["health"]

    def _offered(self) -> Any:
        """The manifest and its signature: as offered, or of a release that is here already."""
        digest = self.journal.facts["digest"]
        found = read_incoming(self.root, digest)
        if found is not None:
            return found
        from ._bundle import open_release

        for name in self.app.releases():
            if name.endswith("-" + digest[:12]):
                files = open_release(self.root, self.app.releases_folder / name)
                if _digest(files.manifest) == digest:
                    return files.manifest, files.signature
        raise DeviceError(
            "no bundle of that digest was offered",
            code="deploy.no-bundle",
            where=digest,
            hint="run the same command again: it is sent again",
        )

    def _download(self, turn: Turn, tell: Progress) -> Dict[str, Any]:
        turn("downloading")
        from ._bundle import BundleFiles
        from ._source import fetch_from
        from ._verify import check_bundle

        facts, store = self.journal.facts, self.root.store
        manifest, signature = self._offered()
        files = BundleFiles("the offered bundle", manifest, signature, store.read, store.has)
        trust = bool(facts.get("trust_unsigned"))
        checked = check_bundle(files, self.root.allowed_signers, trust)

        def progress(phase: str, done: int, total: int) -> None:
            tell("downloading", done, total, "")

        fetch_from(facts["source"], checked.manifest, self.root, progress)
        return {}

    def _test(self, turn: Turn, tell: Progress) -> Dict[str, Any]:
        from ._health import examine

        facts = self.journal.facts
        turn("refitting")
        folder = self.app.release(facts["release"])
        refit, model = refit_release(self.root, self.app, folder)
        turn("testing")
        health = examine(self.root, self.app, folder, facts["policy"], model)
        return {"refit": refit, "health": health}

    def child(
        self,
        work: Callable[[Turn, Progress], Dict[str, Any]],
        limits: Dict[str, float],
        journaled: bool = True,
    ) -> Dict[str, Any]:
        """Runs work in a process of its own; each state is journaled before it begins there."""

        def on_turn(state: str) -> Optional[float]:
            if journaled:
                self._enter(state)
            return limits.get(state)

        return in_child(work, on_turn, self.tell, self.stopped, [self._held])

    def _enter(self, state: str, **facts: Any) -> None:
        self.journal.enter(state, **facts)
        self.tell(state, 0, 1, "")

    def _told(self, state: str) -> None:
        self.tell(state, 1, 1, "")

    def _fail(self, error: DeviceError) -> None:
        """Ends a deployment that never switched; what serves was not touched."""
        self._write("failed", error)
        self._withdraw()
        self._end()

    def _back(self, error: DeviceError) -> None:
        """Takes a deployment back that has switched. A full disk does not keep it from that."""
        facts = self.journal.facts
        self._write("rolling-back", error)
        restore(self.app, facts["previous"], facts.get("fallback"))
        with contextlib.suppress(DeviceError):
            from ._serving import reload

            reload(self.app, read_policy(facts["policy"])["timeouts"]["test_s"])
        self._write("rolled-back", error)
        self._withdraw()
        self._end()

    def _drop_rotten(self) -> None:
        """Takes blobs out of the store whose bytes have changed: the next try sends them anew."""
        with contextlib.suppress(DeviceError, OSError), self.root.lock(shared=True):
            # each is hashed once more: memory fails too
            self.root.store.missing(parse(self._offered()[0]).sizes(), verify=True)

    def _write(self, state: str, error: DeviceError) -> None:
        told = error.to_json()["error"]
        self.tell(state, 0, 1, error.message)
        try:
            self.journal.enter(state, error=told)
        except DeviceError:
            # the links say it as well: whoever finds the journal decides the same again
            self.journal.note(state, error=told)

    def _withdraw(self) -> None:
        """Removes a release that this deployment made and that does not serve."""
        facts = self.journal.facts
        release = facts.get("release")
        if release is None:
            named = [n for n in self.app.releases() if n.endswith("-" + facts["digest"][:12])]
            release = named[-1] if named else None
        kept = (facts["previous"], self.app.link("current"), self.app.link("previous"))
        if facts.get("known") or release is None or release in kept:
            return
        with contextlib.suppress(DeviceError):
            remove(self.root, self.app, release)

    def _end(self) -> None:
        """The history's line, and what nobody needs any more; all of it may be done again."""
        facts = self.journal.facts
        with contextlib.suppress(DeviceError):
            record(self.app, facts)
        if self.journal.state == "committed":
            with contextlib.suppress(DeviceError):
                drop_incoming(self.root, facts["digest"])
            with contextlib.suppress(DeviceError):
                keep = read_policy(facts["policy"])["keep"]
                collect(self.root, app=self.app, keep=keep, wait_s=_TIDY_S)


def _error_of(facts: Dict[str, Any]) -> DeviceError:
    told = facts.get("error")
    fields = told if isinstance(told, dict) else {}
    return DeviceError(
        str(fields.get("message") or "it was taken back"),
        code=str(fields.get("code") or "deploy.cut-off"),
        where=str(fields.get("where") or ""),
        hint=str(fields.get("hint") or ""),
    )


def _told(error: DeviceError, facts: Dict[str, Any]) -> DeviceError:
    """The error with where the board is now."""
    if isinstance(error, JobCancelled):
        return error
    back = facts["previous"]
    text = "the board went back to {}".format(back) if back else "nothing serves, as before"
    return DeviceError(
        "{}; {}".format(error.message, text), code=error.code, where=error.where, hint=error.hint
    )


def _as_device_error(error: BaseException) -> DeviceError:
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, MemoryError):
        return DeviceError("out of memory", code="board.no-memory")
    return DeviceError(str(error), code="board.io", where=str(getattr(error, "filename", "") or ""))


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
