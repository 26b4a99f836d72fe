"""Rows of the history as results, and SQLite's failures as edgekit's."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from edgekit.errors import EdgekitError, EnvironmentLack
from edgekit.history._samples import damaged, unpack_document, unpack_samples
from edgekit.history._types import Git, Result

__all__ = ["failure", "result_of"]


def failure(error: Exception, path: Path) -> EdgekitError:
    """Returns what a failure of SQLite or of the file means for a user."""
    # a query of ours is an error only where the tables are not ours; and Python's own errors, which
    # have no code of SQLite's, are of text that is not UTF-8, as it was kept
    known = 0 if isinstance(error, OSError) else sqlite3.SQLITE_CORRUPT
    broken = getattr(error, "sqlite_errorcode", known) & 0xFF in (
        sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR,
    )  # fmt: skip
    if broken:
        return EnvironmentLack(
            f"the history is damaged: {error}", code="history.corrupt", where=str(path),
            hint="edgekit history --repair moves the file aside and keeps what can be read",
        )  # fmt: skip
    return EnvironmentLack(
        f"the history cannot be used: {error}", code="history.unavailable", where=str(path),
        hint="set EDGEKIT_HISTORY to a file in a folder that can be written",
    )  # fmt: skip


def result_of(row: sqlite3.Row, marks: Sequence[str]) -> Result:
    """Returns a row with its marks; DataError where what it holds is damaged."""
    try:
        fingerprint = json.loads(row["fingerprint"])
        at, commit = float(row["at"]), row["git_commit"]
        texts = [row[key] or "" for key in ("bundle", "release", "board", "host", "git_commit")]
        if not isinstance(fingerprint, dict) or not all(isinstance(one, str) for one in texts):
            raise ValueError("a column holds something else")
    except (TypeError, ValueError) as error:
        raise damaged(error) from error
    return Result(
        document=unpack_document(row["document"]),
        samples=unpack_samples(row["samples"]) if row["samples"] is not None else (),
        label=f"#{row['id']}",
        id=row["id"],
        at=at,
        git=Git(commit, bool(row["git_dirty"])) if commit else None,
        bundle=row["bundle"],
        release=row["release"],
        board=row["board"],
        host=row["host"],
        fingerprint=fingerprint,
        marks=tuple(marks),
    )
