"""The file of all measurements: an SQLite database that several processes may write at once. Its
tables, the conversion of rows, the packing of documents and samples, and the repair of a damaged
file: the file is moved aside, and its readable rows are copied into a new file.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from edgekit import timeouts
from edgekit.benchmark.document import UNKNOWN_RUNTIME, UNKNOWN_SETTINGS, Bench, ReportedBench
from edgekit.benchmark.measurement import Times
from edgekit.documents import (
    ClockName,
    Coded,
    Count,
    Document,
    Figure,
    Precision,
    TargetName,
    fault_words,
    omitted,
)
from edgekit.errors import DataError, EdgekitError, EnvironmentLack
from edgekit.files import cache_folder
from edgekit_device.benchmark.measurement import Fact, MeasuredSettings, UsedRuntime

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE results (
            id INTEGER PRIMARY KEY AUTOINCREMENT,  -- an id that was pruned never comes back
            digest TEXT NOT NULL UNIQUE,  -- of what was measured: the same run is kept once
            at REAL NOT NULL,             -- Unix seconds when it was recorded
            name TEXT NOT NULL,           -- the configuration's
            clock TEXT NOT NULL,          -- cpu-measured or board-measured
            verdict TEXT,                 -- VALID or INVALID
            board TEXT NOT NULL,          -- kind:name
            host TEXT NOT NULL,           -- whose processor it was, where that is not the board's
            target TEXT,
            power_mode TEXT,              -- as measured, otherwise as planned
            precision TEXT,
            backend TEXT,
            bundle TEXT,                  -- its digest
            release TEXT,
            fingerprint TEXT NOT NULL,    -- JSON: module, L4T, TensorRT, versions
            git_commit TEXT,              -- of the configuration's folder
            git_dirty INTEGER,            -- tracked files differed from it
            settings TEXT NOT NULL,       -- JSON: how it was measured
            runtime TEXT NOT NULL,        -- JSON: the runtime's effective flags
            iterations INTEGER NOT NULL,
            median_ms REAL,
            p99_ms REAL,
            throughput_qps REAL,
            energy_uj REAL,               -- of one inference
            document BLOB NOT NULL,       -- edgekit.bench/1 without its samples: deflated JSON
            samples BLOB NOT NULL         -- ms: float64, bytes by place, deflated
        )""",
        """CREATE TABLE marks (
            name TEXT PRIMARY KEY,
            result INTEGER NOT NULL REFERENCES results(id) ON DELETE CASCADE,
            at REAL NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX results_by_name ON results (name, board, id)",
        "CREATE INDEX results_by_commit ON results (git_commit, id)",
    ),
)
VERSION = len(MIGRATIONS)
HISTORY_SCHEMA: Final = "edgekit.history/1"
# characters of an application's name, as in the configuration's schema
_LONGEST = 64
NO_TRIAL = f"name NOT GLOB '*-tune-{'[0-9a-f]' * 6}'"
"""SQL: the result is of no trial."""
_TRIAL = re.compile(r".*-tune-[0-9a-f]{6}", re.DOTALL)
# primary result codes (https://www.sqlite.org/rescode.html)
_SQLITE_ERROR, _SQLITE_CORRUPT, _SQLITE_NOTADB = 1, 11, 26
# SQLite's errors of a file that may be sound but cannot be used now
_UNAVAILABLE = re.compile(
    r"is locked|readonly|disk I/O|is full|unable to open|denied|locking protocol|interrupted"
)
_COLUMNS = (
    "id, at, board, host, bundle, release, fingerprint, git_commit, git_dirty, document, samples"
)
# by name, so that a damaged name is an error
_REPAIRED_COLUMNS = ", ".join(re.findall(r"^ {12}(\w+) ", MIGRATIONS[0][0], re.M))


@dataclass(frozen=True)
class StoredResult:
    """A row of the table of results, without its id."""

    digest: str
    at: float
    name: str
    clock: str | None
    verdict: str | None
    board: str
    host: str
    target: str | None
    power_mode: str | None
    precision: str | None
    backend: str | None
    bundle: str | None
    release: str | None
    fingerprint: str
    git_commit: str | None
    git_dirty: bool | None
    settings: str
    runtime: str
    iterations: int
    median_ms: float | None
    p99_ms: float | None
    throughput_qps: float | None
    energy_uj: float | None
    document: bytes
    samples: bytes


@dataclass(frozen=True)
class Git:
    """State of a project folder: the commit, and whether tracked files differed from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True, eq=False)
