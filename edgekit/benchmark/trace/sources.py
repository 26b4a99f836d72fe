"""Several measurements as one timeline: alignment of their clocks, and the common file. Also the
smaller sources: edgekit's own traces and bench documents, trtexec's iterations.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from edgekit.benchmark.document import SCHEMA as BENCH_SCHEMA
from edgekit.benchmark.document import Bench
from edgekit.benchmark.measurement import (
    BOARD_MEASURED,
    CLOCKS,
    PREDICTED,
    read_measurement,
    unreadable_error,
)
from edgekit.benchmark.trace.chrome import (
    HOST,
    SCHEMA,
    EventArgs,
    EventLine,
    Trace,
    TracedProcess,
    TraceEvent,
    TraceFacts,
    TraceProcess,
    checked_trace,
    event_line,
    meta,
    nanoseconds,
    sound_trace,
)
from edgekit.benchmark.trace.run import measured_processes
from edgekit.benchmark.trtexec import Iteration
from edgekit.collector import collector_held
from edgekit.documents import first_fault, load_json
from edgekit.errors import DataError
from edgekit.files import read_file, write_atomically
from edgekit_device.benchmark.measurement import Measurement

# Each source has a clock with its own zero. If two sources know the wall-clock time of their zero,
# and their times overlap, both are placed by it; every other source begins at 0, which is reported
# in its process's label and in ``otherData``. No source is placed by guessing.


#: Two measurements that are further apart than this do not belong to the same run.
_APART_S = 60.0
_BATCH = 1000
#: Most events of a trace; further events are only counted.
MOST_EVENTS = 5_000_000

_ALONE = "this source starts at 0 and is not aligned with the others"
_LARGEST_TRACE = 512 << 20
_HINT = "give a configuration, or the bench.json of a single run of edgekit bench"
_BENCH = (BENCH_SCHEMA, "edgekit.device.bench/1")
_SHOWN = 20
_MOST = 10_000


class TraceSource(Protocol):
    """A measurement that becomes processes of a trace.

    Attributes:
        name: The displayed name.
        wall: Unix time in seconds of its zero; None if unknown.
        seconds: Its duration.
    """

    name: str
    wall: float | None
    seconds: float

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[EventLine]:
        """Yields its events sorted by time, shifted by ``shift_us``, with processes from
        ``pid`` on.
        """
        ...

    def metadata(self) -> list[TraceEvent]:
        """Returns names of processes and tracks; complete after all events were consumed."""
        ...


class PreparedSource:
    """A source of existing processes."""

    def __init__(
        self, name: str, processes: Sequence[TraceProcess], *, wall: float | None = None
    ) -> None:
        self.name, self.wall = name, wall
        self._processes = list(processes)
        self._metadata: list[TraceEvent] = []
        keyed = []
        for process in processes:
            named, own = process.finish()
            self._metadata += named
            keyed += own
        keyed.sort(key=lambda item: item[:4])
        self._events = [event for *_, event in keyed]
        ends = (event.ts + event.dur for event in self._events)
        self.seconds = max(ends, default=0.0) / 1e6

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[EventLine]:
        """See ``TraceSource``."""
        numbers = {process.pid: pid + i for i, process in enumerate(self._processes)}
        self._metadata = list(_renumbered_metadata(self._metadata, numbers, label))
        for event in self._events:
            own = numbers[event.pid]
            flow = None if event.id is None else (event.id & 0xFFFFFFFF) + (own << 32)
            yield event_line(event, own, shift_us, flow)

    def metadata(self) -> list[TraceEvent]:
        """See ``TraceSource``."""
        return self._metadata


@dataclass
class WrittenTrace:
    """The contents of a trace file.

    Attributes:
        events: Number of events by category.
        processes: The processes with clock and placement.
        last_us: End of the last event in microseconds.
        left_out: Number of events beyond the limit.
    """

    events: dict[str, int] = field(default_factory=dict)
    processes: list[TracedProcess] = field(default_factory=list)
    last_us: float = 0.0
    left_out: int = 0


def align(sources: Sequence[TraceSource]) -> list[tuple[float, str]]:
    """Returns each source's shift in microseconds and the method of its alignment."""
    known = [source for source in sources if source.wall is not None]
    if len(known) < 2:
        return [(0.0, _ALONE if len(sources) > 1 else "the only source") for _ in sources]
    first = known[0]
    begin, end = first.wall or 0.0, (first.wall or 0.0) + first.seconds
    near = [
        source
        for source in known
        if (source.wall or 0.0) <= end + _APART_S
        and (source.wall or 0.0) + source.seconds >= begin - _APART_S
    ]
    # the earliest of them is the trace's 0: viewers show no negative times
    zero = min(source.wall or 0.0 for source in near)
    found = []
    for source in sources:
        if source.wall is None:
            found.append((0.0, _ALONE))
        elif len(near) > 1 and source in near:
            found.append((1e6 * (source.wall - zero), "aligned by the wall clock"))
        else:
            found.append((0.0, f"measured at another time: {_ALONE}"))
    return found


