"""A deployment as a table of states (``STATES``): for each state the changes that are durable
before it, its work, and the next state after its work or after a failure.

A state is durable in the journal before its work begins, and its work may be repeated: so the same
code runs a new deployment and continues a deployment whose process died. Start with
``Deployment.run_to_end``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import replace
from typing import Callable, Dict, Optional, Tuple, Type, TypeVar

from edgekit_device.deployment.health import examine
from edgekit_device.errors import DeviceError, counted, map_os_errors
from edgekit_device.jobs.job import JobCancelled
from edgekit_device.processes import ChildDied, ChildTooSlow, Report, Turn, run_in_child
from edgekit_device.protocol.codec import document, member, read, record
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.server import query_server, reload_server
from edgekit_device.protocol.serving import ServingStatus
from edgekit_device.release.changed import Health
from edgekit_device.release.collect import collect, remove
from edgekit_device.release.journal import (
    BEFORE_SWITCH,
    DeploymentJournal,
    DeploymentResult,
    RefitReport,
    record_end,
)
from edgekit_device.release.offer import drop_incoming, read_incoming
from edgekit_device.release.policy import Policy
from edgekit_device.release.releases import is_ready, restore, stage, switch
from edgekit_device.release.requirements import check_requires
from edgekit_device.runtime.refit import refit_release
from edgekit_device.store.root import App, Root
from edgekit_device.trust.bundle import open_release
from edgekit_device.trust.counters import check_install, record_counter, seen_issue

_MOST_ATTEMPTS = 3
_SOAK_POLL_S = 0.25
# another bundle may be arriving: then the next deployment cleans up
_TIDY_S = 2.0
# the space for a rollback: as many files as are new at once while links change, each larger than
# any of those
_RESERVED = ("reserve.0", "reserve.1", "reserve.2")
_RESERVED_BYTES = 64 * 1024

_Found = TypeVar("_Found")


@document(frozen=True)
class _Tested:
    """The result of a child that refits and tests a release."""

    refit: RefitReport = member(record(RefitReport))
    health: Health = member(record(Health))


class Deployment:
    """A deployment under its app's lock.

    Args:
        root: The installation.
        app: The app; its ``deploying`` lock is held by this process.
        journal: The deployment.
        on_progress: Called with progress; phases are the states.
        stopped: Raises an error if it was cancelled or a rollback was requested.
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
        self._refit = RefitReport()

    @property
    def policy(self) -> Policy:
        """The release's checks and their limits."""
        return self.journal.facts.policy

    def run_to_end(self) -> DeploymentResult:
        """Runs the deployment from its state to its end.

        Returns:
            The journal's document, with a flag if another release serves and the refit's report.

        Raises:
            DeviceError: It failed or was rolled back, for this reason; the journal has ended.
        """
        journal = self.journal
        if journal.state == "rolling-back":
            failure = journal.facts.error
            cut_off = Failure("deploy.cut-off", "it was rolled back", "", "")
            error = (failure or cut_off).error()
            self._fail(error, "rolling-back")
            raise error
        try:
            # counts starts: a release that crashes the board would do so after each boot
            attempts = journal.facts.attempts + 1
            if attempts > _MOST_ATTEMPTS:
                raise DeviceError(
                    "it was interrupted {} times, most recently while {}".format(
                        attempts - 1, journal.state
                    ),
                    code="deploy.cut-off",
                    hint="check whether the release crashes the board: `dmesg` and the job's log",
                )
            journal.update(attempts=attempts)
            self._advance()
        except (DeviceError, OSError, MemoryError) as error:
            known = as_device_error(error)
            self.give_up(known)
            if journal.state == "rolled-back":
                raise self._rolled_back_error(known) from error
            raise known from error
        facts = journal.facts
        changed = facts.previous != facts.release
        return DeploymentResult(**vars(facts), refit=self._refit, changed=changed)

    def _advance(self) -> None:
        """Follows the table from the journal's state to "committed"."""
        state: Optional[str] = self.journal.state
        # nothing serves yet: the checks are repeated, since board and store may have changed
        if state in BEFORE_SWITCH:
            state = "verifying"
        while state is not None:
            row = STATES[state]
            # may fail, for example for lack of space: then the state has not begun
            row.first(self)
            self._enter(state)
            row.work(self)
            if row.then is not None:
                self.on_progress(self.journal.state, 1, 1, "")
            state = row.then

    def give_up(self, error: DeviceError) -> None:
        """Ends it with ``error``; returns to the previous release if it has switched."""
        facts = self.journal.facts
        # a bundle that served before this deployment continues to serve
        same = facts.previous == facts.release
        self._fail(error, "failed" if same else STATES[self.journal.state].fails)

    def _fail(self, error: DeviceError, first: Optional[str]) -> None:
        """Follows the table from ``first``, even if the disk is full."""
        state = first
        while state is not None:
            row = STATES[state]
            row.first(self)
            written = self._write(state, error)
            row.work(self)
            if not written:
                self._write(state, error)  # the work may have freed space
            state = row.then
        self._record()

    def _verify(self) -> None:
        manifest, signature = self._read_offered()
        staged = stage(
            self.root,
            manifest,
            signature,
            app=self.app.name,
            trust_unsigned=self.journal.facts.trust_unsigned,
        )
        facts = self.journal.facts
        # the serving bundle is never refused
        if not (facts.on_purpose or facts.previous == staged.release):
            check_install(self.root, staged.checked)
        # in memory: the next state's entry makes it durable together with the state
        self.journal.update(release=staged.release, issued=seen_issue(staged.checked))
        # a release that was ready before needs no more disk, and its runtime was checked
        if not is_ready(self.app.releases_folder / staged.release):
            check_requires(self.root, staged.checked.manifest)

    def _refit_and_test(self) -> None:
        """Refits and tests in one child, which loads the release once and enters "testing"."""

        def work(turn: Turn, on_progress: Report) -> _Tested:
            facts = self.journal.facts
            turn("refitting")
            folder = self.app.release(facts.release)
            refit, model = refit_release(self.root, self.app, folder)
            turn("testing")
            health = examine(self.root, self.app, folder, facts.policy, model)
            return _Tested(refit, health)

        limits = self.policy.timeouts
        found = self.isolate(_Tested, work, {"refitting": limits.refit_s, "testing": limits.test_s})
        self._refit = found.refit
        self.journal.update(health=found.health)

    def _switch(self) -> None:
        # the last moment at which a cancellation costs nothing
        self.stopped()
        switch(self.app, str(self.journal.facts.release))

    def _record_counters(self) -> None:
        """Records counters before the end is written: after a power cut both are repeated."""
        facts = self.journal.facts
        # space for this state's journal; the other files stay for a rollback if it fails
        free_reserve(self.app, 1)
        record_counter(self.root, self.app.name, facts.digest, facts.issued)
        self.journal.update(error=None)

    def _tidy(self) -> None:
        """Removes files that are no longer needed; a failure only costs space."""
        self._record()
        with contextlib.suppress(DeviceError, OSError):
            self._drop_offer()
        with contextlib.suppress(DeviceError, OSError):
            collect(self.root, app=self.app, keep=self.policy.keep, wait_s=_TIDY_S)

    def _drop_offer(self) -> None:
        """Removes the offer, unless the same bundle is offered anew with another signature: the
        next deployment may begin while this deployment cleans up.
        """
        facts = self.journal.facts
        if facts.release is not None:
            files = open_release(self.root, self.app.releases_folder / facts.release)
            offered = read_incoming(self.root, facts.digest)
            if offered is not None and offered != (files.manifest, files.signature):
                return
        drop_incoming(self.root, facts.digest)

    def _go_back(self) -> None:
        facts = self.journal.facts
        # both links: "previous" must again be the release before the one that serves
        restore(self.app, facts.previous, facts.fallback)
        with contextlib.suppress(DeviceError):
            # the links are already right: a server that hangs must not stop the rollback
            reload_server(self.app.folder, self.policy.timeouts.test_s)

    def _withdraw(self) -> None:
        """Removes a release that this deployment made and that does not serve."""
        facts = self.journal.facts
        release = facts.release
        if release is None:
            named = self.app.find_releases(facts.digest)
            release = named[-1] if named else None
        in_use = (facts.previous, self.app.link("current"), self.app.link("previous"))
        # a release that existed before may be wanted again; a new one only takes space
        if not (facts.known or release is None or release in in_use):
            with contextlib.suppress(DeviceError):
                remove(self.root, self.app, release)

    def _record(self) -> None:
        """Writes the history's line; may be repeated."""
        free_reserve(self.app)
        with contextlib.suppress(DeviceError):
            record_end(self.app, self.journal.facts)

    def isolate(
        self,
        kind: Type[_Found],
        work: Callable[[Turn, Report], _Found],
        limits: Dict[str, float],
    ) -> _Found:
        """Runs work in its own process; each state is journaled before it begins there.

        Args:
            kind: The class of the work's answer.
            work: Function that the child calls.
            limits: Limit of each state in seconds.
        """

        def on_turn(state: str) -> Optional[float]:
            if state != self.journal.state:
                self._enter(state)
            return limits.get(state)

        try:
            found = run_in_child(
                work,
                on_turn=on_turn,
                on_report=self.on_progress,
                stopped=self.stopped,
                # a copy in the child would hold the app's lock after this process has died
                closes=[self._held],
            )
        except ChildDied as error:
            raise DeviceError(
                "the process that was {} died: {}".format(error.state or "starting", error.cause),
                code="deploy.crashed",
                hint="`dmesg` on the board shows whether memory ran out; the last lines of the "
                "job's log show its last step",
            ) from error
        except ChildTooSlow as error:
            raise DeviceError(
                str(error),
                code="deploy.timeout",
                hint="if it is not hanging, give it more time with deploy.health.timeouts",
            ) from error
        return read(kind, found)

    def _enter(self, state: str) -> None:
        self.journal.enter(state)
        self.on_progress(state, 0, 1, "")

    def _write(self, state: str, error: DeviceError) -> bool:
        """Writes a state; returns False if the disk is full."""
        self.on_progress(state, 0, 1, error.message)
        try:
            self.journal.enter(state, error=Failure.of(error))
        except DeviceError:
            # the links show it as well: a reader of the journal decides the same again
            self.journal.note(state, error=Failure.of(error))
            return False
        return True

    def _read_offered(self) -> Tuple[bytes, Optional[bytes]]:
        """Returns the manifest and its signature: as offered, or of an existing release.

        The serving release comes first: an offer of the same bundle is not kept, and other releases
        of the same digest may have another signature.
        """
        digest = self.journal.facts.digest
        found = read_incoming(self.root, digest)
        if found is not None:
            return found
        current = self.app.link("current")
        newest = reversed(self.app.find_releases(digest))
        for name in sorted(newest, key=lambda name: name != current):
            files = open_release(self.root, self.app.releases_folder / name)
            if hashlib.sha256(files.manifest).hexdigest() == digest:
                return files.manifest, files.signature
        raise DeviceError(
            "no bundle with this digest was offered",
            code="deploy.no-bundle",
            where=digest,
            hint="run the same command again to send it",
        )

    def _rolled_back_error(self, error: DeviceError) -> DeviceError:
        """Returns the error with the release that the board now serves."""
        if isinstance(error, JobCancelled):
            return error
        back = self.journal.facts.previous
        text = (
            "the board went back to {}".format(back)
            if back
            else "the board has no current release, as before"
        )
        message = "{}; {}".format(error.message, text)
        return DeviceError(message, code=error.code, where=error.where, hint=error.hint)


