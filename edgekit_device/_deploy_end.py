"""How a deployment ends: kept, taken back or given up, and what it leaves to nobody."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict

from ._collect import collect, remove
from ._deploy_child import Progress
from ._deployment import AFTER_SWITCH, Journal, record
from ._errors import DeviceError
from ._job import JobCancelled
from ._manifest import parse
from ._offer import drop_incoming, read_incoming
from ._policy import read_policy
from ._release import restore
from ._reserve import free_reserve
from ._root import App, Root

__all__ = ["Ending", "as_device_error", "error_of", "told_back"]

# another bundle may be arriving: then the next deployment tidies up
_TIDY_S = 2.0


class Ending:
    """The last steps of a deployment; see ``Deploying`` for the arguments."""

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

    def give_up(self, error: DeviceError) -> None:
        """Ends it as it is: back to the release before where it has switched."""
        facts = self.journal.facts
        if error.code == "blob.digest-mismatch":
            self._drop_rotten()
        if self.journal.state in AFTER_SWITCH and facts["previous"] != facts["release"]:
            self._back(error)
        else:
            self._fail(error)

    def _fail(self, error: DeviceError) -> None:
        """Ends a deployment that never switched; what serves was not touched."""
        self._write("failed", error)
        self._withdraw()
        self._end()

    def _back(self, error: DeviceError) -> None:
        """Takes a deployment back that has switched. A full disk does not keep it from that."""
        facts = self.journal.facts
        free_reserve(self.app)
        self._write("rolling-back", error)
        restore(self.app, facts["previous"], facts.get("fallback"))
        with contextlib.suppress(DeviceError):
            from ._serving import reload

            reload(self.app, read_policy(facts["policy"])["timeouts"]["test_s"])
        written = self._write("rolled-back", error)
        self._withdraw()
        if not written:
            self._write("rolled-back", error)  # the release has made room
        self._end()

    def _drop_rotten(self) -> None:
        """Takes blobs out of the store whose bytes have changed: the next try sends them anew."""
        with contextlib.suppress(DeviceError, OSError), self.root.lock(shared=True):
            # each is hashed once more: memory fails too
            self.root.store.missing(parse(self._offered()[0]).sizes(), verify=True)

    def _write(self, state: str, error: DeviceError) -> bool:
        """Writes a state down; returns whether the disk has taken it."""
        told = error.to_json()["error"]
        self.tell(state, 0, 1, error.message)
        try:
            self.journal.enter(state, error=told)
        except DeviceError:
            # the links say it as well: whoever finds the journal decides the same again
            self.journal.note(state, error=told)
            return False
        return True

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
        free_reserve(self.app)
        with contextlib.suppress(DeviceError):
            record(self.app, facts)
        if self.journal.state == "committed":
            with contextlib.suppress(DeviceError):
                drop_incoming(self.root, facts["digest"])
            with contextlib.suppress(DeviceError):
                keep = read_policy(facts["policy"])["keep"]
                collect(self.root, app=self.app, keep=keep, wait_s=_TIDY_S)


def error_of(facts: Dict[str, Any]) -> DeviceError:
    """The error that a journal holds."""
    told = facts.get("error")
    fields = told if isinstance(told, dict) else {}
    return DeviceError(
        str(fields.get("message") or "it was taken back"),
        code=str(fields.get("code") or "deploy.cut-off"),
        where=str(fields.get("where") or ""),
        hint=str(fields.get("hint") or ""),
    )


def told_back(error: DeviceError, facts: Dict[str, Any]) -> DeviceError:
    """The error with where the board is now."""
    if isinstance(error, JobCancelled):
        return error
    back = facts["previous"]
    text = "the board went back to {}".format(back) if back else "nothing serves, as before"
    return DeviceError(
        "{}; {}".format(error.message, text), code=error.code, where=error.where, hint=error.hint
    )


def as_device_error(error: BaseException) -> DeviceError:
    """Any failure of the work as the board's own."""
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, MemoryError):
        return DeviceError("out of memory", code="board.no-memory")
    return DeviceError(str(error), code="board.io", where=str(getattr(error, "filename", "") or ""))


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