def write_trace(
    path: Path,
    sources: Sequence[TraceSource],
    *,
    name: str,
    target: str = "",
    most: int = MOST_EVENTS,
) -> WrittenTrace:
    """Writes a trace of several sources, event by event, in bounded memory.

    Args:
        path: The file, in the JSON object form with an event per line.
        sources: The sources in the order of their processes.
        name: The trace's name.
        target: The configuration's target, if there is one.
        most: Most events to write; further events are only counted.

    Returns:
        The contents of the file.

    Raises:
        DataError: A source is damaged; the existing file is unchanged.
        EnvironmentLack: The file cannot be written ("file.write").
    """
    written = WrittenTrace()
    places = align(sources)
    streams = [
        # 100 numbers for the processes of a source, which share its clock
        source.lines(100 * number + 1, shift, how)
        for number, (source, (shift, how)) in enumerate(zip(sources, places, strict=True))
    ]
    merged = heapq.merge(*streams, key=itemgetter(0))
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        first = True
        for lines in _batches(merged, most, written):
            file.write(("" if first else ",\n") + ",\n".join(lines))
            first = False
        for source, (shift, how) in zip(sources, places, strict=True):
            # after the events: a source knows its tracks only at its end
            for event in source.metadata():
                file.write(("" if first else ",\n") + json.dumps(event.to_json()))
                first = False
                if event.name == "process_name":
                    written.processes.append(
                        TracedProcess(
                            pid=event.pid,
                            name=event.args.name or "",
                            source=source.name,
                            clock=event.args.clock or PREDICTED,
                            alignment=how,
                            shift_us=round(shift, 3),
                        )
                    )
        facts = TraceFacts(
            schema=SCHEMA,
            name=name,
            processes=written.processes,
            left_out=written.left_out,
            clocks={process.name: process.clock for process in written.processes},
        )
        if target:
            facts = facts.model_copy(update={"target": target})
        file.write('\n], "otherData": ' + json.dumps(facts.to_json(), allow_nan=False) + "}\n")
    return written


def _batches(lines: Iterator[EventLine], most: int, written: WrittenTrace) -> Iterator[list[str]]:
    """Yields the texts of the first ``most`` lines in batches, and counts all lines."""
    batch: list[str] = []
    events, last = written.events, 0.0
    for _, end, category, text in islice(lines, most):
        events[category] = events.get(category, 0) + 1
        last = end if end > last else last
        batch.append(text)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
    written.last_us = last
    written.left_out = sum(1 for _ in lines)


