"""The journal of an app's newest deployment, the history of those that ended, and the flock on
apps/<name>/deploying that says which process deploys the app.

Each state is written down, durably, before its work begins. So whoever finds the journal of a
process that died knows what may be half done, and finishes it or takes it back.

A release that was taken back, by hand, by its own deployment or by a server, stays taken back
until it is deployed again on purpose (``taken_back``): nothing else may bring it to serve. But
where the board itself failed, as with a full disk, the same deployment is tried again. All this
outlives the release, and the app: ROOT/taken-back.json has what histories said of removed apps.
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
    says,
    text,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.release.changed import Health
from edgekit_device.release.policy import Policy
from edgekit_device.store.root import App, Root
from edgekit_device.trust.counters import SeenIssue

SCHEMA = "edgekit.deployment/1"
ROLLBACK_SCHEMA = "edgekit.rollback/1"
JOURNAL, HISTORY = "deployment.json", "history.jsonl"

#: In ROOT: what was taken back of apps that were removed.
TAKEN_BACK = "taken-back.json"

BEFORE_SWITCH = ("verifying", "refitting", "testing")
AFTER_SWITCH = ("switching", "soaking", "rolling-back")
ENDED = ("committed", "rolled-back", "failed")
_MAX_TAKEN_BACK = 16 << 20
_MAX_HISTORY = 512 * 1024
_RETAINED_LINES = 200
_TAKEN_BACK_SCHEMA = "edgekit.taken-back/1"

#: Codes of rollbacks that somebody asked for, and of those because other boards failed.
ASKED, OTHERS_FAILED = "rollback.asked", "rollback.others-failed"

LOCK = "deploying"

# readers, and a rollback or removal by hand, hold it for moments
_WAIT_S = 10.0
_BY_HAND_S = 2.0


_RELEASE = nullable(release_name)
_TEXT = nullable(text())
_REASON = text(most=1 << 18)


@document(frozen=True)
class HistoryEntry:
    """A line of history.jsonl, a roll back by hand or at a server's request: ``release`` was taken
    back, ``previous`` serves.
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
    """A line of history.jsonl, a deployment.

    Attributes:
        release: What it made of the bundle; None as long as it has made nothing.
        previous: What ``current`` was before it.
        fallback: What ``previous`` was before it.
        digest: SHA-256 of the manifest.
        known: Whether a release of the bundle was there before.
        operator: Who deploys.
        trust_unsigned: Whether the manifest may lack a signature.
        on_purpose: As of ``DeployRequest``.
        job: The job's id.
        attempts: How often it was begun or carried on.
        issued: What counters remember of the bundle.
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
    """A line of history.jsonl: a deployment, or a roll back."""
    deployed = isinstance(value, dict) and value.get("schema") == SCHEMA
    return read(DeploymentEntry if deployed else HistoryEntry, value)


says(history_entry, anyOf=(DeploymentEntry, HistoryEntry))


@document(frozen=True)
class DeploymentStep:
    """A state that a deployment was in: since when, and for how long (None: it is in it)."""

    state: str = member(text())
    at: str = member(text())
    seconds: Optional[float] = member(nullable(number(0, 1e12)))


@document(frozen=True)
class DeploymentFacts(DeploymentEntry):
    """deployment.json: as a history's line, with what is of use while it runs.

    Attributes:
        policy: By what the release is judged.
        health: What was measured; None before.
        steps: The states so far.
    """

    policy: Policy = member(record(Policy))
    health: Optional[Health] = member(nullable(record(Health)))
    steps: Tuple[DeploymentStep, ...] = member(records(DeploymentStep))


@document(frozen=True)
class RefitReport:
    """What a refit did; nothing is known where there was none.

    Attributes:
        weights: How many tensors the release has.
        bytes: Their bytes.
        engines: How many engines took them.
        reused: Whether the release was ready before.
    """

    release: Optional[str] = member(release_name, absent=None)
    weights: Optional[int] = member(fields.count, absent=None)
    bytes: Optional[int] = member(fields.count, absent=None)
    engines: Optional[int] = member(fields.count, absent=None)
    reused: Optional[bool] = member(flag, absent=None)
    notes: Optional[Tuple[str, ...]] = member(array(text(most=1 << 18)), absent=None)


@document(frozen=True)
class DeploymentResult(DeploymentFacts):
    """What the job "deploy" makes; ``changed``: whether another release serves now."""

    refit: RefitReport = member(record(RefitReport))
    changed: bool = member(flag)


def deployment_result(value: Any) -> DeploymentFacts:
    """What the job "deploy" makes: a ``DeploymentResult``, or what stood where one that was to be
    carried on is over.
    """
    ended = isinstance(value, dict) and not {"refit", "changed"}.isdisjoint(value)
    return read(DeploymentResult if ended else DeploymentFacts, value)


@document(frozen=True)
class TakenBack:
    """A release that served and was taken back: when, and why.

    Attributes:
        others: Whether other boards failed: here it did nothing wrong, and may come again.
    """

    release: str = member(text())
    at: str = member(text())
    reason: str = member(_REASON)
    others: bool = member(flag, absent=False)


@document(frozen=True)
class _Remembered:
    """ROOT/taken-back.json: by app, and by the start of the bundle's digest."""

    apps: Mapping[str, Mapping[str, TakenBack]] = member(mapping(mapping(record(TakenBack))))
    schema: str = member(choice(_TAKEN_BACK_SCHEMA), default=_TAKEN_BACK_SCHEMA)