class Result:
    """A measurement from the history or from a file.

    Attributes:
        document: The measurement without its "samples_ms".
        samples: Latency of each inference in ms, in the order of their measurement; empty if not
            stored.
        label: Short name for people: "#12", or a file's name.
        id: Number in the history; None for a file.
        at: Time of the recording in Unix seconds; None if unknown.
        git: State of the project's folder.
        bundle: The bundle's digest.
        release: The release's id on the board.
        board: ``kind:name``.
        host: The machine that ran it, if the board is no machine of its own.
        fingerprint: Module, L4T, TensorRT and versions, as far as known.
        marks: Names given by ``edgekit history mark``.
    """

    document: Bench
    samples: tuple[float, ...] = ()
    label: str = ""
    id: int | None = None
    at: float | None = None
    git: Git | None = None
    bundle: str | None = None
    release: str | None = None
    board: str = ""
    host: str = ""
    fingerprint: dict[str, Fact] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.document.name

    @property
    def verdict(self) -> str | None:
        """ "VALID", "INVALID", or None if it was not judged."""
        return self.document.verdict.status if self.document.verdict else None

    @property
    def power_mode(self) -> str | None:
        """The power mode that the board reported during the measurement, else the planned mode."""
        power = self.document.power
        seen = power and (power.mode_name("during") or power.mode_name("before"))
        return seen or self.document.power_mode or None

    @property
    def settings(self) -> MeasuredSettings:
        """The requested settings of the measurement."""
        return self.document.settings or UNKNOWN_SETTINGS

    @property
    def runtime(self) -> UsedRuntime:
        """The runtime with its effective flags."""
        return self.document.runtime or UNKNOWN_RUNTIME

    def whole(self) -> Bench:
        """Returns the measurement with its single times."""
        return self.document.model_copy(update={"samples_ms": list(self.samples)})

    def shown(self) -> RecordedBench:
        """Returns the measurement with its single times and its row of the history."""
        names = (name for name in self.document.model_fields_set if name != "schema_")
        facts = {name: getattr(self.document, name) for name in names}
        return RecordedBench(
            schema="edgekit.bench/1",
            **{**facts, "samples_ms": list(self.samples), "history": history_row(self)},
        )

    def latency_ms(self, key: str) -> float | None:
        """Returns a statistic in ms: "median", "p99", ..."""
        return (self.document.latency_ms or {}).get(key)

    @property
    def energy_uj(self) -> float | None:
        """Energy of an inference on all rails in µJ; None if the board measures no power."""
        energy = self.document.energy
        return energy.total.uj_per_inference if energy and energy.total else None


def is_same_measurement(one: Result, other: Result) -> bool:
    """Returns True if two results are the same measurement, without comparing statistics."""
    if one.id is not None and one.id == other.id:
        return True
    # a file has no id, but hardly two runs have the same times
    if one.samples or other.samples:
        return one.samples == other.samples
    return one.document.latency_ms == other.document.latency_ms


class HistoryRow(Document):
    """A result of ``edgekit.history/1``: its facts without its document and its single times.

    Attributes:
        id: The result's number in the history.
        iterations: Frames of all streams.
    """

    id: Count | None
    at: Figure | None = Field(description="Unix seconds")
    name: str
    clock: ClockName | None
    verdict: str | None
    board: str = Field(description="kind:name")
    host: str
    target: TargetName | None
    power_mode: str | None
    precision: Precision | None
    backend: str | None
    bundle: str | None = Field(description="its digest")
    release: str | None
    fingerprint: dict[str, Fact]
    commit: str | None
    dirty: bool | None = Field(description="whether tracked files differed from the commit")
    settings: Annotated[MeasuredSettings, Coded()]
    runtime: Annotated[UsedRuntime, Coded()]
    iterations: Count | None
    samples: Count = Field(description="number of single times recorded")
    latency_ms: Times | None
    throughput_qps: Figure | None
    energy_uj: Figure | None = Field(description="of an inference")
    marks: list[str]
    trial: bool = Field(description="whether it is a trial of edgekit tune")
    document: Bench | None = omitted(description="the measurement, in an export")


