"""The journal of an app's newest deployment, the history of ended deployments, and the flock on
apps/<name>/deploying, held by the process that deploys the app.

Each state is written durably before its work begins. A process that finds the journal of a dead
process therefore knows which step may be incomplete, and completes or reverts it.

A release that was taken back (by hand, by its own deployment or by a server) does not serve again
until it is deployed on purpose (``find_taken_back``). If the board itself failed, for example with
a full disk, the same deployment may be retried. These records outlive the release and the app:
ROOT/taken-back.json keeps the records of removed apps.
"""

from __future__ import annotations

import dataclasses
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from edgekit_device.errors import DeviceError, family, map_os_errors
from edgekit_device.files import (
    fsync_folder,
    is_locked,
    locked,
    open_locked,
    read_kept,
    write_durably,
)
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    app_name,
    array,
    choice,
    digest,
    document,
    dump,
    flag,
    load,
    mapping,
    member,
    nullable,
    number,
    parse_json,
    read,
    record,
    records,
    refuse_version,
    release_name,
    text,
    with_schema,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.release.changed import Health
from edgekit_device.release.policy import Policy
from edgekit_device.store.root import App, Root, release_digest
from edgekit_device.trust.counters import SeenIssue

SCHEMA = "edgekit.deployment/1"
ROLLBACK_SCHEMA = "edgekit.rollback/1"
JOURNAL, HISTORY = "deployment.json", "history.jsonl"

#: In ROOT: records of taken-back releases of removed apps.
TAKEN_BACK = "taken-back.json"

BEFORE_SWITCH = ("verifying", "refitting", "testing")
AFTER_SWITCH = ("switching", "soaking", "rolling-back")
ENDED = ("committed", "rolled-back", "failed")
_MAX_TAKEN_BACK = 16 << 20
_MAX_HISTORY = 512 * 1024
_RETAINED_LINES = 200
_TAKEN_BACK_SCHEMA = "edgekit.taken-back/1"

#: Codes of rollbacks on request, and of rollbacks because other boards failed.
ASKED, OTHERS_FAILED = "rollback.asked", "rollback.others-failed"

LOCK = "deploying"

# readers, and a rollback or removal by hand, hold the lock briefly
_WAIT_S = 10.0
_BY_HAND_S = 2.0


_RELEASE = nullable(release_name)
_TEXT = nullable(text())
_REASON = text(most=1 << 18)


@document(frozen=True)
class HistoryEntry:
    """A line of history.jsonl for a rollback by hand or by a server: ``release`` was taken back,
    ``previous`` serves.
    """

    schema: str = member(choice(SCHEMA, ROLLBACK_SCHEMA))
    id: str = member(text())
    app: str = member(app_name)
    state: str = member(choice(*BEFORE_SWITCH, *AFTER_SWITCH, *ENDED))
    release: Optional[str] = member(_RELEASE)
    previous: Optional[str] = member(_RELEASE)
    started_at: str = member(text())
    state_at: str = member(text())
    error: Optional[Failure] = member(nullable(record(Failure)))


@document(frozen=True)
class DeploymentEntry(HistoryEntry):
    """A line of history.jsonl for a deployment.

    Attributes:
        release: The release of the bundle; None until it is staged.
        previous: The current release before the deployment.
        fallback: The previous release before the deployment.
        digest: SHA-256 of the manifest.
        known: True if a release of the bundle existed before.
        operator: The person who deploys.
        trust_unsigned: True if the manifest may lack a signature.
        on_purpose: As in ``DeployRequest``.
        job: The job's id.
        attempts: Number of times it was started or resumed.
        issued: The bundle's signing record for the counters.
    """

    fallback: Optional[str] = member(_RELEASE)
    digest: str = member(digest)
    known: bool = member(flag)
    operator: Optional[str] = member(_TEXT)
    trust_unsigned: bool = member(flag)
    on_purpose: Optional[str] = member(_TEXT)
    job: Optional[str] = member(_TEXT)
    attempts: int = member(fields.count)
    issued: Optional[SeenIssue] = member(nullable(record(SeenIssue)))