class RunTrace:
    """A trace that edgekit wrote. See ``edgekit.benchmark.trace.sources.TraceSource``."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.name, self.trace = name, trace
        wall = trace.about.wall
        self.wall = float(wall) if wall is not None and 0 < wall < 1e12 else None
        self._metadata = [event for event in trace.events if event.ph == "M"]
        self._events = sorted(
            (event for event in trace.events if event.ph != "M"), key=lambda event: event.ts
        )
        self._pids = sorted({event.pid for event in trace.events})
        self.seconds = max((event.ts + event.dur for event in self._events), default=0.0) / 1e6

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[EventLine]:
        """See ``TraceSource``."""
        numbers = {own: pid + place for place, own in enumerate(self._pids)}
        flows: dict[int, int] = {}
        self._metadata = list(_renumbered_metadata(self._metadata, numbers, label))
        for event in self._events:
            # whole numbers: Perfetto accepts no other text
            flow = event.id
            if flow is not None:
                flow = flows.setdefault(flow, (pid << 32) + len(flows) + 1)
            yield event_line(event, numbers[event.pid], shift_us, flow)

    def metadata(self) -> list[TraceEvent]:
        """See ``TraceSource``."""
        return self._metadata


def _renumbered_metadata(
    events: list[TraceEvent], numbers: Mapping[int, int], label: str
) -> Iterator[TraceEvent]:
    """Yields metadata with new process numbers, and adds the label to each process."""
    labelled = set()
    clocks = {}
    for event in events:
        pid, args = numbers[event.pid], event.args
        clocks[pid] = args.clock
        if event.name == "process_labels":
            args = args.model_copy(update={"labels": f"{args.labels}; {label}"})
            labelled.add(pid)
        elif event.name == "process_sort_index":
            args = args.model_copy(update={"sort_index": pid})
        yield event.model_copy(update={"pid": pid, "args": args})
    for pid, clock in clocks.items():
        if pid not in labelled:
            yield meta("process_labels", pid, 0, EventArgs(clock=clock, labels=label))


def _json(path: Path) -> Any:
    return load_json(
        path, _LARGEST_TRACE, unreadable="trace.unreadable", invalid="trace.form", hint=_HINT
    )


def read_trace_or_bench(path: Path) -> tuple[TraceSource, str]:
    """Reads an edgekit trace or a bench document: its run's trace if in the same folder, else its
    own data. The file name does not matter.

    Returns:
        The source, and the name of the measured release; "" if it has none.

    Raises:
        DataError: As ``read_trace``; or the document has no measurement ("trace.empty").
    """
    with collector_held():
        sound = _read_sound_trace(path)
        if sound:
            return RunTrace(path.name, sound), ""
        document = _json(path)
        if isinstance(document, dict) and "traceEvents" in document:
            return _run_trace(path, checked_trace(document)), ""
    return _bench_source(path, document)


def read_trace(path: Path) -> RunTrace:
    """Reads an edgekit trace.

    Raises:
        DataError: The file is unreadable ("trace.unreadable") or no edgekit trace ("trace.form").
    """
    with collector_held():  # events consist of many objects without cycles
        return _run_trace(path, _read_sound_trace(path) or checked_trace(_json(path)))


def _read_sound_trace(path: Path) -> Trace | None:
    with suppress(OSError):  # load_json reports it
        return sound_trace(read_file(path, _LARGEST_TRACE))
    return None


def _run_trace(path: Path, found: Trace | list[str]) -> RunTrace:
    if isinstance(found, Trace):
        return RunTrace(path.name, found)
    raise DataError(
        f"not an edgekit trace: {found[0]}"[:300],
        code="trace.form",
        where=str(path),
        hint="run edgekit bench again",
    )


def _bench_source(path: Path, document: object) -> tuple[TraceSource, str]:
    if not isinstance(document, dict) or document.get("schema") not in _BENCH:
        raise DataError(
            "not a bench document",
            code="trace.form",
            where=str(path),
            hint="give the bench.json of edgekit bench, or a configuration",
        )
    neighbour = path.parent / "trace.json"
    # the trace has the single frames and their layers, the document only statistics
    if path.name == "bench.json" and neighbour.is_file():
        return read_trace(neighbour), str(document.get("name") or "")
    if "latency_ms" not in document:
        raise DataError(
            "the bench document has no latency_ms: it is cut off, or not from edgekit bench",
            code="trace.form",
            where=str(path),
            hint="run edgekit bench again",
        )
    if not document["latency_ms"]:
        raise DataError(
            "nothing was measured",
            code="trace.empty",
            where=str(path),
            hint="measure with edgekit bench",
        )
    if document.get("clock") not in (None, *CLOCKS):
        raise DataError(
            f"its clock is {document['clock']!r}"[:100] + f", not one of {', '.join(CLOCKS)}",
            code="trace.form",
            where=str(path),
            hint="run edgekit bench again",
        )
    try:
        name, measured = _measurement(document)
        processes = measured_processes(None, measured, 0, None)
    except DataError as error:
        error.where = error.where or str(path)
        raise
    return PreparedSource(path.name, processes), name


def _measurement(document: Mapping[str, object]) -> tuple[str, Measurement]:
    """Returns the name and the measurement of a loader's document or a bench document."""
    if document.get("schema") != BENCH_SCHEMA:
        return "", read_measurement(document)
    try:
        bench = Bench.model_validate(document)
    except ValidationError as error:
        raise unreadable_error(*first_fault(error)) from None
    return bench.name, bench.measurement()


def times_process(
    iterations: Sequence[Iteration], *, pid: int, device: str = "GPU"
) -> TraceProcess:
    """Makes the process of the first 10,000 iterations of ``--exportTimes``.

    Args:
        iterations: From ``read_times``.
        pid: Process number.
        device: The device; trtexec's times do not name it.

    Raises:
        DataError: "trace.time": a time is invalid.
    """
    process = TraceProcess(pid, "trtexec's iterations", BOARD_MEASURED, None)
    zero = min(
        (
            min(iteration.start_ms - iteration.h2d_ms, iteration.enqueued_ms)
            for iteration in iterations
        ),
        default=0.0,
    )
    if len(iterations) > _MOST:
        process.label = f"the first {_MOST} of {len(iterations)} iterations"

    def at(milliseconds: float) -> int:
        # rounding may put the earliest start before the trace's 0
        return max(0, nanoseconds(1e3 * (milliseconds - zero)))

    for number, iteration in enumerate(iterations[:_MOST]):
        steps = []
        end = iteration.start_ms + iteration.compute_ms
        for track, name, start, length in (
            (HOST, "enqueue", iteration.enqueued_ms, iteration.enqueue_ms),
            (
                "copies to the device",
                "H2D",
                iteration.start_ms - iteration.h2d_ms,
                iteration.h2d_ms,
            ),
            (device, "compute", iteration.start_ms, iteration.compute_ms),
            ("copies to the host", "D2H", end, iteration.d2h_ms),
        ):
            begin, stop = at(start), at(start + max(length, 0.0))
            place = process.free_track(track, begin)
            args = EventArgs(iteration=number)
            process.add(place, f"{name} {number}", begin, stop, "iteration", args)
            steps.append((place, begin))
        process.flow("iteration", steps)
    return process
