"""One deployment from its journal's state to its end: committed, rolled back or failed.

Every state is journaled before its work begins, and its work may be done again: so the same code
runs a new deployment and carries on one whose process died. The space that going back takes is
reserved before the switch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import Any, Callable, Dict, Optional

from edgekit_device.deployment.health import examine
from edgekit_device.deployment.request import Policy, read_policy
from edgekit_device.errors import DeviceError, counted, map_os_errors
from edgekit_device.jobs.job import JobCancelled
from edgekit_device.processes import ChildDied, ChildTooSlow, Report, Turn, in_child
from edgekit_device.protocol.manifest import parse
from edgekit_device.release.collect import collect, remove
from edgekit_device.release.download import fetch_from
from edgekit_device.release.journal import AFTER_SWITCH, BEFORE_SWITCH, DeploymentJournal, record
from edgekit_device.release.offer import drop_incoming, read_incoming
from edgekit_device.release.releases import is_ready, restore, stage, switch
from edgekit_device.release.requirements import check_requires
from edgekit_device.runtime.refit import refit_release
from edgekit_device.serve.messages import reload, serving
from edgekit_device.store.root import App, Root
from edgekit_device.trust.bundle import BundleFiles, check_bundle, open_release
from edgekit_device.trust.counters import count, issued_facts

_MOST_ATTEMPTS = 3
_SOAK_POLL_S = 0.25
# another bundle may be arriving: then the next deployment tidies up
_TIDY_S = 2.0
# the space that going back takes: as many files as are new at once while links change, and more
# than each of them holds
_RESERVED = ("reserve.0", "reserve.1", "reserve.2")
_RESERVED_BYTES = 64 * 1024


class Deployment:
    """A deployment under its app's lock.

    Args:
        root: The installation.
        app: The app; its ``deploying`` lock is held by this process.
        journal: The deployment.
        on_progress: Called with progress; phases are the states.
        stopped: Raises if it was cancelled or a rollback was requested.
        held: The lock's descriptor.
    """

    def __init__(
        self,
        root: Root,
        app: App,
        journal: DeploymentJournal,
        on_progress: Report,
        stopped: Callable[[], None],
        held: int,
    ) -> None:
        self.root = root
        self.app = app
        self.journal = journal
        self.on_progress = on_progress
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
            error = error_of(facts)
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
            known = as_device_error(error)
            self.give_up(known)
            if self.journal.state == "rolled-back":
                raise rolled_back_error(known, facts) from error
            raise known from error

    def _forward(self) -> Dict[str, Any]:
        facts = self.journal.facts
        if self.journal.state in BEFORE_SWITCH:
            self._prepare()
            keep_reserve(self.app)
            self._enter("switching")
        self.stopped()
        switch(self.app, facts["release"])
        self._report_done("switching")
        self._enter("soaking")
        soak(self)
        self._report_done("soaking")
        free_reserve(self.app, 1)
        # before it counts as done: a power cut in between soaks again, and counts again
        count(self.root, self.app.name, facts["digest"], facts.get("issued"))
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
        limits = read_policy(facts["policy"]).timeouts
        if facts.get("source"):
            self.child(self._download, {"downloading": limits.download_s})
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
        facts["issued"] = issued_facts(staged.checked)
        if not is_ready(self.app.releases_folder / staged.release):
            check_requires(self.root, staged.checked.manifest)
        self._report_done("verifying")
        found = self.child(self._test, {"refitting": limits.refit_s, "testing": limits.test_s})
        self._report_done("testing")
        self._done["refit"] = found["refit"]
        facts["health"] = found["health"]

    def _download(self, turn: Turn, on_progress: Report) -> Dict[str, Any]:
        turn("downloading")
        facts, store = self.journal.facts, self.root.store
        manifest, signature = self._offered()
        files = BundleFiles("the offered bundle", manifest, signature, store.read, store.has)
        trust = bool(facts.get("trust_unsigned"))
        checked = check_bundle(files, self.root.allowed_signers, trust)

        def progress(phase: str, done: int, total: int) -> None:
            on_progress("downloading", done, total, "")

        fetch_from(facts["source"], checked.manifest, self.root, progress)
        return {}

    def _test(self, turn: Turn, on_progress: Report) -> Dict[str, Any]:
        facts = self.journal.facts
        turn("refitting")
        folder = self.app.release(facts["release"])
        refit, model = refit_release(self.root, self.app, folder)
        turn("testing")
        health = examine(self.root, self.app, folder, facts["policy"], model)
        return {"refit": refit, "health": health}

    def child(
        self,
        work: Callable[[Turn, Report], Dict[str, Any]],
        limits: Dict[str, float],
        journaled: bool = True,
    ) -> Dict[str, Any]:
        """Runs work in a process of its own; each state is journaled before it begins there."""

        def on_turn(state: str) -> Optional[float]:
            if journaled:
                self._enter(state)
            return limits.get(state)

        try:
            found: Dict[str, Any] = in_child(
                work, on_turn=on_turn, on_report=self.on_progress, stopped=self.stopped,
                closes=[self._held],
            )  # fmt: skip
        except ChildDied as error:
            raise DeviceError(
                "the process that was {} died: {}".format(error.state or "starting", error.cause),
                code="deploy.crashed",
                hint="`dmesg` on the board tells of memory that ran out; the job's log ends with "
                "what it did last",
            ) from error
        except ChildTooSlow as error:
            raise DeviceError(
                str(error),
                code="deploy.timeout",
                hint="give it more with deploy.health.timeouts, if it does not hang",
            ) from error
        return found

    def _enter(self, state: str, **facts: Any) -> None:
        self.journal.enter(state, **facts)
        self.on_progress(state, 0, 1, "")

    def _report_done(self, state: str) -> None:
        self.on_progress(state, 1, 1, "")

    def _offered(self) -> Any:
        """The manifest and its signature: as offered, or of a release that is here already."""
        digest = self.journal.facts["digest"]
        found = read_incoming(self.root, digest)
        if found is not None:
            return found
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
            reload(self.app, read_policy(facts["policy"]).timeouts.test_s)
        written = self._write("rolled-back", error)
        self._withdraw()
        if not written:
            self._write("rolled-back", error)  # removing the release has freed space
        self._end()

    def _drop_rotten(self) -> None:
        """Takes blobs out of the store whose bytes have changed: the next try sends them anew."""
        with contextlib.suppress(DeviceError, OSError), self.root.lock(shared=True):
            # each is hashed once more: memory fails too
            self.root.store.missing(parse(self._offered()[0]).sizes(), verify=True)

    def _write(self, state: str, error: DeviceError) -> bool:
        """Writes a state down; returns whether the disk has taken it."""
        fields = error.to_json()["error"]
        self.on_progress(state, 0, 1, error.message)
        try:
            self.journal.enter(state, error=fields)
        except DeviceError:
            # the links say it as well: whoever finds the journal decides the same again
            self.journal.note(state, error=fields)
            return False
        return True

    def _withdraw(self) -> None:
        """Removes a release that this deployment made and that does not serve."""
        facts = self.journal.facts
        release = facts.get("release")
        if release is None:
            named = [n for n in self.app.releases() if n.endswith("-" + facts["digest"][:12])]
            release = named[-1] if named else None
        in_use = (facts["previous"], self.app.link("current"), self.app.link("previous"))
        if facts.get("known") or release is None or release in in_use:
            return
        with contextlib.suppress(DeviceError):
            remove(self.root, self.app, release)

    def _end(self) -> None:
        """Writes the history's line and removes what is no longer needed; may be done again."""
        facts = self.journal.facts
        free_reserve(self.app)
        with contextlib.suppress(DeviceError):
            record(self.app, facts)
        if self.journal.state == "committed":
            with contextlib.suppress(DeviceError):
                drop_incoming(self.root, facts["digest"])
            with contextlib.suppress(DeviceError):
                keep = read_policy(facts["policy"]).keep
                collect(self.root, app=self.app, keep=keep, wait_s=_TIDY_S)