def soak(run: Deployment) -> None:
    """Examines the release that serves, once and then every ``soak_every_s`` for ``soak_s``.

    A running server must load the release, and answer without errors of its own.

    Raises:
        DeviceError: The release failed: an error of ``examine`` or ``reload``, or "health.serving".
    """
    policy = run.policy
    until = time.monotonic() + policy.soak_s
    # errors from before the switch do not count: only differences are judged
    known = _load_release(run, policy.timeouts.test_s)
    while True:
        _examine(run, policy)
        known = _check_server(run, known)
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
    facts, checks = run.journal.facts, policy
    if policy.latency_ms is None:
        # its figures were measured before it served, on an otherwise idle board
        checks = replace(policy, measure_s=0.0)

    def work(turn: Turn, on_progress: Report) -> Health:
        turn("soaking")
        folder = run.app.release(facts.release)
        return examine(run.root, run.app, folder, checks, keeps=False)

    run.isolate(Health, work, {"soaking": policy.timeouts.test_s})


def _load_release(run: Deployment, limit_s: float) -> Optional[ServingStatus]:
    """Makes a server load the release; returns its status, None if no server runs."""
    found = reload_server(run.app.folder, limit_s)
    if found is not None and found.release != run.journal.facts.release:
        why = _last_error(found) or "it returned {}".format(found.release)
        raise _unhealthy_error(run, "the server rejected the release: {}".format(why))
    return found


