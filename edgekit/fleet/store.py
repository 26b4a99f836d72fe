"""Rollouts in SQLite: one file, so that any process can look, and only the driver writes states;
the lock that makes sure of one driver a rollout; and a rollout as ``edgekit.fleet/1``.
WAL with ``synchronous=FULL``: what ``commit`` returned for is there after a power cut.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from edgekit.errors import EnvironmentLack, UsageError
from edgekit.fleet.hints import action_command

_WAIT_S = 30.0
_JSON = ("entry", "labels", "error", "settings", "terms")

_VERSION = 3
_TABLES = (
    """CREATE TABLE rollouts (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        app TEXT NOT NULL,
        config TEXT NOT NULL,
        config_digest TEXT NOT NULL,
        bundle TEXT,             -- a bundle file that was given instead of a build
        inventory TEXT NOT NULL,
        inventory_digest TEXT NOT NULL,
        selector TEXT,
        settings TEXT NOT NULL,
        terms TEXT NOT NULL,     -- by configuration: keep, policy and source of deployments
        trust INTEGER NOT NULL,  -- whether boards are to trust the signing key from now on
        state TEXT NOT NULL,     -- running paused rolling-back done failed aborted rolled-back
        requested TEXT NOT NULL DEFAULT '',
        wave INTEGER NOT NULL DEFAULT 0,
        scope INTEGER,           -- the wave that is rolled back; NULL means all
        error TEXT,
        driver TEXT,             -- host and process of the last driver, for people
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL
    )""",
    """CREATE TABLE boards (
        rollout INTEGER NOT NULL REFERENCES rollouts(id),
        number INTEGER NOT NULL,
        name TEXT NOT NULL,
        wave INTEGER NOT NULL,
        state TEXT NOT NULL,
        entry TEXT NOT NULL,
        labels TEXT NOT NULL,
        before TEXT,             -- digest that served before; '' for none, NULL not yet known
        digest TEXT,             -- digest of the bundle that it gets
        release TEXT,
        attempts INTEGER NOT NULL DEFAULT 0,
        bytes_sent INTEGER NOT NULL DEFAULT 0,
        seconds REAL NOT NULL DEFAULT 0,
        error TEXT,
        updated_at REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (rollout, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE bundles (
        rollout INTEGER NOT NULL REFERENCES rollouts(id),
        key TEXT NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (rollout, key)
    ) WITHOUT ROWID""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        rollout INTEGER NOT NULL REFERENCES rollouts(id),
        at REAL NOT NULL,
        board TEXT NOT NULL,
        state TEXT NOT NULL,
        error TEXT
    )""",
    "CREATE INDEX boards_by_wave ON boards (rollout, wave, number)",
    "CREATE INDEX events_by_rollout ON events (rollout, id)",
)
_TRIES, _MOMENT_S = 10, 0.02


class RolloutStore:
    """The state of all rollouts of a folder; threads may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "fleet.db"
        self._lock = threading.RLock()
        try:
            (folder / "bundles").mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(
                self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._db.row_factory = sqlite3.Row
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise EnvironmentLack(
                f"the fleet's state cannot be opened: {error}",
                code="fleet.state",
                where=str(self.path),
                hint="choose a folder on a local disk that can be written: --state FOLDER",
            ) from error

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA foreign_keys=ON")
        with self._all_or_nothing():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _TABLES:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={_VERSION}")
            elif version != _VERSION:
                raise EnvironmentLack(
                    f"the fleet's state is of another edgekit (version {version}, this one knows "
                    f"{_VERSION})",
                    code="fleet.state-version",
                    where=str(self.path),
                    hint="use that edgekit, or give another folder: --state FOLDER",
                )

    def _all_or_nothing(self) -> _Transaction:
        return _Transaction(self._db, self._lock)

    # rollouts

    def create(
        self, rollout: Mapping[str, Any], boards: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Writes a rollout with its boards, all at once.

        Raises:
            sqlite3.IntegrityError: There is one of that name.
        """
        now = time.time()
        row = {**_plain(rollout), "created_at": now, "updated_at": now}
        with self._all_or_nothing():
            self._insert("rollouts", row)
            id = self._db.execute("SELECT last_insert_rowid()").fetchone()[0]
            for number, board in enumerate(boards):
                self._insert("boards", {"rollout": id, "number": number, **_plain(board)})
        return self.rollout(str(rollout["name"]))

    def rollout(self, name: str) -> dict[str, Any]:
        """Returns a rollout; KeyError when there is none."""
        found = self._rows("SELECT * FROM rollouts WHERE name=?", name)
        if not found:
            raise KeyError(name)
        return found[0]

    def rollouts(self) -> list[dict[str, Any]]:
        """Returns all, the newest first, with the number of boards by state."""
        found = self._rows("SELECT * FROM rollouts ORDER BY id DESC")
        counts = self._rows("SELECT rollout, state, count(*) AS n FROM boards GROUP BY 1, 2")
        for row in found:
            row["counts"] = {c["state"]: c["n"] for c in counts if c["rollout"] == row["id"]}
        return found

    def set_rollout(self, id: int, **values: Any) -> None:
        """Changes a rollout; durable when it returns."""
        self._update("rollouts", {**_plain(values), "updated_at": time.time()}, "id=?", id)

    def request(self, id: int) -> str:
        """Returns "pause", "abort" or ""; what another process wants of the driver."""
        return str(self._rows("SELECT requested FROM rollouts WHERE id=?", id)[0]["requested"])

    # boards

    def boards(self, id: int, wave: int | None = None) -> list[dict[str, Any]]:
        """Returns the boards of a rollout or of one wave, in their order."""
        if wave is None:
            return self._rows("SELECT * FROM boards WHERE rollout=? ORDER BY number", id)
        query = "SELECT * FROM boards WHERE rollout=? AND wave=? ORDER BY number"
        return self._rows(query, id, wave)

    def set_board(self, id: int, name: str, **values: Any) -> None:
        """Changes a board; durable when it returns. A new state is noted in the history."""
        now = time.time()
        with self._all_or_nothing():
            row = {**_plain(values), "updated_at": now}
            self._update("boards", row, "rollout=? AND name=?", id, name)
            if "state" in values:
                event = {"rollout": id, "at": now, "board": name, "state": values["state"],
                         "error": row.get("error")}  # fmt: skip
                self._insert("events", event)

    def events(self, id: int) -> list[dict[str, Any]]:
        """Returns every change of a board's state, oldest first."""
        return self._rows("SELECT * FROM events WHERE rollout=? ORDER BY id", id)

    # bundles

    def bundle(self, id: int, key: str) -> str | None:
        """Returns the digest of what a kind of board gets in this rollout."""
        query = "SELECT digest FROM bundles WHERE rollout=? AND key=?"
        found = self._rows(query, id, key)
        return str(found[0]["digest"]) if found else None

    def set_bundle(self, id: int, key: str, digest: str) -> None:
        """Settles what a kind of board gets; it is not changed later."""
        with self._lock:
            self._insert("bundles", {"rollout": id, "key": key, "digest": digest})

    def _insert(self, table: str, row: Mapping[str, Any]) -> None:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        query = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        self._db.execute(query, tuple(row.values()))

    def _update(self, table: str, row: Mapping[str, Any], which: str, *key: Any) -> None:
        names = ", ".join(f"{name}=?" for name in row)
        with self._lock:
            self._db.execute(f"UPDATE {table} SET {names} WHERE {which}", (*row.values(), *key))

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            found = [dict(row) for row in self._db.execute(query, values)]
        for row in found:
            for name in _JSON:
                if row.get(name) is not None:
                    row[name] = json.loads(row[name])
        return found


class _Transaction:
    """``BEGIN IMMEDIATE`` to ``COMMIT``; a failure takes all of it back. Not re-entrant."""

    def __init__(self, db: sqlite3.Connection, lock: threading.RLock) -> None:
        self._db, self._lock = db, lock

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._db.execute("COMMIT" if kind is None else "ROLLBACK")
        finally:
            self._lock.release()


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value) if name in _JSON and value is not None else value
        for name, value in row.items()
    }


# One driver a rollout: a flock, which the system lets go of when the driver dies.


def _path(folder: Path, id: int) -> Path:
    return folder / f"rollout-{id}.lock"


@contextlib.contextmanager
def driven(folder: Path, id: int, name: str) -> Iterator[None]:
    """Holds a rollout for this process.

    Raises:
        UsageError: "fleet.driven": another process drives it, and which.
    """
    with _path(folder, id).open("a+b") as file:
        if not _held(file):
            file.seek(0)
            who = file.read(200).decode("utf-8", "replace").strip() or "another process"
            raise UsageError(
                f"{name} is driven by {who} already",
                code="fleet.driven",
                where=name,
                hint=f"{action_command('status', name, folder)} shows it; "
                f"{action_command('pause', name, folder)} stops it",
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield


def _held(file: IO[bytes]) -> bool:
    # is_driven() holds it for a moment, too
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_MOMENT_S)
    return False


def is_driven(folder: Path, id: int) -> bool:
    """Whether some process drives the rollout now."""
    try:
        with _path(folder, id).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def document_of(
    store: RolloutStore, rollout: Mapping[str, Any], *, driven: bool, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns a rollout with its waves and boards.

    A board's ``serves`` is the digest of what it was last known to serve, "" for nothing and None
    where that is not known.

    Args:
        store: The state.
        rollout: The rollout's row.
        driven: Whether a process drives it now.
        notes: What a person should know.
    """
    rows = store.boards(rollout["id"])
    waves = [
        [row for row in rows if row["wave"] == number]
        for number in range(1 + max((row["wave"] for row in rows), default=-1))
    ]
    return {
        "schema": "edgekit.fleet/1",
        **_head(rollout),
        "driven": driven,
        "driver": rollout["driver"],
        "counts": _counts(rows),
        "waves": [{"wave": n + 1, "boards": len(w), "counts": _counts(w)}
                  for n, w in enumerate(waves)],
        "boards": [_board(row) for row in rows],
        "failure": rollout["error"],
        "notes": list(notes),
    }  # fmt: skip


def listing_of(store: RolloutStore) -> dict[str, Any]:
    """Returns all rollouts, ``edgekit.fleets/1``."""
    rows = [
        {
            **_head(row),
            "driven": is_driven(store.folder, row["id"]),
            "counts": dict(row["counts"]),
            "failure": row["error"],
        }
        for row in store.rollouts()
    ]
    return {"schema": "edgekit.fleets/1", "rollouts": rows}


def _head(rollout: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rollout": rollout["name"],
        "app": rollout["app"],
        "state": rollout["state"],
        "wave": rollout["wave"] + 1,
        "config": rollout["config"],
        "inventory": rollout["inventory"],
        "select": rollout["selector"],
        "settings": rollout["settings"],
        "created_at": _time(rollout["created_at"]),
        "updated_at": _time(rollout["updated_at"]),
    }


def _board(row: Mapping[str, Any]) -> dict[str, Any]:
    # what serves on a board that failed was not queried
    serves = {"done": row["digest"], "rolled-back": row["before"]}.get(row["state"])
    return {
        "board": row["name"],
        "host": row["entry"]["host"],
        "labels": row["labels"],
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


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return dict(sorted(Counter(row["state"] for row in rows).items()))


def _time(seconds: float) -> str:
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="seconds")