class DeploymentJournal:
    """One deployment, as deployment.json holds it.

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
        """What it does, or how it ended."""
        return self.facts.state

    @property
    def live(self) -> bool:
        """Whether it has not ended; its process may be gone all the same."""
        return self.state not in ENDED

    def update(self, **facts: Any) -> None:
        """Changes facts; the next ``enter`` writes them."""
        self.facts = replace(self.facts, **facts)

    def enter(self, state: str, **facts: Any) -> None:
        """Writes down that ``state`` begins, before it does.

        Raises:
            DeviceError: "board.disk-full" and the like: then it must not begin.
        """
        self.note(state, **facts)
        with map_os_errors(str(self.app.folder)):
            write_durably(self.app.folder / JOURNAL, dump(self.facts))

    def note(self, state: str, **facts: Any) -> None:
        """As ``enter``, in memory alone."""
        now = time.monotonic()
        steps = list(self.facts.steps)
        if steps:
            steps[-1] = replace(steps[-1], seconds=round(now - self._since, 3))
        self._since = now
        if not steps or steps[-1].state != state:
            steps.append(DeploymentStep(state, stamp(), None))
        self.update(**facts, state=state, state_at=stamp(), steps=tuple(steps))


def stamp() -> str:
    """Now, for people: no decision rests on it, for clocks of boards jump."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_journal(app: App) -> Optional[DeploymentJournal]:
    """The app's newest deployment; None where there is none or its file is damaged.

    Raises:
        DeviceError: "state.version".
    """
    found = load(DeploymentFacts, app.folder / JOURNAL, schemas=(SCHEMA,))
    return None if found is None else DeploymentJournal(app, found)


def record_end(app: App, ended: HistoryEntry) -> None:
    """Adds a line to the history, unless its last one is this very deployment's.

    A line that a power cut left half is ended first; of a long file the newest lines stay, and
    those of releases that stay taken back.
    """
    path = app.folder / HISTORY
    entry = _entry_of(ended)
    with map_os_errors(str(path)):
        try:
            data = read_kept(path)
        except FileNotFoundError:
            data = b""
        last = _entries(path, data)[-1:]
        if last and (last[0].id, last[0].state) == (entry.id, entry.state):
            return
        if len(data) > _MAX_HISTORY or (data and not data.endswith(b"\n")):
            entries = _entries(path, data)
            journal = read_journal(app)
            stays = {one.id for one in _standing(entries).values() if one is not None}
            if journal is not None:
                stays.add(journal.facts.id)  # or it would count as new
            old = [one for one in entries[:-_RETAINED_LINES] if one.id in stays]
            retained = [dump(one) for one in old + entries[-_RETAINED_LINES:]]
            write_durably(path, b"".join(retained))
        handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, dump(entry))
            os.fsync(handle)
        finally:
            os.close(handle)
        if not data:
            fsync_folder(app.folder)