def _check_server(run: Deployment, known: Optional[ServingStatus]) -> Optional[ServingStatus]:
    """Compares a server's counters with the previous counters; returns the new status."""
    found = query_server(run.app.folder)
    # another process counts from zero
    if found is None or known is None or found.pid != known.pid:
        if found is None and known is not None:
            raise _unhealthy_error(run, "the server ended")
        return found
    for what, rise in (
        ("error", found.errors - known.errors),
        ("restart", found.restarts - known.restarts),
    ):
        if rise > 0:
            last = _last_error(found)
            raise _unhealthy_error(
                run, counted(rise, "new " + what) + (": " + last if last else "")
            )
    return found


def _last_error(found: ServingStatus) -> str:
    return "" if found.last_error is None else found.last_error.message


def _unhealthy_error(run: Deployment, text: str) -> DeviceError:
    return DeviceError(
        "the release does not work on the server: {}".format(text),
        code="health.serving",
        where="{}/{}".format(run.app.name, run.journal.facts.release),
        hint="`edgekit status` shows the current release and its last error",
    )


def as_device_error(error: BaseException) -> DeviceError:
    """Returns the DeviceError for any failure of the work."""
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, MemoryError):
        return DeviceError("out of memory", code="board.no-memory")
    return DeviceError(str(error), code="board.io", where=str(getattr(error, "filename", "") or ""))