def history_entry(value: Any) -> HistoryEntry:
    """Reads a line of history.jsonl: a deployment or a rollback."""
    deployed = isinstance(value, dict) and value.get("schema") == SCHEMA
    return read(DeploymentEntry if deployed else HistoryEntry, value)


with_schema(history_entry, anyOf=(DeploymentEntry, HistoryEntry))


@document(frozen=True)
class DeploymentStep:
    """A state of a deployment with its start and its duration (None while it lasts)."""

    state: str = member(text())
    at: str = member(text())
    seconds: Optional[float] = member(nullable(number(0, 1e12)))


@document(frozen=True)
class DeploymentFacts(DeploymentEntry):
    """deployment.json: the fields of a history's line, and fields needed during the deployment.

    Attributes:
        policy: The limits of the health check.
        health: The outcome of the health check; None before it.
        steps: The states so far.
    """

    policy: Policy = member(record(Policy))
    health: Optional[Health] = member(nullable(record(Health)))
    steps: Tuple[DeploymentStep, ...] = member(records(DeploymentStep))


@document(frozen=True)
class RefitReport:
    """The outcome of a refit; zeros if there was none.

    Attributes:
        weights: Number of weight tensors of the release.
        bytes: Bytes of the weights.
        engines: Number of refitted engines.
        reused: True if the release was ready before.
    """

    release: Optional[str] = member(release_name, absent=None)
    weights: Optional[int] = member(fields.count, absent=None)
    bytes: Optional[int] = member(fields.count, absent=None)
    engines: Optional[int] = member(fields.count, absent=None)
    reused: Optional[bool] = member(flag, absent=None)
    notes: Optional[Tuple[str, ...]] = member(array(text(most=1 << 18)), absent=None)


@document(frozen=True)
class DeploymentResult(DeploymentFacts):
    """The result of the job "deploy"; ``changed`` is True if another release serves now."""

    refit: RefitReport = member(record(RefitReport))
    changed: bool = member(flag)


def deployment_result(value: Any) -> DeploymentFacts:
    """Reads the result of the job "deploy": a ``DeploymentResult``, or the journal of a deployment
    that was already over when it was to be resumed.
    """
    ended = isinstance(value, dict) and not {"refit", "changed"}.isdisjoint(value)
    return read(DeploymentResult if ended else DeploymentFacts, value)


@document(frozen=True)
class TakenBack:
    """A release that served and was taken back.

    Attributes:
        others: True if other boards failed: the release worked here and may be deployed again.
    """

    release: str = member(text())
    at: str = member(text())
    reason: str = member(_REASON)
    others: bool = member(flag, absent=False)


@document(frozen=True)
class _Remembered:
    """ROOT/taken-back.json: records by app, then by the prefix of the bundle's digest."""

    apps: Mapping[str, Mapping[str, TakenBack]] = member(mapping(mapping(record(TakenBack))))
    schema: str = member(choice(_TAKEN_BACK_SCHEMA), default=_TAKEN_BACK_SCHEMA)


class DeploymentJournal:
    """A deployment, stored in deployment.json.

    Attributes:
        app: The app.
        facts: The document, ``edgekit.deployment/1``.
    """

    def __init__(self, app: App, facts: DeploymentFacts) -> None:
        self.app = app
        self.facts = facts
        self._since = time.monotonic()

    @property
    def state(self) -> str:
        """The current state, or the final state."""
        return self.facts.state

    @property
    def live(self) -> bool:
        """True until it has ended, even if its process died."""
        return self.state not in ENDED

    def update(self, **facts: Any) -> None:
        """Changes fields in memory; the next ``enter`` writes them."""
        self.facts = replace(self.facts, **facts)

    def enter(self, state: str, **facts: Any) -> None:
        """Writes durably that ``state`` begins; call it before the state's work.

        Raises:
            DeviceError: "board.disk-full" or another storage error; the work must not begin.
        """
        self.note(state, **facts)
        with map_os_errors(str(self.app.folder)):
            write_durably(self.app.folder / JOURNAL, dump(self.facts))

    def note(self, state: str, **facts: Any) -> None:
        """Like ``enter``, but in memory only."""
        # durations: a board's clock may jump when it is first set over the network
        now = time.monotonic()
        steps = list(self.facts.steps)
        if steps:
            steps[-1] = replace(steps[-1], seconds=round(now - self._since, 3))
        self._since = now
        if not steps or steps[-1].state != state:
            steps.append(DeploymentStep(state, timestamp(), None))
        self.update(**facts, state=state, state_at=timestamp(), steps=tuple(steps))