def _entry_of(ended: HistoryEntry) -> HistoryEntry:
    """What a line holds of a deployment: not all that is of use while it runs."""
    if not isinstance(ended, DeploymentFacts):
        return ended
    return DeploymentEntry(
        **{one.name: getattr(ended, one.name) for one in dataclasses.fields(DeploymentEntry)}
    )


def complete_history(app: App) -> None:
    """Adds the newest deployment's line where a power cut or a full disk left it out."""
    past = _past(app)
    if len(past) > len(history(app)):
        record_end(app, past[-1])


def history(app: App) -> List[HistoryEntry]:
    """The deployments and roll backs that ended, oldest first.

    Raises:
        DeviceError: "state.version".
    """
    path = app.folder / HISTORY
    try:
        data = read_kept(path)
    except OSError:
        return []
    return _entries(path, data)


def taken_back(app: App, digest: str) -> Optional[TakenBack]:
    """Returns when and why a bundle was taken back that served here; None where it was not, or
    came to serve since.

    Args:
        app: The app.
        digest: SHA-256 of the bundle's manifest.
    """
    short = digest[:12]
    found = standing(app)
    if short in found:
        return found[short]
    return _remembered(app.root).apps.get(app.name, {}).get(short)


def last_taken_back(app: App) -> Optional[TakenBack]:
    """What was taken back last; None once a release came to serve since."""
    ended = [entry for entry in _past(app) if entry.state != "failed"]
    if not ended or ended[-1].state != "rolled-back" or _boards_own(ended[-1]):
        return None
    return _describe_taken_back(ended[-1])


def put_back(app: App, release: Optional[str]) -> str:
    """The commands that put back what was taken back, for a hint.

    Args:
        app: The app.
        release: The release that would serve; None where it is to be installed.
    """
    here = "edgekit_device.pyz install --again"
    if release is not None and release in app.releases():
        here = "edgekit_device.pyz switch --app {} --release {} --again".format(app.name, release)
    return "edgekit deploy CONFIG --again (on the board: {})".format(here)


def refuse_taken_back(
    app: App, digest: str, where: str = "", release: Optional[str] = None
) -> None:
    """Refuses a bundle that was taken back here, or a release of it that is here.

    One that was taken back because other boards failed may come again.

    Raises:
        DeviceError: "install.taken-back".
    """
    found = taken_back(app, digest)
    if found is not None and not found.others:
        raise DeviceError(
            "{} was current here and was rolled back at {}: {}".format(
                found.release, found.at, found.reason
            ),
            code="install.taken-back",
            where=where or app.name,
            hint="deploy a newer bundle, or deploy this one anyway: " + put_back(app, release),
        )


def standing(app: App) -> Dict[str, Optional[TakenBack]]:
    """What the app's history says of each bundle, by the start of its digest.

    Returns:
        As ``taken_back``; None for one that came to serve and was not taken back since.
    """
    return {short: _describe_taken_back(entry) for short, entry in _standing(_past(app)).items()}


def remember_taken_back(root: Root, name: str, found: Dict[str, Optional[TakenBack]]) -> None:
    """Writes to ROOT/taken-back.json what ``standing`` said of an app that is removed."""
    if not found:
        return
    path = root.folder / TAKEN_BACK
    with locked(root.folder / "taken-back.lock"), map_os_errors(str(path)):
        known = _remembered(root)
        before = known.apps.get(name, {})
        after = {short: one for short, one in before.items() if short not in found}
        after.update((short, one) for short, one in found.items() if one is not None)
        if after != before:
            retained = dict(list(after.items())[-_RETAINED_LINES:])
            write_durably(path, dump(_Remembered({**known.apps, name: retained})))


