"""The journal of an app's newest deployment, the history of those that ended, and the flock on
apps/<name>/deploying that says which process deploys the app.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Set

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import (
    durable_folder,
    fsync_folder,
    is_locked,
    locked,
    take_lock,
    write_durably,
)
from edgekit_device.protocol.codec import is_digest, is_release, parse_json
from edgekit_device.store.root import App, Root

# The journal of an app's newest deployment, and the history of those that ended.
#
# Each state is written down, durably, before its work begins. So whoever finds the journal of a
# process that died knows what may be half done, and finishes it or takes it back.
#
# A release that was taken back, by hand, by its own deployment or by a server, stays taken back
# until it is deployed again on purpose (``taken_back``): nothing else may bring it to serve. But
# where the board itself failed, as with a full disk, the same deployment is tried again. All this
# outlives the release, and the app: ROOT/taken-back.json has what histories said that are gone.


SCHEMA = "edgekit.deployment/1"
JOURNAL, HISTORY = "deployment.json", "history.jsonl"

#: In ROOT: what was taken back of apps that were removed.
TAKEN_BACK = "taken-back.json"

BEFORE_SWITCH = ("downloading", "verifying", "refitting", "testing")
AFTER_SWITCH = ("switching", "soaking", "rolling-back")
ENDED = ("committed", "rolled-back", "failed")
_MAX_BYTES = 1 << 20
_MAX_HISTORY = 512 * 1024
_RETAINED_LINES = 200
_TAKEN_BACK_SCHEMA = "edgekit.taken-back/1"

# of use while it runs, and too much for a line
_NOT_IN_HISTORY = ("policy", "health", "steps", "source")
LOCK = "deploying"

# readers, and a rollback or removal by hand, hold it for moments
_WAIT_S = 10.0
_BY_HAND_S = 2.0
_POLL_S = 0.02


class DeploymentJournal:
    """One deployment, as deployment.json holds it.

    Attributes:
        app: The app.
        facts: The document, ``edgekit.deployment/1``.
    """

    def __init__(self, app: App, facts: Dict[str, Any]) -> None:
        self.app = app
        self.facts = facts
        self._since = time.monotonic()

    @property
    def state(self) -> str:
        """What it does, or how it ended."""
        return str(self.facts["state"])

    @property
    def live(self) -> bool:
        """Whether it has not ended; its process may be gone all the same."""
        return self.state not in ENDED

    def enter(self, state: str, **facts: Any) -> None:
        """Writes down that ``state`` begins, before it does.

        Raises:
            DeviceError: "board.disk-full" and the like: then it must not begin.
        """
        self.note(state, **facts)
        with map_os_errors(str(self.app.folder)):
            write_durably(self.app.folder / JOURNAL, _line(self.facts))

    def note(self, state: str, **facts: Any) -> None:
        """As ``enter``, in memory alone."""
        now = time.monotonic()
        steps = self.facts["steps"]
        if steps:
            steps[-1]["seconds"] = round(now - self._since, 3)
        self._since = now
        if not steps or steps[-1]["state"] != state:
            steps.append({"state": state, "at": stamp(), "seconds": None})
        self.facts.update(facts, state=state, state_at=stamp())


def stamp() -> str:
    """Now, for people: no decision rests on it, for clocks of boards jump."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_journal(app: App) -> Optional[DeploymentJournal]:
    """The app's newest deployment; None where there is none or its file is damaged."""
    try:
        with (app.folder / JOURNAL).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        found = parse_json(data, JOURNAL, "deployment.damaged")
    except (OSError, DeviceError):
        return None
    return DeploymentJournal(app, found) if len(data) <= _MAX_BYTES and _sound(found) else None


def record(app: App, document: Dict[str, Any]) -> None:
    """Adds a line to the history, unless its last one is this very deployment's.

    A line that a power cut left half is ended first; of a long file the newest lines stay, and
    those of releases that stay taken back.
    """
    path = app.folder / HISTORY
    facts = {name: value for name, value in document.items() if name not in _NOT_IN_HISTORY}
    with map_os_errors(str(path)):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        last = _entries(data)[-1:]
        if last and (last[0].get("id"), last[0].get("state")) == (facts["id"], facts["state"]):
            return
        if len(data) > _MAX_HISTORY or (data and not data.endswith(b"\n")):
            entries = _entries(data)
            journal = read_journal(app)
            stays = {entry.get("id") for entry in _standing(entries).values() if entry is not None}
            stays.add(None if journal is None else journal.facts["id"])  # or it would count as new
            old = [entry for entry in entries[:-_RETAINED_LINES] if entry.get("id") in stays]
            retained = [_line(entry) for entry in old + entries[-_RETAINED_LINES:]]
            write_durably(path, b"".join(retained))
        handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, _line(facts))
            os.fsync(handle)
        finally:
            os.close(handle)
        if not data:
            fsync_folder(app.folder)