class Repaired(Document):
    """The result of a repair."""

    repaired: bool
    moved: str | None = Field(description="where the damaged file is now")
    kept: Count = Field(description="number of results")


class History(Document):
    """Results, newest first; an export has no file."""

    schema_: Literal["edgekit.history/1"] = Field(HISTORY_SCHEMA, alias="schema")
    file: str | None = omitted()
    results: list[HistoryRow]
    repair: Repaired | None = omitted()


class RecordedBench(ReportedBench):
    """A measurement as ``edgekit history show`` or a report has it."""

    history: HistoryRow | None = None


def history_row(result: Result) -> HistoryRow:
    """Returns a result's row, without samples and document."""
    document, git = result.document, result.git
    return HistoryRow(
        id=result.id,
        at=result.at,
        name=document.name,
        clock=document.clock,
        verdict=result.verdict,
        board=result.board,
        host=result.host,
        target=document.target,
        power_mode=result.power_mode,
        precision=document.precision,
        backend=document.backend,
        bundle=result.bundle,
        release=result.release,
        fingerprint=result.fingerprint,
        commit=git.commit if git else None,
        dirty=git.dirty if git else None,
        settings=result.settings,
        runtime=result.runtime,
        iterations=document.iterations,
        samples=len(result.samples),
        latency_ms=document.latency_ms,
        throughput_qps=document.throughput_qps,
        energy_uj=result.energy_uj,
        marks=list(result.marks),
        trial=is_trial(document.name),
    )


def pack_samples(samples: Sequence[float]) -> bytes:
    """Returns float64 samples, deflated byte plane by byte plane.

    All first bytes come first, then all second bytes: similar times have equal exponents, which
    compress well.
    """
    import numpy as np

    values = np.asarray(samples, "<f8")
    planes = values.view(np.uint8).reshape(-1, 8).T
    return zlib.compress(planes.tobytes())


def unpack_samples(data: bytes) -> tuple[float, ...]:
    """Returns the samples that :func:`pack_samples` packed.

    Raises:
        DataError: The bytes are damaged.
    """
    import numpy as np

    try:
        planes = np.frombuffer(zlib.decompress(data), np.uint8).reshape(8, -1)
    except (zlib.error, ValueError, TypeError) as error:
        raise damaged_error(error) from error
    return tuple(np.ascontiguousarray(planes.T).view("<f8").reshape(-1).tolist())


def pack_document(document: Bench) -> bytes:
    """Returns a document as deflated canonical JSON."""
    stored = {key: value for key, value in document.to_json().items() if key != "samples_ms"}
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode())


def unpack_document(data: bytes) -> Bench:
    """Returns the document that :func:`pack_document` packed.

    Raises:
        DataError: The bytes are damaged.
    """
    try:
        return Bench.model_validate_json(zlib.decompress(data))
    except ValidationError as error:
        raise damaged_error(fault_words(error)) from error
    except (zlib.error, TypeError) as error:
        raise damaged_error(error) from error


def damaged_error(why: object) -> DataError:
    """Returns the error of a result that cannot be read."""
    return DataError(
        f"a result of the history is damaged: {why}",
        code="history.damaged",
        hint="repair it with edgekit history --repair, which keeps readable results",
    )