def references(app: App) -> Set[str]:
    """Releases that a deployment which has not ended may need."""
    journal = read_journal(app)
    if journal is None or not journal.live:
        return set()
    facts = journal.facts
    return {name for name in (facts.release, facts.previous, facts.fallback) if name is not None}


def _past(app: App) -> List[HistoryEntry]:
    """The history, and the newest deployment where a cut or a full disk left its line out."""
    found = history(app)
    journal = read_journal(app)
    # a roll back by hand may have come after it
    known = journal is None or any(entry.id == journal.facts.id for entry in found)
    if journal is not None and not known and not journal.live:
        found.append(journal.facts)
    return found


def _standing(entries: List[HistoryEntry]) -> Dict[str, Optional[HistoryEntry]]:
    """By the start of a bundle's digest, the entry that took it back; None where it came to serve.

    A deployment that failed before the switch changes nothing about what was taken back.
    """
    found: Dict[str, Optional[HistoryEntry]] = {}
    for entry in entries:
        release, previous = _short(entry.release), _short(entry.previous)
        if entry.state == "committed":
            found[release] = None
        elif entry.state == "rolled-back":
            if not _boards_own(entry):
                found[release] = entry
            found[previous] = None  # which serves, also where it is the same bundle signed anew
    found.pop("", None)
    return found


def _boards_own(entry: HistoryEntry) -> bool:
    """Whether a full disk or damaged storage took it back: no judgement of the release."""
    return entry.error is not None and family(entry.error.code) in ("board", "blob")


def _short(release: Optional[str]) -> str:
    return (release or "").partition("-")[2]


def _describe_taken_back(entry: Optional[HistoryEntry]) -> Optional[TakenBack]:
    if entry is None:
        return None
    why = "" if entry.error is None else entry.error.message
    others = entry.error is not None and entry.error.code == OTHERS_FAILED
    return TakenBack(str(entry.release), entry.state_at, why or "no reason is recorded", others)


def _remembered(root: Root) -> _Remembered:
    """ROOT/taken-back.json; an empty one where it is not there or damaged."""
    path = root.folder / TAKEN_BACK
    found = load(_Remembered, path, _MAX_TAKEN_BACK, schemas=(_TAKEN_BACK_SCHEMA,))
    return found or _Remembered({})


def _entries(path: Path, data: bytes) -> List[HistoryEntry]:
    found = []
    for line in data.split(b"\n"):
        try:
            document = parse_json(line, HISTORY)
        except DeviceError:
            continue  # empty, or half a line
        refuse_version(document, (SCHEMA, ROLLBACK_SCHEMA), path)
        with suppress(DeviceError):
            found.append(history_entry(document))
    return found


@contextmanager
def claim(app: App, wait_s: float = _WAIT_S) -> Iterator[int]:
    """Holds the app for a deployment or for a change by hand; yields the lock's descriptor.

    A child process has to close the descriptor: as long as one is open the app is held.

    Raises:
        DeviceError: "deploy.busy" with who deploys what.
    """
    handle = open_locked(app.folder / LOCK, wait_s)
    if handle is None:
        raise busy(app)
    try:
        for left in app.folder.glob(".{}.*".format(JOURNAL)):
            left.unlink()
        yield handle
    finally:
        os.close(handle)


@contextmanager
def claim_by_hand(app: App, *, whole: bool = False) -> Iterator[None]:
    """Holds the app for a switch or a removal by hand, where no deployment is unfinished.

    Args:
        app: The app.
        whole: Whether all of it goes; then a deployment that died needs nothing any more.

    Raises:
        DeviceError: "deploy.busy" or "deploy.unfinished".
    """
    with claim(app, wait_s=_BY_HAND_S):
        journal = read_journal(app)
        if journal is not None and journal.live and not whole:
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
    """Whether a process holds the app now."""
    return is_locked(app.folder / LOCK)


def busy(app: App, job: Optional[str] = None) -> DeviceError:
    """The error that names the deployment which is on its way."""
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