def soak(run: Deployment) -> None:
    """Examines the release that serves, once and then every ``soak_every_s`` for ``soak_s``.

    Where a server runs, it has to take the release, and to answer without errors of its own.

    Raises:
        DeviceError: What the release failed with: as ``examine``, as ``reload``, or
            "health.serving".
    """
    policy = read_policy(run.journal.facts["policy"])
    until = time.monotonic() + policy.soak_s
    known = _taken(run, policy.timeouts.test_s)
    while True:
        _examine(run, policy)
        known = _watch(run, known)
        left = until - time.monotonic()
        if left <= 0:
            return
        pause = time.monotonic() + min(left, policy.soak_every_s)
        while time.monotonic() < pause:
            run.stopped()
            total = max(1, int(policy.soak_s))
            run.on_progress("soaking", total - int(max(0.0, until - time.monotonic())), total, "")
            time.sleep(min(_SOAK_POLL_S, max(0.0, pause - time.monotonic())))


def _examine(run: Deployment, policy: Policy) -> None:
    facts = run.journal.facts
    checks = dict(facts["policy"])
    if policy.latency_ms is None:
        checks["measure_s"] = 0.0  # its figures were taken before it served, with the board's time

    def work(turn: Turn, on_progress: Report) -> Dict[str, Any]:
        turn("soaking")
        folder = run.app.release(facts["release"])
        return examine(run.root, run.app, folder, checks, keeps=False)

    run.child(work, {"soaking": policy.timeouts.test_s}, journaled=False)