def complete_history(app: App) -> None:
    """Adds the newest deployment's line where a power cut or a full disk left it out."""
    past = _past(app)
    if len(past) > len(history(app)):
        record(app, past[-1])


def history(app: App) -> List[Dict[str, Any]]:
    """The deployments and roll backs that ended, oldest first."""
    try:
        return _entries((app.folder / HISTORY).read_bytes())
    except OSError:
        return []


def taken_back(app: App, digest: str) -> Optional[Dict[str, str]]:
    """Whether a bundle served here, was taken back, and did not come to serve since.

    Args:
        app: The app.
        digest: SHA-256 of the bundle's manifest.

    Returns:
        "release", "at" and "reason"; None where it was not taken back.
    """
    short = digest[:12]
    found = standing(app)
    if short in found:
        return found[short]
    removed: Optional[Dict[str, str]] = _remembered(app.root)["apps"].get(app.name, {}).get(short)
    return removed


def last_taken_back(app: App) -> Optional[Dict[str, str]]:
    """What was taken back last, as ``taken_back``; None once a release came to serve since."""
    ended = [entry for entry in _past(app) if entry.get("state") != "failed"]
    if not ended or ended[-1].get("state") != "rolled-back" or _boards_own(ended[-1]):
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
    return "edgekit deploy CONFIG --again, on the board {}".format(here)


def refuse_taken_back(
    app: App, digest: str, where: str = "", release: Optional[str] = None
) -> None:
    """Refuses a bundle that was taken back here, or a release of it that is here.

    Raises:
        DeviceError: "install.taken-back".
    """
    found = taken_back(app, digest)
    if found is not None:
        raise DeviceError(
            "{} served here and was taken back at {}: {}".format(
                found["release"], found["at"], found["reason"]
            ),
            code="install.taken-back",
            where=where or app.name,
            hint="deploy a newer bundle, or put this one back on purpose: "
            + put_back(app, release),
        )


def standing(app: App) -> Dict[str, Optional[Dict[str, str]]]:
    """What the app's history says of each bundle, by the start of its digest.

    Returns:
        As ``taken_back``; None for one that came to serve and was not taken back since.
    """
    return {short: _describe_taken_back(entry) for short, entry in _standing(_past(app)).items()}


def remember_taken_back(root: Root, name: str, found: Dict[str, Optional[Dict[str, str]]]) -> None:
    """Writes to ROOT/taken-back.json what ``standing`` said of an app that is removed."""
    if not found:
        return
    path = root.folder / TAKEN_BACK
    with locked(root.folder / "taken-back.lock"), map_os_errors(str(path)):
        known = _remembered(root)
        before = known["apps"].get(name, {})
        after = {short: one for short, one in before.items() if short not in found}
        after.update((short, one) for short, one in found.items() if one is not None)
        if after != before:
            known["apps"][name] = dict(list(after.items())[-_RETAINED_LINES:])
            write_durably(path, _line(known))


def writable(app: App) -> None:
    """Makes the app's folder, durably, where it is not there yet."""
    with map_os_errors(str(app.folder)):
        durable_folder(app.folder)


def references(app: App) -> Set[str]:
    """Releases that a deployment which has not ended may need."""
    journal = read_journal(app)
    if journal is None or not journal.live:
        return set()
    named = (journal.facts.get(key) for key in ("release", "previous", "fallback"))
    return {str(name) for name in named if is_release(name)}


def _past(app: App) -> List[Dict[str, Any]]:
    """The history, and the newest deployment where a cut or a full disk left its line out."""
    found = history(app)
    journal = read_journal(app)
    # a roll back by hand may have come after it
    known = journal is None or any(entry.get("id") == journal.facts["id"] for entry in found)
    if journal is not None and not known and not journal.live:
        found.append(journal.facts)
    return found


def _standing(entries: List[Dict[str, Any]]) -> Dict[str, Optional[Dict[str, Any]]]:
    """By the start of a bundle's digest, the entry that took it back; None where it came to serve.

    A deployment that failed before the switch changes nothing about what was taken back.
    """
    found: Dict[str, Optional[Dict[str, Any]]] = {}
    for entry in entries:
        release, previous = _short(entry.get("release")), _short(entry.get("previous"))
        if entry.get("state") == "committed":
            found[release] = None
        elif entry.get("state") == "rolled-back":
            if not _boards_own(entry):
                found[release] = entry
            found[previous] = None  # which serves, also where it is the same bundle signed anew
    found.pop("", None)
    return found


