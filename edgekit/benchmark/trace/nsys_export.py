"""Opens an SQLite export of Nsight Systems read-only, and defines the meaning of its names
(``targets/_nsys.yaml``).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from edgekit.errors import DataError
from edgekit.files import regular_file
from edgekit.knowledge import data_folder, read_facts
from edgekit_device.protocol.codec import document

_MAGIC = b"SQLite format 3\0"
_STRIDE = 100_000  # SQLite VM operations between two checks of the budget
_OPERATIONS = 20_000_000  # budget for opening and small tables
_PER_BYTE = 16  # a row of 100 bytes costs about 40 operations; sorted, about 100
_HINT = "give a file from `nsys export --type sqlite`"
_EPOCH = "TARGET_INFO_SESSION_START_TIME"
#: Tables with an export's metadata, in releases from 2021 to 2025.
_META = ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE")


@dataclass(frozen=True)
class RangeWords:
    """NVTX domains of TensorRT, and how those of its ranges begin that are no layer."""

    domains: frozenset[str]
    not_layers: tuple[str, ...]


@lru_cache(maxsize=1)
def range_words() -> RangeWords:
    """Returns the pattern that recognises a layer's range."""
    ranges = _file().ranges
    return RangeWords(frozenset(ranges.domain.value), ranges.not_layers.value)


@lru_cache(maxsize=1)
def copy_names() -> dict[int, str]:
    """Returns a copy's name by its kind."""
    return {int(kind): name for kind, name in _file().copies.value.items()}


@document(frozen=True)
class NsysWords:
    """Known words of an export."""

    value: tuple[str, ...]


@document(frozen=True)
class NsysRanges:
    """NVTX domains of TensorRT, and how their ranges begin that are no layer."""

    domain: NsysWords
    not_layers: NsysWords


@document(frozen=True)
class NsysCopies:
    """Names of copies by their kind."""

    value: Mapping[str, str]


@document(frozen=True)
class NsysFile:
    """``targets/_nsys.yaml``."""

    ranges: NsysRanges
    copies: NsysCopies
    sources: Mapping[str, str]


def _file() -> NsysFile:
    return read_facts(NsysFile, data_folder("targets") / "_nsys.yaml", "edgekit.nsys/1")


@dataclass
class Export:
    """An open export; the caller must close it.

    Schema: "SQLite Export Schema Reference" of Nsight Systems' documentation ("Tables are created
    lazily, therefore not every table described below might be present"); every column is optional.

    Attributes:
        path: The file.
        tables: The columns of each table that has rows.
        meta: The export's metadata, e.g. "EXPORT_PRODUCT_VERSION".
        started: Unix time in nanoseconds of its time 0; None if unknown.
        local_offset_s: Local time minus UTC of the recording machine; None if unknown.
        wrong: Number of rows skipped so far, by table and fault of their times.
    """

    path: Path
    connection: sqlite3.Connection
    tables: dict[str, frozenset[str]] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    started: int | None = None
    local_offset_s: int | None = None
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.text = lru_cache(maxsize=1 << 14)(self._text)

    def rows(self, table: str, columns: tuple[str, ...], order: str = "") -> Iterator[tuple]:  # type: ignore[type-arg]
        """Yields rows of a table; a missing column has the value None.

        Args:
            table: Name of a table; no rows if it is not in ``tables``.
            columns: Names of columns, constants of this program.
            order: Columns of the table to sort by.

        Raises:
            DataError: The file is damaged ("nsys.damaged") or needs too much work
                ("nsys.endless").
        """
        have = self.tables.get(table)
        if have is None:
            return
        chosen = ", ".join(f'"{name}"' if name in have else "NULL" for name in columns)
        sorting = [part for part in order.split(", ") if part.split(" ")[0].strip('"') in have]
        by = f" ORDER BY {', '.join(sorting)}" if sorting else ""
        yield from self._query(f'SELECT {chosen} FROM "{table}"{by}')

    def _query(self, query: str, values: tuple[int, ...] = ()) -> Iterator[tuple]:  # type: ignore[type-arg]
        try:
            # chain has no close(): a cursor's close() with rows left fails after the file is closed
            yield from chain(self.connection.execute(query, values))
        except sqlite3.OperationalError as error:
            if "interrupt" in str(error):
                raise DataError(
                    "reading it takes too much work for a file of its size",
                    code="nsys.endless",
                    where=str(self.path),
                    hint=_HINT,
                ) from None
            raise self._damaged(error) from None
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"the export is damaged: {str(error)[:200]}",
            code="nsys.damaged",
            where=str(self.path),
            hint="export the report again",
        )

    def _text(self, number: object) -> str:
        """Returns the text with that number in StringIds, or ""."""
        if type(number) is not int or "value" not in self.tables.get("StringIds", ()):
            return ""
        for (value,) in self._query("SELECT value FROM StringIds WHERE id = ?", (number,)):
            return value if isinstance(value, str) else ""
        return ""

    def close(self) -> None:
        """Closes the file."""
        self.connection.close()


def open_export(path: str | Path) -> Export:
    """Opens an export and reads its tables and metadata.

    Raises:
        DataError: The file is missing or unreadable ("nsys.unreadable"), no SQLite database
            ("nsys.form"), not of Nsight Systems ("nsys.unknown"), or damaged ("nsys.damaged",
            "nsys.endless").
    """
    path = Path(path)
    try:
        size = regular_file(path).stat().st_size
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}",
            code="nsys.unreadable",
            where=str(path),
        ) from None
    if head != _MAGIC:
        raise DataError("not an SQLite database", code="nsys.form", where=str(path), hint=_HINT)
    export = Export(path, _connect(path, size))
    try:
        _read_tables(export)
        if not export.tables.keys() & {"StringIds", *_META, _EPOCH}:
            raise DataError(
                "an SQLite database, but not an export of Nsight Systems",
                code="nsys.unknown",
                where=str(path),
                hint=_HINT,
            )
    except BaseException:
        export.close()
        raise
    return export


def _connect(path: Path, size: int) -> sqlite3.Connection:
    # immutable: no lock, and no journal beside a file that may be in a read-only folder
    uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    # texts of a damaged file may not be UTF-8
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    # pages of a damaged file may form cycles: without a budget a query would never end
    left = _OPERATIONS + _PER_BYTE * size

    def spent() -> int:
        nonlocal left
        left -= _STRIDE
        return left < 0

    connection.set_progress_handler(spent, _STRIDE)
    return connection


def _read_tables(export: Export) -> None:
    """Finds the tables with rows, and the export's metadata."""
    query = export._query
    # no views: their queries are the file's, not ours
    for (name,) in list(query("SELECT name FROM sqlite_master WHERE type = 'table'")):
        if next(query(f'SELECT 1 FROM "{name}" LIMIT 1'), None) is not None:
            columns = query(f'PRAGMA table_info("{name}")')
            export.tables[name] = frozenset(column for _, column, *_ in columns)
    for table in _META:
        for name, value in export.rows(table, ("name", "value")):
            if isinstance(name, str) and isinstance(value, str):
                export.meta[name] = value[:200]
    for started, utc, local in export.rows(_EPOCH, ("utcEpochNs", "utcTime", "localTime")):
        # valid times are after 2001 and before 2554
        if type(started) is int and 10**18 < started < 1 << 64:
            export.started = started
        export.local_offset_s = _local_offset_s(local, utc)
        break


def _local_offset_s(local: object, utc: object) -> int | None:
    try:
        both = [datetime.fromisoformat(str(text)).replace(tzinfo=None) for text in (local, utc)]
    except ValueError:
        return None
    return round((both[0] - both[1]).total_seconds())
