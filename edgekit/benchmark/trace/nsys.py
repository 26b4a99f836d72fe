"""An Nsight Systems export as a source of a trace: threads, GPU, copies, counters. A single pass
merges all tables by time.
"""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from edgekit.benchmark.measurement import BOARD_MEASURED, CPU_MEASURED
from edgekit.benchmark.trace.chrome import EventArgs, EventLine, EventLines, TraceEvent, meta
from edgekit.benchmark.trace.layers import Linked
from edgekit.benchmark.trace.nsys_export import Export, copy_names, range_words
from edgekit.errors import DataError
from edgekit_device.protocol.fields import Clock

# Rows of an Nsight Systems export as values, by table, sorted by time.
#
# Tables and columns: "SQLite Export Schema Reference" (Nsight Systems 2021.5 to 2025). Times are
# nanoseconds from the session's start. ``globalTid`` holds process and thread, 24 bits each
# ("Serialized process and thread identifiers").


NVTX, API, GPU = "nvtx", "api", "gpu"
_LAST = 1 << 62  # nanoseconds; 146 years
_RANGE_TYPES = (59, 60, 70, 71)  # push/pop and start/end; the second pair from NVTXT
_MARK_TYPES = (34, 65)
_DOMAIN_TYPE = 75
_OPERATION = re.compile(r"CUDA_MEMCPY_KIND_([A-Z])TO([A-Z])")
_KINDS = 64
_KERNEL = (
    "start",
    "end",
    "deviceId",
    "streamId",
    "correlationId",
    "globalPid",
    "shortName",
    "demangledName",
)
_SERIES = 256
_CALLS = 1 << 16  # most launches that wait for their work
_THREADS = 1 << 12
_NAME = 300
_SEQUENCE = re.compile(r"\s*(?:\[\d+\]|#\d+)$")
Detail = tuple[tuple[str, Any], ...]


class NsysSpan(NamedTuple):
    """A span of time, or an instant (``end`` equals ``start``).

    Attributes:
        kind: NVTX, API or GPU.
        name: The name in the export.
        start: Start in nanoseconds.
        end: End in nanoseconds.
        place: Thread (process, thread), or (device, stream).
        link: Correlation ID of a call and its work; 0 if there is none.
        group: NVTX domain or kind of work.
        detail: Further arguments.
        owner: Process of work on a device; 0 if unknown.
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
    whole = _int_or_zero(number)
    return whole >> 24 & 0xFFFFFF, whole & 0xFFFFFF


def _int_or_zero(value: object) -> int:
    return value if type(value) is int and -_LAST < value < _LAST else 0


def _owner(number: object) -> int:
    return thread(number)[0]


def _times(
    export: Export, table: str, start: object, end: object, *, open_ended: bool = False
) -> tuple[int, int] | None:
    """Returns start and end; None if they are invalid, which ``export.wrong`` counts.

    With ``open_ended`` a range without an end becomes a mark.
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
    """Yields NVTX ranges and marks, sorted by start, longer ranges first."""
    domains = {0: ""}
    columns = (
        "start",
        "end",
        "eventType",
        "text",
        "textId",
        "globalTid",
        "domainId",
    )
    for start, end, kind, text, text_id, where, domain in export.rows(
        "NVTX_EVENTS", columns, "start, end DESC"
    ):
        words = text if isinstance(text, str) and text else export.text(text_id)
        # this row only names a domain, to which ranges refer by its number
        if kind == _DOMAIN_TYPE and len(domains) < 1 << 12:
            domains[_int_or_zero(domain)] = words
        if kind not in _RANGE_TYPES + _MARK_TYPES:
            continue
        times = _times(export, "NVTX_EVENTS", start, end, open_ended=True)
        if times is None:
            continue
        yield NsysSpan(
            NVTX,
            words or "range",
            *times,
            thread(where),
            group=domains.get(_int_or_zero(domain), ""),
        )


def host_calls(export: Export) -> Iterator[NsysSpan]:
    """Yields calls of the CUDA runtime and driver."""
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    for start, end, where, link, name in export.rows(table, columns, "start, end DESC"):
        times = _times(export, table, start, end)
        if times is not None:
            yield NsysSpan(
                API, export.text(name) or "call", *times, thread(where), _int_or_zero(link)
            )