def store_error(error: Exception, path: Path) -> EdgekitError:
    """Returns the user's error for a failure of SQLite or of the file."""
    if _is_damage(error):
        return EnvironmentLack(
            f"the history is damaged: {error}",
            code="history.corrupt",
            where=str(path),
            hint="repair it with edgekit history --repair, which moves the file aside and keeps "
            "readable results",
        )
    return EnvironmentLack(
        f"the history cannot be used: {error}",
        code="history.unavailable",
        where=str(path),
        hint="set EDGEKIT_HISTORY to a file in a folder that can be written",
    )


def _is_damage(error: Exception) -> bool:
    """Returns True if the file is damaged; False for a problem of its lock, folder or disk."""
    if isinstance(error, OSError):
        return False
    if (code := getattr(error, "sqlite_errorcode", None)) is not None:
        # edgekit's queries fail only on tables that edgekit did not make; the low byte of an
        # extended code is the primary code
        return code & 0xFF in (_SQLITE_ERROR, _SQLITE_CORRUPT, _SQLITE_NOTADB)
    # Python 3.10 gives no error codes, nor do Python's own errors for text that is not UTF-8
    return not (isinstance(error, sqlite3.OperationalError) and _UNAVAILABLE.search(str(error)))


def result_from_row(row: sqlite3.Row, marks: Sequence[str]) -> Result:
    """Returns a row with its marks as a result.

    Raises:
        DataError: The row is damaged.
    """
    try:
        fingerprint = json.loads(row["fingerprint"])
        at, commit = float(row["at"]), row["git_commit"]
        texts = [row[key] or "" for key in ("bundle", "release", "board", "host", "git_commit")]
        if not isinstance(fingerprint, dict) or not all(isinstance(text, str) for text in texts):
            raise ValueError("a column has an unexpected value")
    except (TypeError, ValueError) as error:
        raise damaged_error(error) from error
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


def trial_name(name: str, digest: str) -> str:
    """Returns ``NAME-tune-XXXXXX``, cut to the length of an application's name.

    Args:
        name: The configuration's name.
        digest: Hexadecimal digest that distinguishes tunings of one configuration.
    """
    ending = f"-tune-{digest[:6]}"
    return name[: _LONGEST - len(ending)].rstrip("._-") + ending


def group_name(name: str) -> str:
    """Returns the name by which results are grouped; tunings share their configuration's group."""
    return name[:-6] if is_trial(name) else name


def is_trial(name: str, of: str | None = None) -> bool:
    """Returns True for a name of trials; with ``of``, only for this configuration's trials."""
    if not _TRIAL.fullmatch(name):
        return False
    return of is None or trial_name(of, name[-6:]) == name


def history_path() -> Path:
    """Returns $EDGEKIT_HISTORY, or ``history.sqlite`` in the cache folder."""
    chosen = os.environ.get("EDGEKIT_HISTORY")
    return Path(chosen) if chosen else cache_folder() / "history.sqlite"


