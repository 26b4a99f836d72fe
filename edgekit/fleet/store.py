"""Rollouts on the disk: a file of JSON lines each. The first says what the rollout is, every other
what changed; a line is on the disk before it is acted upon. One process drives a rollout, by a lock
on that file; any other may read it. Here a rollout also becomes an ``edgekit.fleet/1``.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import EnvironmentLack, UsageError
from edgekit.fleet.hints import action_command
from edgekit.fleet.waves import Row

_SCHEMA = "edgekit.rollout/1"
_TRIES, _MOMENT_S = 10, 0.02
#: What a board is before anything was done on it. "before" is the digest that served before: '' for
#: none, None while it is not known; "digest" that of the bundle that it gets.
_FRESH: Row = {"state": "pending", "before": None, "digest": None, "release": None, "attempts": 0,
               "bytes_sent": 0, "seconds": 0.0, "error": None}  # fmt: skip


class Rollout:
    """One rollout, as its file says; threads may share it.

    Attributes:
        path: The file.
        facts: What it is: "name", "app", "config", "settings", "state" and the like.
        boards: Its boards by name, in their order.
    """

    def __init__(self, path: Path, text: bytes) -> None:
        self.path = path
        self._lock = threading.Lock()
        # a line that a power cut left half written was not acted upon
        first, *changes = [json.loads(line) for line in text.split(b"\n")[:-1]]
        if first.pop("schema") != _SCHEMA:
            raise ValueError("it is from another version of edgekit")
        self.boards: dict[str, Row] = {row["name"]: row for row in first.pop("boards")}
        self.facts: dict[str, Any] = first
        for change in changes:
            self._take(change)

    @property
    def name(self) -> str:
        """The rollout's name."""
        return str(self.facts["name"])

    @property
    def folder(self) -> Path:
        """The folder of the state."""
        return self.path.parent.parent

    @property
    def waves(self) -> int:
        """How many waves it has."""
        return 1 + max((row["wave"] for row in self.boards.values()), default=-1)

    def wave(self, number: int) -> list[Row]:
        """Returns the boards of a wave, in their order."""
        return [row for row in self.boards.values() if row["wave"] == number]

    def set(self, **values: Any) -> None:
        """Changes the rollout; durable when it returns."""
        self._write({"set": values})

    def set_board(self, name: str, **values: Any) -> None:
        """Changes a board; durable when it returns."""
        self._write({"board": name, "set": values})

    def _write(self, change: dict[str, Any]) -> None:
        change["at"] = time.time()
        with self._lock:
            append = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            with os.fdopen(append, "wb") as file:
                file.write(json.dumps(change).encode() + b"\n")
                file.flush()
                os.fsync(append)
            self._take(change)

    def _take(self, change: Mapping[str, Any]) -> None:
        changed = self.boards[change["board"]] if "board" in change else self.facts
        changed.update(change["set"])
        self.facts["updated_at"] = change["at"]

    @property
    def _request(self) -> Path:
        return self.path.with_suffix(".request")

    def requested(self) -> str:
        """Returns "pause", "abort" or ""; what another process wants of the driver."""
        try:
            return self._request.read_text()
        except FileNotFoundError:
            return ""

    def request(self, action: str) -> None:
        """Asks the driver for "pause" or "abort"; "" takes that back."""
        if action:
            self._request.write_text(action)
        else:
            self._request.unlink(missing_ok=True)

    @contextlib.contextmanager
    def driven(self) -> Iterator[None]:
        """Holds the rollout for this process, and reads it as the last driver left it.

        Raises:
            UsageError: "fleet.driven": another process drives it, and which.
        """
        with self.path.open("r+b") as file:
            if not _held(file.fileno()):
                who = _read(self.path).facts["driver"] or "another process"
                raise UsageError(
                    f"{self.name} is already driven by {who}",
                    code="fleet.driven",
                    where=self.name,
                    hint=f"{action_command('status', self.name, self.folder)} shows its state; "
                    f"{action_command('pause', self.name, self.folder)} stops it",
                )
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
            now = Rollout(self.path, text)
            self.facts, self.boards = now.facts, now.boards
            yield

    def is_driven(self) -> bool:
        """Whether some process drives it now."""
        with self.path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _held(descriptor: int) -> bool:
    # is_driven() holds it for a moment, too
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_MOMENT_S)
    return False