def device_work(export: Export) -> list[Iterator[NsysSpan]]:
    """Returns the GPU's work, a sorted stream for each table."""
    return [_kernels(export), _graphs(export), _copies(export), _memsets(export)]


def _kernels(export: Export) -> Iterator[NsysSpan]:
    for start, end, device, stream, link, owner, short, full in export.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_KERNEL", start, end)
        if times is not None:
            name = export.text(short) or export.text(full) or "kernel"
            detail = (("kernel", (export.text(full) or name)[:1000]),)
            place = (_int_or_zero(device), _int_or_zero(stream))
            yield NsysSpan(
                GPU, name, *times, place, _int_or_zero(link), "kernel", detail, _owner(owner)
            )


def _graphs(export: Export) -> Iterator[NsysSpan]:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
    for start, end, device, stream, link, owner, graph in export.rows(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start, end)
        if times is not None:
            place = (_int_or_zero(device), _int_or_zero(stream))
            name = f"CUDA graph {_int_or_zero(graph)}"
            yield NsysSpan(
                GPU, name, *times, place, _int_or_zero(link), "graph", owner=_owner(owner)
            )


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
    names = copy_names() | _copy_kind_names(export)
    for start, end, device, stream, link, owner, size, kind in export.rows(
        "CUPTI_ACTIVITY_KIND_MEMCPY", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_MEMCPY", start, end)
        if times is not None:
            name = names.get(kind, "copy") if type(kind) is int else "copy"
            place = (_int_or_zero(device), _int_or_zero(stream))
            detail = (("bytes", _int_or_zero(size)),)
            yield NsysSpan(
                GPU, name, *times, place, _int_or_zero(link), "copy", detail, _owner(owner)
            )


def _copy_kind_names(export: Export) -> dict[int, str]:
    """Returns the export's names of copies: CUDA_MEMCPY_KIND_HTOD is HtoD."""
    rows = export.rows("ENUM_CUDA_MEMCPY_OPER", ("id", "name"))
    found = ((kind, _OPERATION.fullmatch(str(name))) for kind, name in rows)
    return {
        kind: f"{match[1]}to{match[2]}"
        for kind, match in islice(found, _KINDS)
        if match and type(kind) is int
    }


def _memsets(export: Export) -> Iterator[NsysSpan]:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes")
    for start, end, device, stream, link, owner, size in export.rows(
        "CUPTI_ACTIVITY_KIND_MEMSET", columns, "start, end DESC"
    ):
        times = _times(export, "CUPTI_ACTIVITY_KIND_MEMSET", start, end)
        if times is not None:
            place = (_int_or_zero(device), _int_or_zero(stream))
            detail = (("bytes", _int_or_zero(size)),)
            yield NsysSpan(
                GPU, "memset", *times, place, _int_or_zero(link), "copy", detail, _owner(owner)
            )


class CounterSample(NamedTuple):
    """A counter's value and its time in nanoseconds."""

    at: int
    name: str
    value: float


def counters(export: Export, table: str) -> Iterator[CounterSample]:
    """Yields the samples of GPU_METRICS or SOC_METRICS, sorted by time.

    Samples of GPU_METRICS, and of SOC_METRICS on a Jetson (``timestamp``, ``typeId``, ``metricId``,
    ``value``); their names are in TARGET_INFO_GPU_METRICS and TARGET_INFO_SOC_METRICS ("SQLite
    Export Schema Reference" of Nsight Systems 2023 to 2025).
    """
    names: dict[tuple[Any, Any], str] = {}
    columns = ("typeId", "metricId", "metricName")
    for kind, metric, name in export.rows(f"TARGET_INFO_{table}", columns):
        if isinstance(name, str) and len(names) < _SERIES:
            names[kind, metric] = name[:100]
    fields = ("timestamp", "typeId", "metricId", "value")
    for at, kind, metric, value in export.rows(table, fields, "timestamp"):
        name = names.get((kind, metric))
        if name and type(at) is int and 0 <= at < _LAST and _is_number(value):
            yield CounterSample(at, name, value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -_LAST < value < _LAST  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class _LaunchCall:
    """The position of a launch (for the arrow to its work) and its layer."""

    tid: int
    at: int
    layer: str


class NsysSource:
    """See ``edgekit.benchmark.trace.sources.TraceSource``.

    While the tables are merged, only open ranges, calls that wait for their work, and the end of
    each track are kept. A kernel is linked with the TensorRT layer whose NVTX range contains its
    launch (``targets/_nsys.yaml`` defines the layers' ranges), and by an arrow with the launching
    call.

    Args:
        export: An open export.
        name: The displayed name.
        linked: Finds the plan's facts about a layer: device, segment, nodes.

    Attributes:
        machine: Architecture of the profiled machine; only "aarch64" can be a board.
        matched: Layers of the plan that were found in the export.
    """

    def __init__(self, export: Export, name: str, linked: Linked | None = None) -> None:
        self.name, self.export, self._linked = name, export, linked
        self.machine = _machine(export)
        self._clock: Clock = BOARD_MEASURED if self.machine == "aarch64" else CPU_MEASURED
        self.wall = None if export.started is None else export.started / 1e9
        durations = export.rows("ANALYSIS_DETAILS", ("startTime", "stopTime"))
        self.seconds = next(
            (
                stop / 1e9
                for start, stop in durations
                if type(stop) is int and type(start) is int and 0 <= stop < 1 << 62
            ),
            0.0,
        )
        self.matched: set[str] = set()
        self._tracks: dict[str, tuple[int, list[int]]] = {}  # by name: number, ends of open slices
        # without this column work is linked with its launch by the correlation ID alone
        self._owned = any("globalPid" in columns for columns in export.tables.values())
        self._calls: OrderedDict[tuple[int, int], _LaunchCall] = OrderedDict()
        self._open: dict[tuple[int, int], list[NsysSpan]] = {}
        self._pid, self._shift, self._flows, self._label = 1, 0.0, 0, ""
        self._lines, self._words = EventLines(1, self._clock), range_words()

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[EventLine]:
        """See ``TraceSource``."""
        self._pid, self._shift, self._label = pid, shift_us, label
        self._lines = EventLines(pid, self._clock)
        spans = [ranges(self.export), host_calls(self.export), *device_work(self.export)]
        samples = [counters(self.export, table) for table in ("GPU_METRICS", "SOC_METRICS")]
        # at equal times: ranges before the calls in them, calls before their work
        streams: list[Iterator[tuple[int, int, NsysSpan | CounterSample]]] = [
            _keyed_spans(stream, number) for number, stream in enumerate(spans)
        ]
        streams += [_keyed_samples(stream, len(spans) + n) for n, stream in enumerate(samples)]
        # a stream's number is only once in the heap, so the following elements are never compared
        for _, _, item in heapq.merge(*streams):
            if isinstance(item, CounterSample):
                yield self._lines.count(item.name or "counter", self._us(item.at), item.value)
            elif item.kind == NVTX:
                yield self._range(item)
            elif item.kind == API:
                yield self._call(item)
            else:
                yield from self._work(item)

    def metadata(self) -> list[TraceEvent]:
        """See ``TraceSource``."""
        pid, clock = self._pid, self._clock
        version = self.export.meta.get("EXPORT_PRODUCT_VERSION", "").strip()
        profiler = f"Nsight Systems {version}".rstrip()
        what = self.machine or "unknown machine"
        if self._clock == CPU_MEASURED:
            what += " (not a board time)"

        def named(kind: str, tid: int, **args: Any) -> TraceEvent:
            return meta(kind, pid, tid, EventArgs(clock=clock, **args))

        found = [
            named("process_name", 0, name=f"{profiler}, {what}"),
            named("process_sort_index", 0, sort_index=pid),
            named("process_labels", 0, labels=self._label),
        ]
        order = {name: place for place, name in enumerate(sorted(self._tracks, key=_track_order))}
        for name, (tid, _) in self._tracks.items():
            found.append(named("thread_name", tid, name=name))
            found.append(named("thread_sort_index", tid, sort_index=order[name]))
        return found

    def _range(self, span: NsysSpan) -> EventLine:
        mark = span.end == span.start
        if not mark:
            stack = self._open.setdefault(span.place, [])
            while stack and stack[-1].end <= span.start:
                stack.pop()
            # ranges that never end must not fill the memory
            if len(stack) < 256 and len(self._open) < _THREADS:
                stack.append(span)
        tid = self._tid(_thread(span), span.start, span.end, mark=mark)
        return self._line(span, tid, "nvtx", span.name, (("domain", span.group),), mark=mark)

    def _call(self, span: NsysSpan) -> EventLine:
        tid = self._tid(_thread(span), span.start, span.end)
        if span.link:
            owner = span.place[0] if self._owned else 0
            self._calls[owner, span.link] = _LaunchCall(
                tid, span.start, self._enclosing_layer(span)
            )
            if len(self._calls) > _CALLS:
                # drops the oldest launch: if its work comes later, it gets no arrow
                self._calls.popitem(last=False)
        return self._line(span, tid, "api", "", ())

    def _enclosing_layer(self, span: NsysSpan) -> str:
        """Returns the innermost range around a call that is a TensorRT layer."""
        for around in reversed(self._open.get(span.place, ())):
            if around.end > span.start and around.group in self._words.domains:
                # TensorRT's innermost range decides: ExecutionContext::enqueue is not a layer
                layer = _SEQUENCE.sub("", around.name)
                return "" if layer.startswith(self._words.not_layers) else layer
        return ""

    def _work(self, span: NsysSpan) -> Iterator[EventLine]:
        device, stream = span.place
        if span.group == "copy":
            track, category = f"copies GPU{device} stream {stream}", "copy"
        else:
            track, category = f"GPU{device} stream {stream}", "gpu"
        tid = self._tid(track, span.start, span.end)
        call = self._calls.pop((span.owner, span.link), None) if span.link else None
        if call and call.layer:
            detail = (*span.detail, ("layer", call.layer))
            yield self._line(span, tid, category, call.layer, detail)
        else:
            yield self._line(span, tid, category, span.name, span.detail)
        if call:
            self._flows += 1
            # the arrow's start is also written only now: a call without work gets no arrow
            start, end = (self._us(call.at), call.tid), (self._us(span.start), tid)
            yield from self._lines.arrow("launch", self._flows + (self._pid << 32), start, end)

    def _layer(self, name: str) -> EventArgs | None:
        if self._linked is None:
            return None
        found = self._linked(_SEQUENCE.sub("", name))
        if found:
            self.matched.add(found.layer or name)
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
        """Returns the line of a span; ``layer`` may be the plan's name of a layer."""

        def values() -> EventArgs:
            known = (self._layer(layer) if layer else None) or EventArgs()
            own = {key: value for key, value in detail if key not in known.model_fields_set}
            return known.model_copy(update=own)

        args = self._lines.args((layer, detail), values)
        name, at = span.name[:_NAME] or category, self._us(span.start)
        if mark:
            return self._lines.mark(name, category, at, tid, args)
        return self._lines.slice(name, category, at, span.end - span.start, tid, args)

    def _us(self, at: int) -> float:
        # three decimals are exact for nanoseconds
        return round(at / 1000 + self._shift, 3) if self._shift else at / 1000

    def _tid(self, track: str, start: int, end: int, *, mark: bool = False) -> int:
        """Returns the number of a track on which the span nests, or of an additional track."""
        name, number = track, 1
        while True:
            known = self._tracks.get(name)
            if known is None:
                if len(self._tracks) >= _THREADS:
                    raise DataError(
                        f"more than {_THREADS} threads and streams",
                        code="nsys.tracks",
                        where=str(self.export.path),
                        hint="profile fewer processes at once",
                    )
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


def _track_order(track: str) -> tuple[int, str]:
    order = ("CPU", "GPU", "copies")
    return next((n for n, word in enumerate(order) if track.startswith(word)), 9), track


def _keyed_spans(stream: Iterator[NsysSpan], number: int) -> Iterator[tuple[int, int, NsysSpan]]:
    for span in stream:
        yield span.start, number, span


def _keyed_samples(
    stream: Iterator[CounterSample], number: int
) -> Iterator[tuple[int, int, CounterSample]]:
    for sample in stream:
        yield sample.at, number, sample


def _machine(export: Export) -> str:
    for name, value in export.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")):
        if name == "CpuArchitecture" and isinstance(value, str):
            return "aarch64" if value.lower() in ("aarch64", "arm64", "armv8") else value[:40]
    return ""