def keep_reserve(app: App) -> None:
    """Reserves space for a rollback: a journal, a note of the links and a link.

    These could not be written on a disk without a free byte or inode.

    Raises:
        DeviceError: "board.disk-full": then the release must not be switched.
    """
    for name in _RESERVED:
        path = str(app.folder / name)
        with map_os_errors(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # allocates blocks: a sparse file would reserve nothing
                os.posix_fallocate(handle, 0, _RESERVED_BYTES)
            finally:
                os.close(handle)


def free_reserve(app: App, files: int = len(_RESERVED)) -> None:
    """Frees up to ``files`` reserved files; a single file is enough for a journal."""
    for name in _RESERVED[-files:]:
        with contextlib.suppress(OSError):
            (app.folder / name).unlink()


@document(frozen=True)
class State:
    """A row of the table.

    Attributes:
        work: The state's work; it may be repeated.
        then: The state after its work; None for an end.
        fails: The state if entering it or its work fails; None if neither fails.
        first: Makes changes durable before the journal records that the state begins.
    """

    work: Callable[[Deployment], None]
    then: Optional[str] = None
    fails: Optional[str] = None
    first: Callable[[Deployment], None] = lambda run: None


#: A deployment begins with "verifying"; a continued deployment begins there again, or after the
#: switch with its last state.
STATES = {
    "verifying": State(Deployment._verify, "refitting", "failed"),
    "refitting": State(Deployment._refit_and_test, "switching", "failed"),
    "testing": State(Deployment._refit_and_test, "switching", "failed"),
    "switching": State(
        Deployment._switch, "soaking", "rolling-back", first=lambda run: keep_reserve(run.app)
    ),
    "soaking": State(soak, "committed", "rolling-back"),
    # fails if the disk does not take the journal's last state
    "committed": State(Deployment._tidy, fails="rolling-back", first=Deployment._record_counters),
    "rolling-back": State(
        Deployment._go_back,
        "rolled-back",
        "rolling-back",
        first=lambda run: free_reserve(run.app),
    ),
    "rolled-back": State(Deployment._withdraw),
    "failed": State(Deployment._withdraw),
}