def _taken(run: Deployment, limit_s: float) -> Optional[Dict[str, Any]]:
    """Has a server take the release; None where none runs."""
    found = reload(run.app, limit_s)
    if found is not None and found["release"] != run.journal.facts["release"]:
        why = _last_error(found) or "it answers with {}".format(found["release"])
        raise _bad(run, "the server did not take the release: {}".format(why))
    return found


def _watch(run: Deployment, known: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Compares a server's counters with those of before."""
    found = serving(run.app)
    if found is None or known is None or found["pid"] != known["pid"]:
        if found is None and known is not None:
            raise _bad(run, "the server ended")
        return found
    for what in ("error", "restart"):
        more = int(found.get(what + "s") or 0) - int(known.get(what + "s") or 0)
        if more > 0:
            last = _last_error(found)
            raise _bad(
                run,
                counted(more, "new " + what) + (": " + last if last else ""),
            )
    return found


def _last_error(found: Dict[str, Any]) -> str:
    last = found.get("last_error")
    return str(last.get("message") or "") if isinstance(last, dict) else ""


def _bad(run: Deployment, text: str) -> DeviceError:
    return DeviceError(
        "the release does not serve well: {}".format(text),
        code="health.serving",
        where="{}/{}".format(run.app.name, run.journal.facts["release"]),
        hint="`edgekit status` shows what serves and its last error",
    )


def error_of(facts: Dict[str, Any]) -> DeviceError:
    """The error that a journal holds."""
    found = facts.get("error")
    fields = found if isinstance(found, dict) else {}
    return DeviceError(
        str(fields.get("message") or "it was taken back"),
        code=str(fields.get("code") or "deploy.cut-off"),
        where=str(fields.get("where") or ""),
        hint=str(fields.get("hint") or ""),
    )


def rolled_back_error(error: DeviceError, facts: Dict[str, Any]) -> DeviceError:
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
    return hashlib.sha256(data).hexdigest()


def keep_reserve(app: App) -> None:
    """Reserves space for going back: a journal, a note of the links and a link.

    On a disk without a byte or an inode left none of them could be written.

    Raises:
        DeviceError: "board.disk-full": then nothing should be switched.
    """
    for name in _RESERVED:
        path = str(app.folder / name)
        with map_os_errors(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(handle, 0, _RESERVED_BYTES)
            finally:
                os.close(handle)


def free_reserve(app: App, files: int = len(_RESERVED)) -> None:
    """Frees ``files`` reserved files, if there are any; one is enough for a journal."""
    for name in _RESERVED[-files:]:
        with contextlib.suppress(OSError):
            (app.folder / name).unlink()