def timestamp() -> str:
    """Returns the current time for people; no decision uses it, because boards' clocks jump."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_journal(app: App) -> Optional[DeploymentJournal]:
    """Returns the app's newest deployment; None if there is none, or its file is damaged.

    Raises:
        DeviceError: "state.version".
    """
    found = load(DeploymentFacts, app.folder / JOURNAL, schemas=(SCHEMA,))
    return None if found is None else DeploymentJournal(app, found)


def record_end(app: App, ended: HistoryEntry) -> None:
    """Appends a line to the history, unless the last line is the same deployment's.

    A partial line from a power cut is terminated first. A long file is trimmed: the newest lines
    and the lines of taken-back releases stay.
    """
    path = app.folder / HISTORY
    entry = _history_line(ended)
    with map_os_errors(str(path)):
        try:
            data = read_kept(path)
        except FileNotFoundError:
            data = b""
        last = _read_entries(path, data)[-1:]
        # a deployment that is resumed after its end was recorded records it again
        if last and (last[0].id, last[0].state) == (entry.id, entry.state):
            return
        if len(data) > _MAX_HISTORY or (data and not data.endswith(b"\n")):
            entries = _read_entries(path, data)
            journal = read_journal(app)
            stays = {entry.id for entry in _find_taken_back(entries).values() if entry is not None}
            if journal is not None:
                stays.add(journal.facts.id)  # else complete_history would append it again
            old = [entry for entry in entries[:-_RETAINED_LINES] if entry.id in stays]
            retained = [dump(entry) for entry in old + entries[-_RETAINED_LINES:]]
            write_durably(path, b"".join(retained))
        # appended, not rewritten: a power cut can only damage the new line
        handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, dump(entry))
            os.fsync(handle)
        finally:
            os.close(handle)
        # a new file: its name must be durable, too
        if not data:
            fsync_folder(app.folder)


def _history_line(ended: HistoryEntry) -> HistoryEntry:
    """Returns a deployment's line, without the fields that only a running deployment needs."""
    if not isinstance(ended, DeploymentFacts):
        return ended
    return DeploymentEntry(
        **{field.name: getattr(ended, field.name) for field in dataclasses.fields(DeploymentEntry)}
    )


def complete_history(app: App) -> None:
    """Appends the newest deployment's line if a power cut or a full disk prevented it."""
    past = _full_history(app)
    if len(past) > len(read_history(app)):
        record_end(app, past[-1])


def read_history(app: App) -> List[HistoryEntry]:
    """Returns the ended deployments and rollbacks, oldest first.

    Raises:
        DeviceError: "state.version".
    """
    path = app.folder / HISTORY
    try:
        data = read_kept(path)
    except OSError:
        return []
    return _read_entries(path, data)


def find_taken_back(app: App, digest: str) -> Optional[TakenBack]:
    """Returns when and why a bundle was taken back here; None if it was not taken back, or has
    served since.

    Args:
        app: The app.
        digest: SHA-256 of the bundle's manifest.
    """
    short = digest[:12]
    found = taken_back_records(app)
    if short in found:
        return found[short]
    return _read_remembered(app.root).apps.get(app.name, {}).get(short)