def _boards_own(entry: Dict[str, Any]) -> bool:
    """Whether a full disk or damaged storage took it back: no judgement of the release."""
    error = entry.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return isinstance(code, str) and code.startswith(("board.", "blob."))


def _short(release: object) -> str:
    return release.partition("-")[2] if isinstance(release, str) and is_release(release) else ""


def _describe_taken_back(entry: Optional[Dict[str, Any]]) -> Optional[Dict[str, str]]:
    if entry is None:
        return None
    error = entry.get("error")
    why = error.get("message") if isinstance(error, dict) else None
    return {
        "release": str(entry.get("release")),
        "at": str(entry.get("state_at")),
        "reason": str(why or "no reason is known"),
    }


def _remembered(root: Root) -> Dict[str, Any]:
    """ROOT/taken-back.json; an empty one where it is not there or damaged."""
    empty: Dict[str, Any] = {"schema": _TAKEN_BACK_SCHEMA, "apps": {}}
    try:
        with (root.folder / TAKEN_BACK).open("rb") as file:
            found = parse_json(file.read(16 * _MAX_BYTES), TAKEN_BACK, "taken-back.damaged")
    except (OSError, DeviceError):
        return empty
    apps = found.get("apps") if isinstance(found, dict) else None
    sound = isinstance(apps, dict) and all(
        isinstance(releases, dict)
        and all(
            isinstance(one, dict)
            and set(one) == {"release", "at", "reason"}
            and all(isinstance(text, str) for text in one.values())
            for one in releases.values()
        )
        for releases in apps.values()
    )
    return {"schema": _TAKEN_BACK_SCHEMA, "apps": apps} if sound else empty


def _entries(data: bytes) -> List[Dict[str, Any]]:
    found = []
    for line in data.split(b"\n"):
        try:
            entry = json.loads(line.decode("utf-8"))
        except ValueError:
            continue  # empty, or half a line
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _sound(found: object) -> bool:
    """Whether the fields that decisions rest on are what they should be."""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return False
    links = [found.get(key) for key in ("release", "previous", "fallback")]
    return (
        found.get("state") in (*BEFORE_SWITCH, *AFTER_SWITCH, *ENDED)
        and is_digest(found.get("digest"))
        and isinstance(found.get("id"), str)
        and isinstance(found.get("steps"), list)
        and isinstance(found.get("policy"), dict)
        and all(name is None or is_release(name) for name in links)
    )


def _line(document: Dict[str, Any]) -> bytes:
    return (json.dumps(document, sort_keys=True) + "\n").encode("utf-8")


@contextmanager
def claim(app: App, wait_s: float = _WAIT_S) -> Iterator[int]:
    """Holds the app for a deployment or for a change by hand; yields the lock's descriptor.

    A child process has to close the descriptor: as long as one is open the app is held.

    Raises:
        DeviceError: "deploy.busy" with who deploys what.
    """
    writable(app)
    deadline = time.monotonic() + wait_s
    while True:
        with map_os_errors(str(app.folder)):
            path = str(app.folder / LOCK)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not take_lock(handle):
                if time.monotonic() >= deadline:
                    raise busy(app)
                time.sleep(_POLL_S)
            # whoever held it may have removed the app
            if os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path)):
                for left in app.folder.glob(".{}.*".format(JOURNAL)):
                    left.unlink()
                yield handle
                return
        finally:
            os.close(handle)
        writable(app)


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
                "a deployment of {} was cut off while {}".format(
                    str(journal.facts["digest"])[:12], journal.state
                ),
                code="deploy.unfinished",
                where=app.name,
                hint="deploy again, or `edgekit rollback`, which ends it",
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
            "another command changes this app",
            code="deploy.busy",
            where=app.name,
            hint="try again in a moment",
        )
    facts = journal.facts
    job = job or facts.get("job")
    return DeviceError(
        "{} deploys {} since {} ({})".format(
            facts.get("operator") or "somebody",
            str(facts["digest"])[:12],
            facts.get("started_at"),
            journal.state,
        ),
        code="deploy.busy",
        where=app.name,
        hint="wait for its end: edgekit jobs attach {0} BOARD; "
        "edgekit jobs cancel {0} BOARD takes it back".format(job)
        if job
        else "edgekit status BOARD shows how far it is",
    )
