"""An Nsight Systems export as a source of a trace: threads, GPU, DLA cores, copies, counters. One
pass over all tables at once, merged by time.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from edgekit.benchmark.measurement import BOARD_MEASURED, CPU_MEASURED
from edgekit.benchmark.trace.chrome import Event, EventLine, EventLines, meta
from edgekit.benchmark.trace.nsys_export import Export, copy_names, dla_words, range_words
from edgekit.errors import DataError

# Rows of an Nsight Systems export as values, table by table, sorted by time and one at a time.
#
# Tables and columns: "SQLite Export Schema Reference" (Nsight Systems 2021.5 to 2025). Times are
# nanoseconds from the session's start. ``globalTid`` holds process and thread, 24 bits each
# ("Serialized process and thread identifiers").


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
_DLA = re.compile(r"(?<![a-z])(?:nv)?dla(?:sw)?[_ ]?(\d?)", re.IGNORECASE)
_LONGEST_JSON = 1 << 16
_LARGEST = 1 << 62
_DIGITS = 40
_BUFFERED = 20_000
_SERIES = 256
_CALLS = 1 << 16  # launches whose work has not come yet
_THREADS = 1 << 12
_NAME = 300
_SEQUENCE = re.compile(r"\s*(?:\[\d+\]|#\d+)$")
Linked = Callable[[str], "dict[str, Any] | None"]
Detail = tuple[tuple[str, Any], ...]


class NsysSpan(NamedTuple):
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
        owner: Process of work on a device; 0 if the export does not say.
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
    """Returns start and end; None if they are invalid, which ``export.wrong`` counts.

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


def ranges(export: Export) -> Iterator[NsysSpan]:
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
        yield NsysSpan(
            NVTX, words or "range", *times, thread(where), group=domains.get(_whole(domain), "")
        )


def host_calls(export: Export) -> Iterator[NsysSpan]:
    """Yields calls of the CUDA runtime and driver, and of cuDLA and NvMedia where they are."""
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", *_dla_tables(export, host=True)):
        columns = ("start", "end", "globalTid", "correlationId", "nameId")
        group = "cuda" if table.startswith("CUPTI") else table.lower()
        for start, end, where, link, name in export.rows(table, columns, "start, end DESC"):
            times = _times(export, table, start, end)
            if times is not None:
                words = export.text(name) or "call"
                yield NsysSpan(API, words, *times, thread(where), _whole(link), group)


def device_work(export: Export) -> list[Iterator[NsysSpan]]:
    """Returns what ran on GPU and DLA, one sorted stream for each table."""
    tables = [_kernels(export), _graphs(export), _copies(export), _sets(export)]
    return tables + [_dla_work(export, table) for table in _dla_tables(export, host=False)]


def _kernels(export: Export) -> Iterator[NsysSpan]:
    for start, end, device, stream, link, owner, short, full in export.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_KERNEL", start, end)
        if times is not None:
            name = export.text(short) or export.text(full) or "kernel"
            detail = (("kernel", (export.text(full) or name)[:1000]),)
            place = (_whole(device), _whole(stream))
            yield NsysSpan(GPU, name, *times, place, _whole(link), "kernel", detail, _owner(owner))


def _graphs(export: Export) -> Iterator[NsysSpan]:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
    for start, end, device, stream, link, owner, graph in export.rows(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start, end)
        if times is not None:
            place = (_whole(device), _whole(stream))
            name = f"CUDA graph {_whole(graph)}"
            yield NsysSpan(GPU, name, *times, place, _whole(link), "graph", owner=_owner(owner))


def _copies(export: Export) -> Iterator[NsysSpan]:
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
            yield NsysSpan(GPU, name, *times, place, _whole(link), "copy", detail, _owner(owner))


