"""An Nsight Systems export as a source of a trace: threads, GPU, DLA cores, copies, counters.

One pass over all tables at once, merged by time; what is kept are open ranges, the calls whose work
is still to come, and the end of each track. Kernels are linked with the TensorRT layer whose NVTX
range their launch lies in (``targets/_nsys.yaml`` says which ranges are layers'), and by an arrow
with the call that launched them.
"""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from edgekit.bench._nsys_generic import Generic, Sample
from edgekit.bench._nsys_open import Export
from edgekit.bench._nsys_rows import API, DLA, NVTX, Span, device_work, host_calls, ranges
from edgekit.bench._nsys_words import range_words
from edgekit.bench._trace_lines import Line, Lines
from edgekit.bench._trace_process import Event, meta
from edgekit.bench._types import BOARD_MEASURED, CPU_MEASURED
from edgekit.errors import DataError

__all__ = ["Linked", "NsysSource"]

_CALLS = 1 << 16  # launches whose work has not come yet
_THREADS = 1 << 12
_NAME = 300
_SEQUENCE = re.compile(r"\s*(?:\[\d+\]|#\d+)$")
Linked = Callable[[str], "dict[str, Any] | None"]
Detail = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """Where a launch stands, for the arrow to its work, and the layer that it is for."""

    tid: int
    at: int
    layer: str


class NsysSource:
    """See ``edgekit.bench._trace_sources.Source``.

    Args:
        export: An open export.
        name: What to call it.
        linked: Finds what the plan knows of a layer: device, segment, nodes.

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
        self._calls: OrderedDict[tuple[int, int], _Call] = OrderedDict()
        self._open: dict[tuple[int, int], list[Span]] = {}
        self._pid, self._shift, self._flows, self._label = 1, 0.0, 0, ""
        self._lines, self._words = Lines(1, self._clock), range_words()

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[Line]:
        """See Source."""
        self._pid, self._shift, self._label = pid, shift_us, label
        self._lines = Lines(pid, self._clock)
        work = device_work(self.export)
        spans = [ranges(self.export), host_calls(self.export), *work, self.generic.tasks()]
        samples = [self.generic.samples(), self.generic.metrics()]
        # ranges before the calls in them, calls before their work, where times are equal
        streams: list[Iterator[tuple[int, int, Span | Sample]]] = [
            _keyed(stream, number) for number, stream in enumerate(spans)
        ]
        streams += [_counted(stream, len(spans) + n) for n, stream in enumerate(samples)]
        # a stream's number stands once in the heap, so that what follows it is never compared
        for _, _, item in heapq.merge(*streams):
            if isinstance(item, Sample):
                yield self._lines.count(item.name or "counter", self._us(item.at), item.value)
            elif item.kind == NVTX:
                yield self._range(item)
            elif item.kind == API:
                yield self._call(item)
            else:
                yield from self._work(item)

    def metadata(self) -> list[Event]:
        """See Source."""
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

    def _range(self, span: Span) -> Line:
        mark = span.end == span.start
        if not mark:
            stack = self._open.setdefault(span.place, [])
            while stack and stack[-1].end <= span.start:
                stack.pop()
            if len(stack) < 256 and len(self._open) < _THREADS:
                stack.append(span)
        tid = self._tid(_thread(span), span.start, span.end, mark=mark)
        return self._line(span, tid, "nvtx", span.name, (("domain", span.group),), mark=mark)

    def _call(self, span: Span) -> Line:
        tid = self._tid(_thread(span), span.start, span.end)
        if span.link:
            owner = span.place[0] if self._owned else 0
            self._calls[owner, span.link] = _Call(tid, span.start, self._around(span))
            if len(self._calls) > _CALLS:
                self._calls.popitem(last=False)
        return self._line(span, tid, "api", "", (("api", span.group),))

    def _around(self, span: Span) -> str:
        """Returns the innermost range around a call that is a layer of TensorRT."""
        for around in reversed(self._open.get(span.place, ())):
            if around.end > span.start and around.group in self._words.domains:
                layer = _SEQUENCE.sub("", around.name)
                return "" if layer.startswith(self._words.not_layers) else layer
        return ""

    def _work(self, span: Span) -> Iterator[Line]:
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

    def _found_call(self, span: Span) -> _Call | None:
        return self._calls.pop((span.owner, span.link), None) if span.link else None

    def _layer(self, name: str) -> dict[str, Any] | None:
        if self._linked is None:
            return None
        found = self._linked(_SEQUENCE.sub("", name))
        if found:
            self.matched.add(str(found.get("layer", name)))
        return found

    def _line(
        self, span: Span, tid: int, category: str, layer: str, detail: Detail, *, mark: bool = False
    ) -> Line:
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
                        where=str(self.export.path), hint="profile fewer processes",
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


def _thread(span: Span) -> str:
    return f"CPU process {span.place[0]} thread {span.place[1]}"


def _place(track: str) -> tuple[int, str]:
    order = ("CPU", "GPU", "DLA", "copies")
    return next((n for n, word in enumerate(order) if track.startswith(word)), 9), track


def _keyed(stream: Iterator[Span], number: int) -> Iterator[tuple[int, int, Span]]:
    for span in stream:
        yield span.start, number, span


def _counted(stream: Iterator[Sample], number: int) -> Iterator[tuple[int, int, Sample]]:
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