def _read(path: Path) -> Rollout:
    try:
        return Rollout(path, path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentLack(
            f"the state of a rollout cannot be read: {error}",
            code="fleet.state",
            where=str(path),
            hint="use the edgekit version that wrote it, or give another folder: --state FOLDER",
        ) from error


class RolloutStore:
    """The rollouts of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "rollouts"
        if (old := folder / "fleet.db").exists():
            raise EnvironmentLack(
                "the rollouts in this folder are from an older edgekit",
                code="fleet.state",
                where=str(old),
                hint="finish them with that version, or give another folder: --state FOLDER",
            )
        try:
            for made in (self.path, folder / "bundles"):
                made.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _not_writable(self.path, error) from error

    def create(self, facts: Mapping[str, Any], boards: Iterable[Mapping[str, Any]]) -> Rollout:
        """Writes a rollout with its boards, all at once.

        Raises:
            FileExistsError: There is one of that name.
        """
        now = time.time()
        first = {"schema": _SCHEMA, **facts, "wave": 0, "scope": None, "error": None,
                 "driver": None, "created_at": now, "updated_at": now,
                 "boards": [{**_FRESH, **board} for board in boards]}  # fmt: skip
        path = self.path / f"{facts['name']}.jsonl"
        new = self.path / f".{os.getpid()}.new"
        try:
            with new.open("wb") as file:
                file.write(json.dumps(first).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except FileExistsError:
            raise
        except OSError as error:
            raise _not_writable(path, error) from error
        finally:
            new.unlink(missing_ok=True)
        return _read(path)

    def rollout(self, name: str) -> Rollout:
        """Returns a rollout as it is now; KeyError when there is none."""
        path = self.path / f"{Path(name).name}.jsonl"
        try:
            return _read(path)
        except FileNotFoundError:
            raise KeyError(name) from None

    def rollouts(self) -> list[Rollout]:
        """Returns all, the newest first."""
        found = [_read(path) for path in self.path.glob("[!.]*.jsonl")]
        return sorted(found, key=lambda rollout: rollout.facts["created_at"], reverse=True)


def _not_writable(path: Path, error: OSError) -> EnvironmentLack:
    return EnvironmentLack(
        f"cannot save the fleet's state: {error}",
        code="fleet.state",
        where=str(path),
        hint="give a writable folder on a local disk: --state FOLDER",
    )


def document_of(rollout: Rollout, *, driven: bool, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a rollout with its waves and boards.

    A board's ``serves`` is the digest of what it was last known to serve, "" for nothing and None
    where that is not known.

    Args:
        rollout: The rollout.
        driven: Whether a process drives it now.
        notes: What a person should know.
    """
    waves = [rollout.wave(number) for number in range(rollout.waves)]
    return {
        "schema": "edgekit.fleet/1",
        **_head(rollout, driven),
        "driver": rollout.facts["driver"],
        "waves": [{"wave": n + 1, "boards": len(w), "counts": _counts(w)}
                  for n, w in enumerate(waves)],
        "boards": [_board(row) for row in rollout.boards.values()],
        "notes": list(notes),
    }  # fmt: skip


def listing_of(store: RolloutStore) -> dict[str, Any]:
    """Returns all rollouts, ``edgekit.fleets/1``."""
    rows = [_head(rollout, rollout.is_driven()) for rollout in store.rollouts()]
    return {"schema": "edgekit.fleets/1", "rollouts": rows}


def _head(rollout: Rollout, driven: bool) -> dict[str, Any]:
    facts = rollout.facts
    return {
        "rollout": facts["name"],
        "app": facts["app"],
        "state": facts["state"],
        "wave": facts["wave"] + 1,
        "config": facts["config"],
        "inventory": facts["inventory"],
        "select": facts["selector"],
        "settings": facts["settings"],
        "created_at": _time(facts["created_at"]),
        "updated_at": _time(facts["updated_at"]),
        "driven": driven,
        "counts": _counts(rollout.boards.values()),
        "failure": facts["error"],
    }


def _board(row: Row) -> dict[str, Any]:
    # what serves on a board that failed was not queried
    serves = {"done": row["digest"], "rolled-back": row["before"]}.get(row["state"])
    return {
        "board": row["name"],
        "host": row["member"]["board"]["host"],
        "labels": row["member"]["labels"],
        "wave": row["wave"] + 1,
        "state": row["state"],
        # the release's name on a board that went back is unknown: "serves" has its bundle
        "release": None if row["state"] == "rolled-back" else row["release"],
        "serves": serves,
        "digest": row["digest"],
        "before": row["before"] or None,
        "attempts": row["attempts"],
        "bytes_sent": row["bytes_sent"],
        "seconds": round(row["seconds"], 3),
        "error": row["error"],
    }


def _counts(rows: Iterable[Row]) -> dict[str, int]:
    return dict(sorted(Counter(row["state"] for row in rows).items()))


def _time(seconds: float) -> str:
    at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return at.isoformat(timespec="seconds")