def find_last_taken_back(app: App) -> Optional[TakenBack]:
    """Returns the release that was taken back last; None if a release was deployed since."""
    ended = [entry for entry in _full_history(app) if entry.state != "failed"]
    if not ended or ended[-1].state != "rolled-back" or _is_boards_fault(ended[-1]):
        return None
    return _describe_taken_back(ended[-1])


def describe_put_back(app: App, release: Optional[str]) -> str:
    """Returns the commands that deploy a taken-back release again, for a hint.

    Args:
        app: The app.
        release: The release that would serve; None if it must be installed first.
    """
    here = "edgekit_device.pyz install --again"
    if release is not None and release in app.releases():
        here = "edgekit_device.pyz switch --app {} --release {} --again".format(app.name, release)
    return "edgekit deploy CONFIG --again (on the board: {})".format(here)


def refuse_taken_back(
    app: App, digest: str, where: str = "", release: Optional[str] = None
) -> None:
    """Refuses a bundle that was taken back here, or its release.

    A bundle that was taken back because other boards failed passes.

    Raises:
        DeviceError: "install.taken-back".
    """
    found = find_taken_back(app, digest)
    if found is not None and not found.others:
        raise DeviceError(
            "{} was current here and was rolled back at {}: {}".format(
                found.release, found.at, found.reason
            ),
            code="install.taken-back",
            where=where or app.name,
            hint="deploy a newer bundle, or deploy this one anyway: "
            + describe_put_back(app, release),
        )


def taken_back_records(app: App) -> Dict[str, Optional[TakenBack]]:
    """Returns the state of each bundle in the app's history, by the prefix of its digest.

    Returns:
        The record of ``find_taken_back``; None for a bundle that served and was not taken back
        since.
    """
    return {
        short: _describe_taken_back(entry)
        for short, entry in _find_taken_back(_full_history(app)).items()
    }


def remember_taken_back(root: Root, name: str, found: Dict[str, Optional[TakenBack]]) -> None:
    """Writes a removed app's records, from ``taken_back_records``, to ROOT/taken-back.json."""
    if not found:
        return
    path = root.folder / TAKEN_BACK
    with locked(root.folder / "taken-back.lock"), map_os_errors(str(path)):
        known = _read_remembered(root)
        before = known.apps.get(name, {})
        # records of this removal go to the end, so that a long list drops the oldest
        after = {short: record for short, record in before.items() if short not in found}
        after.update((short, record) for short, record in found.items() if record is not None)
        if after != before:
            retained = dict(list(after.items())[-_RETAINED_LINES:])
            write_durably(path, dump(_Remembered({**known.apps, name: retained})))


def references(app: App) -> Set[str]:
    """Returns the releases that an unfinished deployment may need."""
    journal = read_journal(app)
    if journal is None or not journal.live:
        return set()
    facts = journal.facts
    return {name for name in (facts.release, facts.previous, facts.fallback) if name is not None}


def _full_history(app: App) -> List[HistoryEntry]:
    """Returns the history, with the newest deployment if its line is missing."""
    found = read_history(app)
    journal = read_journal(app)
    # a rollback by hand may have followed it
    known = journal is None or any(entry.id == journal.facts.id for entry in found)
    if journal is not None and not known and not journal.live:
        # its last line was lost, but the journal itself is durable
        found.append(journal.facts)
    return found


def _find_taken_back(entries: List[HistoryEntry]) -> Dict[str, Optional[HistoryEntry]]:
    """Returns, by the prefix of a bundle's digest, the entry that took it back; None if it served
    since.

    A deployment that failed before the switch does not count.
    """
    found: Dict[str, Optional[HistoryEntry]] = {}
    for entry in entries:
        release, previous = (release_digest(n or "") for n in (entry.release, entry.previous))
        if entry.state == "committed":
            found[release] = None
        elif entry.state == "rolled-back":
            if not _is_boards_fault(entry):
                found[release] = entry
            found[previous] = None  # it serves, even if it is the same bundle with a new signature
    found.pop("", None)
    return found


