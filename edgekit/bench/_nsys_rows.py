"""Rows of an Nsight Systems export as values, table by table, sorted by time and one at a time.

Tables and columns: "SQLite Export Schema Reference" (Nsight Systems 2021.5 to 2025). Times are
nanoseconds from the session's start. ``globalTid`` holds process and thread, 24 bits each
("Serialized process and thread identifiers").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from edgekit.bench._nsys_open import Export
from edgekit.bench._nsys_words import copy_names

__all__ = ["API", "DLA", "GPU", "NVTX", "Span", "device_work", "host_calls", "ranges", "thread"]

NVTX, API, GPU, DLA = "nvtx", "api", "gpu", "dla"
_LAST = 1 << 62  # nanoseconds; 146 years
_RANGE_TYPES = (59, 60, 70, 71)  # push and pop, start and end; the second pair from NVTXT
_MARK_TYPES = (34, 65)
_DOMAIN_TYPE = 75
_OPERATION = re.compile(r"CUDA_MEMCPY_KIND_([A-Z])TO([A-Z])")
_KINDS = 64
_KERNEL = (
    "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "shortName",
    "demangledName",
)  # fmt: skip


class Span(NamedTuple):
    """Something that took time, or happened at one (``end`` equals ``start``).

    Attributes:
        kind: NVTX, API, GPU or DLA.
        name: As the export has it.
        start: Nanoseconds.
        end: Nanoseconds.
        place: Thread (process, thread), or (device, stream).
        link: Correlation of a call with its work; 0 without.
        group: NVTX domain, kind of work or name of the table.
        detail: Further arguments.
        owner: Process of work on a device; 0 where the export does not say.
    """

    kind: str
    name: str
    start: int
    end: int
    place: tuple[int, int]
    link: int = 0
    group: str = ""
    detail: tuple[tuple[str, Any], ...] = ()
    owner: int = 0


def thread(number: object) -> tuple[int, int]:
    """Returns (process, thread) of a ``globalTid``."""
    whole = _whole(number)
    return whole >> 24 & 0xFFFFFF, whole & 0xFFFFFF


def _whole(value: object) -> int:
    return value if type(value) is int and -_LAST < value < _LAST else 0


def _owner(number: object) -> int:
    return thread(number)[0]


def _times(
    export: Export, table: str, start: object, end: object, *, open_ended: bool = False
) -> tuple[int, int] | None:
    """Returns both in order; None for what are no times, which are counted in ``export.wrong``.

    With ``open_ended`` one that never ended is a mark.
    """
    if type(start) is not int or not 0 <= start < _LAST:
        export.wrong[table, "without a start"] += 1
        return None
    if open_ended and end is None:
        return start, start
    if type(end) is not int or not end < _LAST:
        export.wrong[table, "without an end"] += 1
        return None
    if end < start:
        export.wrong[table, "that end before they begin"] += 1
        return None
    return start, end


def ranges(export: Export) -> Iterator[Span]:
    """Yields NVTX ranges and marks, sorted by start, the longer one first."""
    domains = {0: ""}
    columns = (
        "start", "end", "eventType", "text", "textId", "globalTid", "domainId",
    )  # fmt: skip
    for start, end, kind, text, text_id, where, domain in export.rows(
        "NVTX_EVENTS", columns, "start, end DESC"
    ):
        words = text if isinstance(text, str) and text else export.text(text_id)
        if kind == _DOMAIN_TYPE and len(domains) < 1 << 12:
            domains[_whole(domain)] = words
        if kind not in _RANGE_TYPES + _MARK_TYPES:
            continue
        times = _times(export, "NVTX_EVENTS", start, end, open_ended=True)
        if times is None:
            continue
        yield Span(
            NVTX, words or "range", *times, thread(where), group=domains.get(_whole(domain), "")
        )


def host_calls(export: Export) -> Iterator[Span]:
    """Yields calls of the CUDA runtime and driver, and of cuDLA and NvMedia where they are."""
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", *_dla_tables(export, host=True)):
        columns = ("start", "end", "globalTid", "correlationId", "nameId")
        group = "cuda" if table.startswith("CUPTI") else table.lower()
        for start, end, where, link, name in export.rows(table, columns, "start, end DESC"):
            times = _times(export, table, start, end)
            if times is not None:
                words = export.text(name) or "call"
                yield Span(API, words, *times, thread(where), _whole(link), group)


def device_work(export: Export) -> list[Iterator[Span]]:
    """Returns what ran on GPU and DLA, one sorted stream for each table."""
    tables = [_kernels(export), _graphs(export), _copies(export), _sets(export)]
    return tables + [_dla_work(export, table) for table in _dla_tables(export, host=False)]


def _kernels(export: Export) -> Iterator[Span]:
    for start, end, device, stream, link, owner, short, full in export.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_KERNEL", start, end)
        if times is not None:
            name = export.text(short) or export.text(full) or "kernel"
            detail = (("kernel", (export.text(full) or name)[:1000]),)
            place = (_whole(device), _whole(stream))
            yield Span(GPU, name, *times, place, _whole(link), "kernel", detail, _owner(owner))


def _graphs(export: Export) -> Iterator[Span]:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
    for start, end, device, stream, link, owner, graph in export.rows(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start, end)
        if times is not None:
            place = (_whole(device), _whole(stream))
            name = f"CUDA graph {_whole(graph)}"
            yield Span(GPU, name, *times, place, _whole(link), "graph", owner=_owner(owner))


def _copies(export: Export) -> Iterator[Span]:
    columns = (
        "start",
        "end",
        "deviceId",
        "streamId",
        "correlationId",
        "globalPid",
        "bytes",
        "copyKind",
    )
    names = copy_names() | _own_names(export)
    for start, end, device, stream, link, owner, size, kind in export.rows(
        "CUPTI_ACTIVITY_KIND_MEMCPY", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_MEMCPY", start, end)
        if times is not None:
            name = names.get(kind, "copy") if type(kind) is int else "copy"
            place = (_whole(device), _whole(stream))
            detail = (("bytes", _whole(size)),)
            yield Span(GPU, name, *times, place, _whole(link), "copy", detail, _owner(owner))


def _own_names(export: Export) -> dict[int, str]:
    """Returns the copies' names as the export has them: CUDA_MEMCPY_KIND_HTOD is HtoD."""
    rows = export.rows("ENUM_CUDA_MEMCPY_OPER", ("id", "name"))
    found = ((kind, _OPERATION.fullmatch(str(name))) for kind, name in rows)
    return {
        kind: f"{match[1]}to{match[2]}"
        for kind, match in islice(found, _KINDS)
        if match and type(kind) is int
    }


