"""The history's one file: SQLite, which any number of processes may write.

It keeps SQLite's rollback journal. WAL would let readers go on while somebody writes, but its
shared memory works on one machine only (https://www.sqlite.org/wal.html), and a home folder may lie
on a network; a result is written in one short transaction, so nobody waits long.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from edgekit._data import cache_folder
from edgekit.errors import DataError, EnvironmentLack
from edgekit.history._rows import failure, result_of
from edgekit.history._schema import MIGRATIONS, VERSION
from edgekit.history._trial_names import NO_TRIAL
from edgekit.history._types import Result

__all__ = ["Store", "history_path"]

_WAIT_S = 30.0
_COLUMNS = (
    "id, at, board, host, bundle, release, fingerprint, git_commit, git_dirty, document, samples"
)


def history_path() -> Path:
    """Returns $EDGEKIT_HISTORY, or ``history.sqlite`` in the cache folder."""
    chosen = os.environ.get("EDGEKIT_HISTORY")
    return Path(chosen) if chosen else cache_folder() / "history.sqlite"


class Store:
    """The history, open; a context manager. A file that is not there is an empty history.

    Args:
        path: The file; :func:`history_path` without it.
        write: Whether the file is made where it is missing.

    Raises:
        EnvironmentLack: It cannot be opened, is damaged ("history.corrupt") or of a newer edgekit.
    """

    def __init__(self, path: Path | None = None, *, write: bool = False) -> None:
        self.path = path or history_path()
        self._db: sqlite3.Connection | None = None
        with self._telling():
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            elif not self.path.exists():
                return
            self._db = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA foreign_keys=ON")
            self._migrate()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def add(self, row: Mapping[str, Any]) -> int:
        """Keeps a result, all of it or nothing, and returns its id; that of the same run again."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        query = f"INSERT INTO results ({names}) VALUES ({marks}) ON CONFLICT (digest) DO NOTHING"
        with self._writing() as db:
            db.execute(query, tuple(row.values()))
            found = db.execute("SELECT id FROM results WHERE digest=?", (row["digest"],))
            return int(found.fetchone()[0])

    def bundles(self, name: str) -> list[str | None]:
        """Returns the bundles that a configuration has results of, the newest first."""
        query = "SELECT bundle FROM results WHERE name=? GROUP BY bundle ORDER BY max(id) DESC"
        return [row["bundle"] for row in self._rows(query, name)]

    def amend(self, digest: str, row: Mapping[str, Any]) -> int | None:
        """Changes columns of the result with that digest; returns its id, None where none is."""
        columns = ", ".join(f"{name}=?" for name in row)
        with self._writing() as db:
            found = db.execute("SELECT id FROM results WHERE digest=?", (digest,)).fetchone()
            if found:
                db.execute(f"UPDATE results SET {columns} WHERE id=?", (*row.values(), found[0]))
        return int(found[0]) if found else None

    def results(
        self,
        *,
        ids: Sequence[int] | None = None,
        name: str | None = None,
        board: str | None = None,
        commit: str | None = None,
        mark: str | None = None,
        limit: int | None = None,
        skip: int = 0,
        samples: bool = True,
        trials: bool = True,
    ) -> list[Result]:
        """Returns results, the newest first.

        Args:
            ids: Only these.
            name: Of this configuration.
            board: Of this board: its name, or ``kind:name``.
            commit: Of the commit that begins so.
            mark: What bears this mark.
            limit: So many at most.
            skip: The newest to leave out.
            samples: Whether the single times are wanted.
            trials: Whether edgekit tune's trials are wanted where no name is given.
        """
        where, values = ["1"], list[Any]()
        for clause, value in (
            ("name=?", name),
            ("board LIKE ? ESCAPE '\\'", board and _ending(board)),
            ("git_commit LIKE ? ESCAPE '\\'", commit and _plain_like(commit) + "%"),
            ("id=(SELECT result FROM marks WHERE marks.name=?)", mark),
        ):
            if value is not None:
                where.append(clause)
                values.append(value)
        if not trials and name is None:
            where.append(NO_TRIAL)
        if ids is not None:
            where.append(f"id IN ({', '.join('?' * len(ids))})")
            values += ids
        columns = _COLUMNS if samples else _COLUMNS.replace("samples", "NULL AS samples")
        query = f"SELECT {columns} FROM results WHERE {' AND '.join(where)} ORDER BY id DESC"
        rows = self._rows(
            f"{query} LIMIT ? OFFSET ?", *values, -1 if limit is None else limit, skip
        )
        names: dict[int, list[str]] = {}
        for row in self._rows("SELECT name, result FROM marks ORDER BY name"):
            names.setdefault(row["result"], []).append(row["name"])
        return [result_of(row, names.get(row["id"], ())) for row in rows]

    def mark(self, name: str, id: int) -> None:
        """Gives a result a name; the name leaves the result that had it.

        Raises:
            DataError: There is no such result.
        """
        with self._writing() as db:
            if not db.execute("SELECT 1 FROM results WHERE id=?", (id,)).fetchone():
                raise DataError(
                    f"the history has no result #{id}", code="history.no-result",
                    where=str(self.path), hint="edgekit history lists them",
                )  # fmt: skip
            query = "INSERT OR REPLACE INTO marks (name, result, at) VALUES (?, ?, ?)"
            db.execute(query, (name, id, time.time()))

    def quick_check(self) -> str:
        """Returns "ok", or what SQLite says is wrong with the file."""
        rows = self._rows("PRAGMA quick_check(1)")
        return str(rows[0][0]) if rows else "ok"

    def restore(self, rows: Sequence[Mapping[str, Any]], marks: Sequence[tuple[Any, ...]]) -> int:
        """Keeps rows of another history under their ids, and returns how many there were."""
        with self._writing() as db:
            for row in rows:
                names, places = ", ".join(row), ", ".join("?" * len(row))
                query = f"INSERT OR IGNORE INTO results ({names}) VALUES ({places})"
                db.execute(query, tuple(row.values()))
            known = {row["id"] for row in rows}
            query = "INSERT OR IGNORE INTO marks (name, result, at) VALUES (?, ?, ?)"
            db.executemany(query, [mark for mark in marks if mark[1] in known])
        return len(rows)

    def remove(self, ids: Sequence[int]) -> None:
        """Forgets results and gives their room back."""
        with self._writing() as db:
            db.executemany("DELETE FROM results WHERE id=?", [(id,) for id in ids])
        with self._telling():
            if self._db is not None:
                self._db.execute("VACUUM")

    def _migrate(self) -> None:
        assert self._db is not None
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise EnvironmentLack(
                f"the history is of a newer edgekit (version {version}, this one knows {VERSION})",
                code="history.newer",
                where=str(self.path),
                hint="update edgekit, or set EDGEKIT_HISTORY to another file",
            )
        if version == VERSION:
            return
        with self._writing() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()  # another may have been first
            for number in range(version, VERSION):
                for statement in MIGRATIONS[number]:
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={VERSION}")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that waits for others' at its start, and never in its middle."""
        with self._telling():
            if self._db is None:
                raise FileNotFoundError("there is none yet")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._telling():
            return [] if self._db is None else self._db.execute(query, values).fetchall()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeError) as error:
            raise failure(error, self.path) from error


def _plain_like(text: str) -> str:
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


def _ending(board: str) -> str:
    own = _plain_like(board)
    return own if ":" in board else f"%:{own}"