def _is_boards_fault(entry: HistoryEntry) -> bool:
    """Returns True if a full disk or damaged storage caused the rollback, not the release."""
    return entry.error is not None and family(entry.error.code) in ("board", "blob")


def _describe_taken_back(entry: Optional[HistoryEntry]) -> Optional[TakenBack]:
    if entry is None:
        return None
    why = "" if entry.error is None else entry.error.message
    others = entry.error is not None and entry.error.code == OTHERS_FAILED
    return TakenBack(str(entry.release), entry.state_at, why or "no reason is recorded", others)


def _read_remembered(root: Root) -> _Remembered:
    """Reads ROOT/taken-back.json; returns an empty record if it is missing or damaged."""
    path = root.folder / TAKEN_BACK
    found = load(_Remembered, path, _MAX_TAKEN_BACK, schemas=(_TAKEN_BACK_SCHEMA,))
    return found or _Remembered({})


def _read_entries(path: Path, data: bytes) -> List[HistoryEntry]:
    found = []
    for line in data.split(b"\n"):
        try:
            document = parse_json(line, HISTORY)
        except DeviceError:
            continue  # empty, or a partial line
        # an unknown line must not be skipped: it may be the record of a release that was taken back
        refuse_version(document, (SCHEMA, ROLLBACK_SCHEMA), path)
        with suppress(DeviceError):
            found.append(history_entry(document))
    return found


@contextmanager
def claim(app: App, wait_s: float = _WAIT_S) -> Iterator[int]:
    """Locks the app for a deployment or a change by hand; yields the lock's descriptor.

    Child processes must close the descriptor: the lock is held while any copy is open.

    Raises:
        DeviceError: "deploy.busy", with the operator and the deployment that holds the lock.
    """
    # the kernel drops the lock with its process: no deployment stays locked after a crash
    handle = open_locked(app.folder / LOCK, wait_s)
    if handle is None:
        raise busy_error(app)
    try:
        # temporary files of a killed writer: a living one would hold the lock
        for left in app.folder.glob(".{}.*".format(JOURNAL)):
            left.unlink()
        yield handle
    finally:
        os.close(handle)


@contextmanager
def claim_by_hand(app: App, *, removes_app: bool = False) -> Iterator[None]:
    """Locks the app for a switch or a removal by hand, if no deployment is unfinished.

    Args:
        app: The app.
        removes_app: True to remove the whole app; an unfinished deployment is then ignored.

    Raises:
        DeviceError: "deploy.busy" or "deploy.unfinished".
    """
    with claim(app, wait_s=_BY_HAND_S):
        journal = read_journal(app)
        if journal is not None and journal.live and not removes_app:
            raise DeviceError(
                "a deployment of {} was interrupted while {}".format(
                    journal.facts.digest[:12], journal.state
                ),
                code="deploy.unfinished",
                where=app.name,
                hint="deploy again, or end it with `edgekit rollback`",
            )
        yield


def is_claimed(app: App) -> bool:
    """Returns True if a process holds the app's lock."""
    return is_locked(app.folder / LOCK)


def busy_error(app: App, job: Optional[str] = None) -> DeviceError:
    """Returns the error that names the running deployment."""
    journal = read_journal(app)
    if journal is None or not journal.live:
        return DeviceError(
            "another command is changing this app",
            code="deploy.busy",
            where=app.name,
            hint="try again in a moment",
        )
    facts = journal.facts
    job = job or facts.job
    return DeviceError(
        "{} has been deploying {} since {} ({})".format(
            facts.operator or "somebody", facts.digest[:12], facts.started_at, journal.state
        ),
        code="deploy.busy",
        where=app.name,
        hint="wait for it: edgekit jobs attach {0} BOARD; or cancel it: edgekit jobs cancel "
        "{0} BOARD".format(job)
        if job
        else "edgekit status BOARD shows its progress",
    )