def _sets(export: Export) -> Iterator[Span]:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes")
    for start, end, device, stream, link, owner, size in export.rows(
        "CUPTI_ACTIVITY_KIND_MEMSET", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_MEMSET", start, end)
        if times is not None:
            place = (_whole(device), _whole(stream))
            detail = (("bytes", _whole(size)),)
            yield Span(GPU, "memset", *times, place, _whole(link), "copy", detail, _owner(owner))


def _dla_tables(export: Export, *, host: bool) -> list[str]:
    """Returns tables that look like a DLA's; none is documented, so names and columns must do."""
    return sorted(
        table
        for table, columns in export.tables.items()
        if ("DLA" in table.upper() or "NVMEDIA" in table.upper())
        and not table.startswith(("ENUM_", "TARGET_INFO"))
        and {"start", "end"} <= columns
        and ("globalTid" in columns) == host
    )


def _dla_work(export: Export, table: str) -> Iterator[Span]:
    columns = (
        "start", "end", "dlaId", "coreId", "engineId", "deviceId", "correlationId", "nameId",
        "name",
    )  # fmt: skip
    for start, end, *cores, link, name_id, name in export.rows(table, columns, "start, end DESC"):
        times = _times(export, table, start, end)
        if times is not None:
            core = next((value for value in cores if type(value) is int), 0)
            words = name if isinstance(name, str) and name else export.text(name_id)
            core = core if 0 <= core < 16 else 0
            yield Span(DLA, words or "task", *times, (core, 0), _whole(link), table.lower())