class ResultStore:
    """The open history; a context manager. A missing file is an empty history.

    The file uses SQLite's rollback journal. WAL would not block readers during a write, but its
    shared memory works on one machine only (https://www.sqlite.org/wal.html), and a home folder may
    be on a network. A result is written in one short transaction, so no process waits long.

    Args:
        path: The file; by default :func:`history_path`.
        write: Create the file if it is missing.

    Raises:
        EnvironmentLack: The file cannot be opened, is damaged ("history.corrupt") or comes from a
            newer edgekit.
    """

    def __init__(self, path: Path | None = None, *, write: bool = False) -> None:
        self.path = path or history_path()
        self._db: sqlite3.Connection | None = None
        with self._explained_errors():
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            elif not self.path.exists():
                return
            # without Python's own transactions: `_writing` begins them, so that they take the lock
            # at once
            self._db = sqlite3.connect(self.path, timeout=timeouts.HISTORY_S, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            try:
                # off by default, and for each connection: a mark goes with its result
                self._db.execute("PRAGMA foreign_keys=ON")
                self._migrate()
            except BaseException:
                # a failed constructor leaves no object for a caller to close
                self.close()
                raise

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def add(self, row: StoredResult) -> int:
        """Stores a result in one transaction; returns its id, or the id of the same measurement."""
        columns = [column.name for column in fields(row)]
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        query = f"INSERT INTO results ({names}) VALUES ({marks}) ON CONFLICT (digest) DO NOTHING"
        with self._writing() as db:
            db.execute(query, [getattr(row, name) for name in columns])
            # a conflict inserts nothing, so there is no last row id
            found = db.execute("SELECT id FROM results WHERE digest=?", (row.digest,))
            return int(found.fetchone()[0])

    def bundles(self, name: str) -> list[str | None]:
        """Returns the digests of the bundles with results of a configuration, newest first."""
        query = "SELECT bundle FROM results WHERE name=? GROUP BY bundle ORDER BY max(id) DESC"
        return [row["bundle"] for row in self._rows(query, name)]

    def amend(
        self, digest: str, *, verdict: str | None, energy_uj: float | None, document: bytes
    ) -> int | None:
        """Updates the result with that digest; returns its id, or None if it does not exist."""
        query = "UPDATE results SET verdict=?, energy_uj=?, document=? WHERE id=?"
        with self._writing() as db:
            found = db.execute("SELECT id FROM results WHERE digest=?", (digest,)).fetchone()
            if found:
                db.execute(query, (verdict, energy_uj, document, found[0]))
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
        """Returns results, newest first.

        Args:
            ids: Only results with these ids.
            name: Only results of this configuration.
            board: Only results of this board: its name, or ``kind:name``.
            commit: Only results of the commit with this prefix.
            mark: Only the result with this mark.
            limit: Maximum number of results.
            skip: Number of newest results to leave out.
            samples: Include the single times.
            trials: Include the trials of edgekit tune if no name is given.
        """
        # a board's name without its kind ("remote:lab") matches any kind
        boards = board and ("" if ":" in board else "%:") + _escape_like(board)
        where, values = ["1"], list[Any]()
        for clause, value in (
            ("name=?", name),
            ("board LIKE ? ESCAPE '\\'", boards),
            ("git_commit LIKE ? ESCAPE '\\'", commit and _escape_like(commit) + "%"),
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
        # single times are most of a row's bytes, and listings do not need them
        columns = _COLUMNS if samples else _COLUMNS.replace("samples", "NULL AS samples")
        query = f"SELECT {columns} FROM results WHERE {' AND '.join(where)} ORDER BY id DESC"
        rows = self._rows(
            # SQLite reads a negative LIMIT as none
            f"{query} LIMIT ? OFFSET ?",
            *values,
            -1 if limit is None else limit,
            skip,
        )
        names: dict[int, list[str]] = {}
        for row in self._rows("SELECT name, result FROM marks ORDER BY name"):
            names.setdefault(row["result"], []).append(row["name"])
        return [result_from_row(row, names.get(row["id"], ())) for row in rows]

    def mark(self, name: str, id: int) -> None:
        """Gives a result a mark, and takes the mark from any other result.

        Raises:
            DataError: The result does not exist.
        """
        with self._writing() as db:
            if not db.execute("SELECT 1 FROM results WHERE id=?", (id,)).fetchone():
                raise DataError(
                    f"the history has no result #{id}",
                    code="history.no-result",
                    where=str(self.path),
                    hint="list results with edgekit history",
                )
            query = "INSERT OR REPLACE INTO marks (name, result, at) VALUES (?, ?, ?)"
            db.execute(query, (name, id, time.time()))

    def quick_check(self) -> str:
        """Returns "ok", or SQLite's description of the damage."""
        rows = self._rows("PRAGMA quick_check(1)")
        return str(rows[0][0]) if rows else "ok"

    def restore(self, rows: Sequence[sqlite3.Row], marks: Sequence[sqlite3.Row]) -> int:
        """Inserts rows of another history with their ids, and returns their number."""
        with self._writing() as db:
            for row in rows:
                names, places = ", ".join(row.keys()), ", ".join("?" * len(row))
                query = f"INSERT OR IGNORE INTO results ({names}) VALUES ({places})"
                db.execute(query, tuple(row))
            known = {row["id"] for row in rows}
            query = "INSERT OR IGNORE INTO marks (name, result, at) VALUES (?, ?, ?)"
            db.executemany(query, [tuple(mark) for mark in marks if mark["result"] in known])
        return len(rows)

    def remove(self, ids: Sequence[int]) -> None:
        """Deletes results and shrinks the file."""
        with self._writing() as db:
            db.executemany("DELETE FROM results WHERE id=?", [(id,) for id in ids])
        with self._explained_errors():
            if self._db is not None:
                # not within the transaction: SQLite refuses it there
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
        """A write transaction: it waits for other writers at its start, never later."""
        with self._explained_errors():
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
        with self._explained_errors():
            return [] if self._db is None else self._db.execute(query, values).fetchall()

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeError) as error:
            raise store_error(error, self.path) from error


def _escape_like(text: str) -> str:
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


# Repair: a damaged history is moved aside, never deleted, and its readable rows are kept.


def repair(path: Path | None = None) -> Repaired:
    """Replaces a damaged history by a new one with its readable rows; a sound one is unchanged.

    Raises:
        EnvironmentLack: The file comes from a newer edgekit, or its folder cannot be written.
    """
    path = path or history_path()
    try:
        with ResultStore(path) as store:
            count = _check_rows(store, path)
        return Repaired(repaired=False, moved=None, kept=count)
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
        if journal.exists():  # it belongs to the old file; SQLite would replay it into the new file
            journal.rename(aside.with_name(f"{aside.name}-journal"))
    except OSError as error:
        raise EnvironmentLack(
            f"the damaged history cannot be moved aside: {error.strerror}",
            code="history.unavailable",
            where=str(path),
        ) from error
    rows, marks = _read_sound_rows(aside)
    with ResultStore(path, write=True) as store:
        restored = store.restore(rows, marks)
    return Repaired(repaired=True, moved=str(aside), kept=restored)


def _check_rows(store: ResultStore, path: Path) -> int:
    """Reads every row, because SQLite notices damage only in pages that it reads.

    Returns:
        The number of results.
    """
    fine = store.quick_check()
    if fine != "ok":
        raise EnvironmentLack(fine, code="history.corrupt", where=str(path))
    return len(store.results())


def _read_sound_rows(path: Path) -> tuple[list[sqlite3.Row], list[sqlite3.Row]]:
    """Returns the readable rows, each read separately, and the marks."""
    rows: list[sqlite3.Row] = []
    marks: list[sqlite3.Row] = []
    try:
        # immutable: no lock and no journal that SQLite would replay into the damaged file
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error:
        return rows, marks
    try:
        db.row_factory = sqlite3.Row
        # rows before and after the damage, and rows that an index finds
        ids = {
            row[0]
            for query in (
                "NOT INDEXED ORDER BY id",
                "NOT INDEXED ORDER BY id DESC",
                "ORDER BY name",
            )
            for row in _readable_rows(db, f"SELECT id FROM results {query}")
        }
        for id in sorted(found for found in ids if isinstance(found, int)):
            for row in _readable_rows(
                db, f"SELECT {_REPAIRED_COLUMNS} FROM results NOT INDEXED WHERE id=?", id
            ):
                # a damaged page may still parse as a row
                if _is_sound(row):
                    rows.append(row)
        marks = _readable_rows(db, "SELECT name, result, at FROM marks")
    finally:
        db.close()
    return rows, marks


def _readable_rows(db: sqlite3.Connection, query: str, *values: Any) -> list[sqlite3.Row]:
    """Returns rows up to the first unreadable row."""
    found: list[sqlite3.Row] = []
    try:
        for row in db.execute(query, values):
            found.append(row)
    except (sqlite3.Error, OverflowError, UnicodeError):
        # damaged bytes may also read as a text that is not UTF-8, or as an impossible number
        pass
    return found


def _is_sound(row: sqlite3.Row) -> bool:
    """Returns True if the row reads as a result and has its own id."""
    try:
        result_from_row(row, ())
    except (EdgekitError, TypeError, IndexError):
        return False
    return True
