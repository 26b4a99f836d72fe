"""The journal of an app's newest deployment, and the history of those that ended.

Each state is written down, durably, before its work begins. So whoever finds the journal of a
process that died knows what may be half done, and finishes it or takes it back.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Optional, Set

from ._checks import is_digest, is_release, parse_json
from ._errors import DeviceError, map_os_errors
from ._files import durable_folder, fsync_folder, write_durably
from ._root import App

__all__ = [
    "AFTER_SWITCH",
    "BEFORE_SWITCH",
    "ENDED",
    "HISTORY",
    "JOURNAL",
    "SCHEMA",
    "Journal",
    "history",
    "read_journal",
    "record",
    "references",
    "stamp",
    "writable",
]

SCHEMA = "edgekit.deployment/1"
JOURNAL, HISTORY = "deployment.json", "history.jsonl"

BEFORE_SWITCH = ("downloading", "verifying", "refitting", "testing")
AFTER_SWITCH = ("switching", "soaking", "rolling-back")
ENDED = ("committed", "rolled-back", "failed")

_MAX_BYTES = 1 << 20
_MAX_HISTORY = 512 * 1024
_KEPT_LINES = 200
# of use while it runs, and too much for a line
_NOT_KEPT = ("policy", "health", "steps", "source")


class Journal:
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


def read_journal(app: App) -> Optional[Journal]:
    """The app's newest deployment; None where there is none or its file is damaged."""
    try:
        with (app.folder / JOURNAL).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        found = parse_json(data, JOURNAL, "deployment.damaged")
    except (OSError, DeviceError):
        return None
    return Journal(app, found) if len(data) <= _MAX_BYTES and _sound(found) else None


def record(app: App, document: Dict[str, Any]) -> None:
    """Adds a line to the history, unless its last one is this very deployment's.

    A line that a power cut left half is ended first; of a long file the newest lines are kept.
    """
    path = app.folder / HISTORY
    facts = {name: value for name, value in document.items() if name not in _NOT_KEPT}
    with map_os_errors(str(path)):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        last = _entries(data)[-1:]
        if last and (last[0].get("id"), last[0].get("state")) == (facts["id"], facts["state"]):
            return
        if len(data) > _MAX_HISTORY or (data and not data.endswith(b"\n")):
            kept = [_line(entry) for entry in _entries(data)[-_KEPT_LINES:]]
            write_durably(path, b"".join(kept))
        handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, _line(facts))
            os.fsync(handle)
        finally:
            os.close(handle)
        if not data:
            fsync_folder(app.folder)


def history(app: App) -> List[Dict[str, Any]]:
    """The deployments and roll backs that ended, oldest first."""
    try:
        return _entries((app.folder / HISTORY).read_bytes())
    except OSError:
        return []


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