def _own_names(export: Export) -> dict[int, str]:
    """Returns the copies' names as the export has them: CUDA_MEMCPY_KIND_HTOD is HtoD."""
    rows = export.rows("ENUM_CUDA_MEMCPY_OPER", ("id", "name"))
    found = ((kind, _OPERATION.fullmatch(str(name))) for kind, name in rows)
    return {
        kind: f"{match[1]}to{match[2]}"
        for kind, match in islice(found, _KINDS)
        if match and type(kind) is int
    }


def _sets(export: Export) -> Iterator[NsysSpan]:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes")
    for start, end, device, stream, link, owner, size in export.rows(
        "CUPTI_ACTIVITY_KIND_MEMSET", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_MEMSET", start, end)
        if times is not None:
            place = (_whole(device), _whole(stream))
            detail = (("bytes", _whole(size)),)
            yield NsysSpan(
                GPU, "memset", *times, place, _whole(link), "copy", detail, _owner(owner)
            )


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


def _dla_work(export: Export, table: str) -> Iterator[NsysSpan]:
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
            yield NsysSpan(DLA, words or "task", *times, (core, 0), _whole(link), table.lower())


# What the fields of a generic event say: metrics, or whose task it is, and when it ran.
#
# Nothing documents a DLA's events; what is looked for is in ``targets/_nsys.yaml``, with its
# sources.


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of events, and the name of what sends them."""

    name: str
    source: str


def is_metrics(kind: EventType, data: Mapping[str, Any]) -> bool:
    """Metrics are numbers under names for people; events have fields of a record."""
    if not data or any(key.startswith("common_") for key in data):
        return False
    named = "metric" in kind.source.lower() or "metric" in kind.name.lower()
    numbers = sum(number_of(value) is not None for value in data.values())
    return numbers == len(data) and (named or all(" " in key for key in data))


def core_of(kind: EventType, data: Mapping[str, Any]) -> int | None:
    """Returns the DLA core of an event; None if it is none of a DLA's."""
    words = dla_words()
    by_class = words.classes.get(int(number_of(first_of(data, ("class", "classid"))) or 0))
    if by_class is not None:
        return by_class
    texts = [kind.name, kind.source, *(str(v) for k, v in data.items() if plain(k) in words.cores)]
    matches = [match for text in texts if (match := _DLA.search(text))]
    if not matches:
        return None
    number = next((int(match[1]) for match in matches if match[1]), None)
    if number is None:
        number = next(
            (int(n) for key in words.cores if (n := number_of(first_of(data, (key,)))) is not None),
            0,
        )
    return number if 0 <= number < 16 else 0


def whole_task(at: int, raw: int, data: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns begin and end of an event that has both."""
    words = dla_words()
    first, last = (number_of(first_of(data, names)) for names in (words.starts, words.ends))
    if first is not None and last is not None and last >= first >= 0:
        # in the session's time, or in the clock of rawTimestamp
        shift = at - raw if abs(last - raw) < abs(last - at) else 0
        start, end = int(first) + shift, int(last) + shift
        return (start, end) if 0 <= start <= end < _LARGEST else None
    spent = number_of(first_of(data, words.durations))
    if spent is not None and 0 <= spent < _LARGEST:
        return at, at + int(spent)
    return None


def phase_of(kind: EventType, data: Mapping[str, Any]) -> tuple[str, str]:
    """Returns an event's name without its phase, and "begin", "end" or nothing."""
    words = dla_words()
    said = next((str(v) for k, v in data.items() if plain(k) in words.phase), "")
    for text in (kind.name, said):
        for pattern, phase in ((words.begin, "begin"), (words.end, "end")):
            if text and pattern.search(text):
                return (pattern.sub("", kind.name) if text is kind.name else kind.name), phase
    return kind.name, ""


def span_of(
    times: tuple[int, int], core: int, kind: EventType, data: Mapping[str, Any]
) -> NsysSpan:
    words = dla_words()
    stem = words.begin.sub("", words.end.sub("", kind.name))
    name = str(first_of(data, words.names) or stem or "task")[:200]
    detail = tuple((key[:60], str(value)[:200]) for key, value in list(data.items())[:24])
    return NsysSpan(DLA, name, *times, (core, 0), group="generic", detail=detail)


def plain(key: str) -> str:
    return key.lower().replace("_", "").replace(" ", "")


def first_of(data: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    by_name = {plain(key): value for key, value in data.items()}
    return next((by_name[key] for key in keys if key in by_name), None)


def fields_of(data: object) -> dict[str, Any]:
    if not isinstance(data, str) or len(data) > _LONGEST_JSON:
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str | int | float)}


def number_of(value: object) -> float | None:
    """Returns a finite number; texts may be decimal or 0x..."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    number: float = 0.0
    try:
        number = _of_text(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        return None
    return number if -_LARGEST < number < _LARGEST else None


def _of_text(text: str) -> float:
    if len(text) > _DIGITS:
        raise ValueError
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


# Generic events and metrics of an Nsight Systems export: DLA tasks and counters.
#
# GENERIC_EVENTS has ``rawTimestamp``, ``timestamp``, ``typeId`` and ``data``, a JSON object of
# texts; GENERIC_EVENT_TYPES and GENERIC_EVENT_SOURCES name them ("Generic Events" in the
# documentation). Metrics of GPU and SoC are such events, or rows of GPU_METRICS (``timestamp``,
# ``typeId``, ``metricId``, ``value``) with their names in TARGET_INFO_GPU_METRICS (``typeId``,
# ``metricId``, ``metricName``), as public programs that query exports of 2023 to 2025 have them. No
# export with a DLA's events is public and nothing documents them, so a task is found by what such
# events usually have: a name with "dla" in it, and either a begin and an end, or a duration, or an
# event each for begin and end. What is none of these is counted, not shown.


class CounterSample(NamedTuple):
    """A counter's value at a time in nanoseconds."""

    at: int
    name: str
    value: float


@dataclass
class Generic:
    """Reads an export's generic events, as two streams sorted by time.

    Attributes:
        unknown: How many events of each type were neither a DLA's task nor metrics.
    """

    export: Export
    unknown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._types = self._read_types()
        self._names: set[str] = set()

    def samples(self) -> Iterator[CounterSample]:
        """Yields counters of generic events."""
        for at, _, kind, data in self._events():
            if is_metrics(kind, data):
                for key, value in data.items():
                    number = number_of(value)
                    if number is not None and self._is_new(key):
                        yield CounterSample(at, key[:100], number)

    def metrics(self) -> Iterator[CounterSample]:
        """Yields samples of GPU_METRICS, and of a table for the SoC of the same form."""
        tables = [name for name in self.export.tables if name.endswith("_METRICS")]
        tables = [name for name in tables if not name.startswith(("TARGET_INFO", "ENUM_"))]
        streams = [self._metrics(name) for name in sorted(tables)]
        yield from heapq.merge(*streams, key=lambda sample: sample.at)

    def tasks(self) -> Iterator[NsysSpan]:
        """Yields a DLA's tasks, sorted by start; ends that no begin goes with are left out."""
        waiting: dict[tuple[Any, ...], tuple[int, str, dict[str, Any]]] = {}
        ready: list[tuple[int, int, int, NsysSpan]] = []
        number = 0
        for at, raw, kind, data in self._events():
            if is_metrics(kind, data):
                continue
            core = core_of(kind, data)
            if core is None:
                if len(self.unknown) < _SERIES or kind.name in self.unknown:
                    self.unknown[kind.name] += 1
                continue
            found, said = whole_task(at, raw, data), data
            if found is None:
                stem, phase = phase_of(kind, data)
                key = (kind.source, stem, core, first_of(data, dla_words().tasks))
                if phase == "begin":
                    waiting[key] = (at, stem, data)
                elif phase == "end" and key in waiting:
                    begun, stem, first = waiting.pop(key)
                    found, said = (begun, at), {**first, **data}
                elif phase == "":
                    self.unknown[kind.name] += 1
            if found is not None:
                number += 1
                span = span_of(found, core, kind, said)
                heapq.heappush(ready, (span.start, -span.end, number, span))
            # what has begun and not ended yet may still have to come first
            if len(waiting) + len(ready) > _BUFFERED:
                waiting.clear()
            hold = min((begun for begun, *_ in waiting.values()), default=at) if ready else at
            while ready and ready[0][0] <= hold:
                yield heapq.heappop(ready)[-1]
        while ready:
            yield heapq.heappop(ready)[-1]

    def _is_new(self, name: str) -> bool:
        """Whether a series is known or one more fits."""
        if name not in self._names and len(self._names) >= _SERIES:
            return False
        self._names.add(name)
        return True

    def _read_types(self) -> dict[int, EventType]:
        sources = {
            number: str(fields_of(data).get("Name") or "")[:100]
            for number, data in self.export.rows("GENERIC_EVENT_SOURCES", ("sourceId", "data"))
            if type(number) is int
        }
        found: dict[int, EventType] = {}
        columns = ("typeId", "sourceId", "data")
        for number, source, data in self.export.rows("GENERIC_EVENT_TYPES", columns):
            if type(number) is int and len(found) < 1 << 16:
                name = str(fields_of(data).get("Name") or "event")[:100]
                found[number] = EventType(name, sources.get(source, ""))
        return found

    def _events(self) -> Iterator[tuple[int, int, EventType, dict[str, Any]]]:
        nameless = EventType("event", "")
        columns = ("timestamp", "rawTimestamp", "typeId", "data")
        for at, raw, kind, data in self.export.rows("GENERIC_EVENTS", columns, "timestamp"):
            if type(at) is int and 0 <= at < _LARGEST:
                known = self._types.get(kind, nameless) if type(kind) is int else nameless
                yield at, raw if type(raw) is int else at, known, fields_of(data)

    def _metrics(self, table: str) -> Iterator[CounterSample]:
        names: dict[tuple[Any, Any], str] = {}
        columns = ("typeId", "metricId", "metricName")
        for kind, metric, name in self.export.rows(f"TARGET_INFO_{table}", columns):
            if isinstance(name, str) and len(names) < _SERIES:
                names[kind, metric] = name[:100]
        fields = ("timestamp", "typeId", "metricId", "value")
        for at, kind, metric, value in self.export.rows(table, fields, "timestamp"):
            number, name = number_of(value), names.get((kind, metric), f"metric {metric}"[:100])
            if type(at) is int and 0 <= at < _LARGEST and number is not None and self._is_new(name):
                yield CounterSample(at, name, number)


# An Nsight Systems export as a source of a trace: threads, GPU, DLA cores, copies, counters.
#
# One pass over all tables at once, merged by time; what is kept are open ranges, the calls whose
# work is still to come, and the end of each track. Kernels are linked with the TensorRT layer whose
# NVTX range their launch lies in (``targets/_nsys.yaml`` says which ranges are layers'), and by an
# arrow with the call that launched them.


@dataclass(frozen=True, slots=True)
class _LaunchCall:
    """Where a launch stands, for the arrow to its work, and the layer that it is for."""

    tid: int
    at: int
    layer: str


class NsysSource:
    """See ``edgekit.benchmark.trace.sources.TraceSource``.

    Args:
        export: An open export.
        name: What to call it.
        linked: Finds what the plan has about a layer: device, segment, nodes.

    Attributes:
        machine: Architecture of what was profiled; all but "aarch64" is no board.
        matched: Layers of the plan that were found in it.
    """

    def __init__(self, export: Export, name: str, linked: Linked | None = None) -> None:
        self.name, self.export, self._linked = name, export, linked
        self.machine = _machine(export)
        self._clock = BOARD_MEASURED if self.machine == "aarch64" else CPU_MEASURED
        self.wall = None if export.started is None else export.started / 1e9
        self.seconds = _duration(export)
        self.generic = Generic(export)
        self.matched: set[str] = set()
        self._tracks: dict[str, tuple[int, list[int]]] = {}  # name: number, ends of open slices
        self._owned = any("globalPid" in columns for columns in export.tables.values())
        self._calls: OrderedDict[tuple[int, int], _LaunchCall] = OrderedDict()
        self._open: dict[tuple[int, int], list[NsysSpan]] = {}
        self._pid, self._shift, self._flows, self._label = 1, 0.0, 0, ""
        self._lines, self._words = EventLines(1, self._clock), range_words()

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[EventLine]:
        """As ``TraceSource`` says."""
        self._pid, self._shift, self._label = pid, shift_us, label
        self._lines = EventLines(pid, self._clock)
        work = device_work(self.export)
        spans = [ranges(self.export), host_calls(self.export), *work, self.generic.tasks()]
        samples = [self.generic.samples(), self.generic.metrics()]
        # ranges before the calls in them, calls before their work, where times are equal
        streams: list[Iterator[tuple[int, int, NsysSpan | CounterSample]]] = [
            _keyed(stream, number) for number, stream in enumerate(spans)
        ]
        streams += [_counted(stream, len(spans) + n) for n, stream in enumerate(samples)]
        # a stream's number stands once in the heap, so that what follows it is never compared
        for _, _, item in heapq.merge(*streams):
            if isinstance(item, CounterSample):
                yield self._lines.count(item.name or "counter", self._us(item.at), item.value)
            elif item.kind == NVTX:
                yield self._range(item)
            elif item.kind == API:
                yield self._call(item)
            else:
                yield from self._work(item)

    def metadata(self) -> list[Event]:
        """As ``TraceSource`` says."""
        pid, clock = self._pid, self._clock
        version = self.export.meta.get("EXPORT_PRODUCT_VERSION", "").strip()
        profiler = f"Nsight Systems {version}".rstrip()
        what = self.machine or "unknown machine"
        if self._clock == CPU_MEASURED:
            what += " (not a board time)"
        found = [
            meta("process_name", pid, 0, clock, name=f"{profiler}, {what}"),
            meta("process_sort_index", pid, 0, clock, sort_index=pid),
            meta("process_labels", pid, 0, clock, labels=self._label),
        ]
        order = {name: place for place, name in enumerate(sorted(self._tracks, key=_place))}
        for name, (tid, _) in self._tracks.items():
            found.append(meta("thread_name", pid, tid, clock, name=name))
            found.append(meta("thread_sort_index", pid, tid, clock, sort_index=order[name]))
        return found

    def _range(self, span: NsysSpan) -> EventLine:
        mark = span.end == span.start
        if not mark:
            stack = self._open.setdefault(span.place, [])
            while stack and stack[-1].end <= span.start:
                stack.pop()
            if len(stack) < 256 and len(self._open) < _THREADS:
                stack.append(span)
        tid = self._tid(_thread(span), span.start, span.end, mark=mark)
        return self._line(span, tid, "nvtx", span.name, (("domain", span.group),), mark=mark)

    def _call(self, span: NsysSpan) -> EventLine:
        tid = self._tid(_thread(span), span.start, span.end)
        if span.link:
            owner = span.place[0] if self._owned else 0
            self._calls[owner, span.link] = _LaunchCall(tid, span.start, self._around(span))
            if len(self._calls) > _CALLS:
                self._calls.popitem(last=False)
        return self._line(span, tid, "api", "", (("api", span.group),))

    def _around(self, span: NsysSpan) -> str:
        """Returns the innermost range around a call that is a layer of TensorRT."""
        for around in reversed(self._open.get(span.place, ())):
            if around.end > span.start and around.group in self._words.domains:
                layer = _SEQUENCE.sub("", around.name)
                return "" if layer.startswith(self._words.not_layers) else layer
        return ""

    def _work(self, span: NsysSpan) -> Iterator[EventLine]:
        device, stream = span.place
        if span.kind == DLA:
            track, category = f"DLA{device}", "dla"
        elif span.group == "copy":
            track, category = f"copies GPU{device} stream {stream}", "copy"
        else:
            track, category = f"GPU{device} stream {stream}", "gpu"
        tid = self._tid(track, span.start, span.end)
        call = self._found_call(span)
        if call and call.layer:
            detail = (*span.detail, ("layer", call.layer))
            yield self._line(span, tid, category, call.layer, detail)
        else:
            yield self._line(span, tid, category, span.name, span.detail)
        if call:
            self._flows += 1
            # the first one late: who launches nothing gets no arrow
            start, end = (self._us(call.at), call.tid), (self._us(span.start), tid)
            yield from self._lines.arrow("launch", self._flows + (self._pid << 32), start, end)

    def _found_call(self, span: NsysSpan) -> _LaunchCall | None:
        return self._calls.pop((span.owner, span.link), None) if span.link else None

    def _layer(self, name: str) -> dict[str, Any] | None:
        if self._linked is None:
            return None
        found = self._linked(_SEQUENCE.sub("", name))
        if found:
            self.matched.add(str(found.get("layer", name)))
        return found

    def _line(
        self,
        span: NsysSpan,
        tid: int,
        category: str,
        layer: str,
        detail: Detail,
        *,
        mark: bool = False,
    ) -> EventLine:
        """Returns the line of a span; ``layer`` may be what the plan calls a layer."""
        args = self._lines.args(
            (layer, detail), lambda: {**dict(detail), **((layer and self._layer(layer)) or {})}
        )
        name, at = span.name[:_NAME] or category, self._us(span.start)
        if mark:
            return self._lines.mark(name, category, at, tid, args)
        return self._lines.slice(name, category, at, span.end - span.start, tid, args)

    def _us(self, at: int) -> float:
        # three decimals are all that nanoseconds have
        return round(at / 1000 + self._shift, 3) if self._shift else at / 1000

    def _tid(self, track: str, start: int, end: int, *, mark: bool = False) -> int:
        """Returns the number of a track on which the span nests, a further one where it crosses."""
        name, number = track, 1
        while True:
            known = self._tracks.get(name)
            if known is None:
                if len(self._tracks) >= _THREADS:
                    raise DataError(
                        f"more than {_THREADS} threads and streams", code="nsys.tracks",
                        where=str(self.export.path), hint="profile fewer processes at once",
                    )  # fmt: skip
                known = self._tracks[name] = (len(self._tracks) + 1, [])
            tid, ends = known
            while ends and ends[-1] <= start:
                ends.pop()
            if mark or not ends or end <= ends[-1]:
                break
            number += 1
            name = f"{track} ({number})"
        if not mark:
            ends.append(end)
        return tid


def _thread(span: NsysSpan) -> str:
    return f"CPU process {span.place[0]} thread {span.place[1]}"


def _place(track: str) -> tuple[int, str]:
    order = ("CPU", "GPU", "DLA", "copies")
    return next((n for n, word in enumerate(order) if track.startswith(word)), 9), track


def _keyed(stream: Iterator[NsysSpan], number: int) -> Iterator[tuple[int, int, NsysSpan]]:
    for span in stream:
        yield span.start, number, span


def _counted(
    stream: Iterator[CounterSample], number: int
) -> Iterator[tuple[int, int, CounterSample]]:
    for sample in stream:
        yield sample.at, number, sample


def _duration(export: Export) -> float:
    for start, stop in export.rows("ANALYSIS_DETAILS", ("startTime", "stopTime")):
        if type(stop) is int and type(start) is int and 0 <= stop < 1 << 62:
            return stop / 1e9
    return 0.0


def _machine(export: Export) -> str:
    for name, value in export.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")):
        if name == "CpuArchitecture" and isinstance(value, str):
            return "aarch64" if value.lower() in ("aarch64", "arm64", "armv8") else value[:40]
    return ""
