"""A damaged history: moved aside, never deleted, and what can be read of it kept."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from edgekit.errors import EdgekitError, EnvironmentLack
from edgekit.history._rows import result_of
from edgekit.history._schema import MIGRATIONS
from edgekit.history._store import Store, history_path

__all__ = ["repair"]

# by name, so that a damaged name is an error
_COLUMNS = ", ".join(re.findall(r"^ {12}(\w+) ", MIGRATIONS[0][0], re.M))


def repair(path: Path | None = None) -> dict[str, Any]:
    """Makes a history that can be used of one that is damaged; a sound one is left alone.

    Returns:
        "repaired"; "moved" (where the damaged file is now, or None) and "kept" (results).

    Raises:
        EnvironmentLack: The file is of a newer edgekit, or its folder cannot be written.
    """
    path = path or history_path()
    try:
        with Store(path) as store:
            count = _check(store, path)
        return {"repaired": False, "moved": None, "kept": count}
    except EdgekitError as error:
        if error.code not in ("history.corrupt", "history.damaged"):
            raise
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    number = 1
    while aside.exists():
        number += 1
        aside = aside.with_name(f"{aside.name.split('~')[0]}~{number}")
    try:
        path.rename(aside)
        journal = path.with_name(f"{path.name}-journal")
        if journal.exists():  # it belongs to that file, and would be played back into the new one
            journal.rename(aside.with_name(f"{aside.name}-journal"))
    except OSError as error:
        raise EnvironmentLack(
            f"the damaged history cannot be moved aside: {error.strerror}",
            code="history.unavailable", where=str(path),
        ) from error  # fmt: skip
    rows, marks = _readable(aside)
    with Store(path, write=True) as store:
        kept = store.restore(rows, marks)
    return {"repaired": True, "moved": str(aside), "kept": kept}


def _check(store: Store, path: Path) -> int:
    """Reads all of it; SQLite itself notices damage only where it happens to read."""
    fine = store.quick_check()
    if fine != "ok":
        raise EnvironmentLack(fine, code="history.corrupt", where=str(path))
    return len(store.results())


def _readable(path: Path) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """Returns the rows that can be read, each on its own, and the marks."""
    rows: list[dict[str, Any]] = []
    marks: list[tuple[Any, ...]] = []
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error:
        return rows, marks
    try:
        db.row_factory = sqlite3.Row
        # up to the damage from both sides, and what an index knows
        ids = {
            row[0]
            for query in (
                "NOT INDEXED ORDER BY id",
                "NOT INDEXED ORDER BY id DESC",
                "ORDER BY name",
            )
            for row in _some(db, f"SELECT id FROM results {query}")
        }
        for id in sorted(one for one in ids if isinstance(one, int)):
            for row in _some(db, f"SELECT {_COLUMNS} FROM results NOT INDEXED WHERE id=?", id):
                if _is_sound(row):
                    rows.append(dict(row))
        marks = [tuple(row) for row in _some(db, "SELECT name, result, at FROM marks")]
    finally:
        db.close()
    return rows, marks


def _some(db: sqlite3.Connection, query: str, *values: Any) -> list[sqlite3.Row]:
    """Returns rows up to the first that cannot be read."""
    found: list[sqlite3.Row] = []
    try:
        for row in db.execute(query, values):
            found.append(row)
    except (sqlite3.Error, OverflowError, UnicodeError):
        pass
    return found


def _is_sound(row: sqlite3.Row) -> bool:
    """Whether it is read as a result, and is the row that its own id names."""
    try:
        result_of(row, ())
    except (EdgekitError, TypeError, IndexError):
        return False
    return True
