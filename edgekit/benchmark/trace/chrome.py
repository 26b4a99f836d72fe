"""The Trace Event Format: a process with its clock, tracks, slices, counters, marks and flows; its
events as lines of a file, fast enough for millions; and the validation of a whole trace.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from edgekit.benchmark.measurement import CLOCKS
from edgekit.documents import (
    Count,
    Device,
    Document,
    Figure,
    Fraction,
    Number,
    OpenDocument,
    Precision,
    TargetName,
    fault_words,
)
from edgekit.errors import DataError
from edgekit.network.module_names import common_module
from edgekit_device.benchmark.measurement import LATEST_US
from edgekit_device.protocol.fields import Clock

HOST = "host"
SCHEMA: Final = "edgekit.trace/1"
# texts of arguments and names that are kept while a file is written
_KNOWN = 1 << 14
_MOVED = {"pid", "ts", "id"}  # fields that differ in another trace
dumps: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, check_circular=False
).encode
#: An event: begin and end in microseconds, category, and JSON text.
EventLine = tuple[float, float, str, str]
# half a nanosecond in microseconds: the format has no finer time
TOLERANCE_US = 0.0005
# the phases of the format that edgekit writes
PHASES = ("X", "M", "C", "i", "s", "t", "f")
# the metadata events that edgekit writes, with the key of their value
METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}
# scopes of an instant: global, process, thread
_SCOPES = ("g", "p", "t")
# viewers store nanoseconds in 64 bits, also the end of a slice
_LATEST_US = 2**62 / 1000


class EventArgs(OpenDocument):
    """The arguments of an event; further keys are another profiler's own.

    Attributes:
        sort_index: Place of a process or a track among the others.
        frame: Number of the shown frame.
        segment: Number of the segment in running order.
        iteration: Number of trtexec's iteration.
    """

    clock: Clock | None = Field(None, description="whose times they are; a counter has none")
    name: str | None = Field(None, description="of a process or a track")
    labels: str | None = None
    sort_index: int | None = None
    value: float | None = Field(None, description="of a counter")
    plan: Count | None = Field(None, description="its number, where several share the frames")
    frame: Count | None = None
    frames: Count | None = Field(None, description="that the host waited for")
    segment: Count | None = None
    device: Device | Literal["host", "copies"] | None = None
    layer: str | None = None
    module: str | None = Field(None, description="the layers' PyTorch module, where it is known")
    layers: Count | list[str] | None = Field(
        None, description="of a fusion or a loadable their names, of a predicted segment how many"
    )
    nodes: list[str] | None = Field(None, description="the layers' ONNX nodes")
    precision: Precision | None = None
    border_of: str | None = Field(None, description="the layer whose output is converted")
    predicted_us: Figure | None = None
    measured_us: Figure | None = None
    measured_nodes: list[str] | None = Field(None, description="the engine's nodes")
    predicted_latency_us: Figure | None = None
    shares: list[Fraction] | None = Field(None, description="of the frames, by plan")
    iteration: Count | None = None
    file_kind: str | None = None
    notes: list[str] | None = None

    def of_module(self, modules: Mapping[str, str]) -> EventArgs:
        """Returns the arguments with the module around the event's layers.

        Args:
            modules: Module by layer name; layers without a module are skipped.
        """
        names = self.layers if isinstance(self.layers, list) else [self.layer or ""]
        paths = [modules[name] for name in names if name in modules]
        return self.model_copy(update={"module": common_module(paths)}) if paths else self


class TraceEvent(Document):
    """An event of the format; times are microseconds.

    Attributes:
        pid: Number of the trace's process.
        tid: Number of the process's track.
    """

    name: str
    cat: str | None = Field(None, description="segment, layer, frame, copy, counter, flow, ...")
    ph: Literal["X", "M", "C", "i", "s", "t", "f"]
    ts: float = Field(description="when it begins")
    dur: Figure = Field(0.0, description="how long a slice takes")
    pid: Count
    tid: Count
    s: str | None = Field(None, description="scope of an instant")
    id: Count | None = Field(None, description="of a flow")
    bp: str | None = Field(None, description="e: the flow binds to the slice around it")
    args: EventArgs

    def of_module(self, modules: Mapping[str, str]) -> TraceEvent:
        """Returns the event with the module of its layers; see ``EventArgs.of_module``."""
        return self.model_copy(update={"args": self.args.of_module(modules)}) if modules else self


class TracedProcess(Document):
    """A process of a trace: the clock of its times, and its placement on the timeline.

    Attributes:
        pid: Number of the trace's process.
    """

    pid: Count
    name: str
    source: str
    clock: Clock
    alignment: str
    shift_us: Number


class TraceFacts(Document):
    """The facts about a trace's source."""

    schema_: Literal["edgekit.trace/1"] = Field(alias="schema")
    name: str = ""
    target: Literal[""] | TargetName = ""
    power_mode: str = ""
    precision: Literal[""] | Precision = ""
    clocks: dict[str, str] = Field({}, description="by process")
    wall: Figure | None = Field(
        None, description="Unix seconds of the trace's 0; null: it is not known"
    )
    processes: list[TracedProcess] = Field([], description="of a trace of several measurements")
    left_out: Count = Field(0, description="events beyond the limit")


class Trace(Document):
    """A trace in the object form of the Trace Event Format."""

    events: list[TraceEvent] = Field(alias="traceEvents")
    unit: Literal["ms", "ns"] = Field(alias="displayTimeUnit")
    about: TraceFacts = Field(alias="otherData")


SortedEvent = tuple[int, int, int, int, TraceEvent]
Events = list[TraceEvent]


def nanoseconds(microseconds: float) -> int:
    """Returns whole nanoseconds; slices are kept in these, so that they nest exactly.

    Raises:
        DataError: "trace.time": it is no valid time.
    """
    if not -LATEST_US <= microseconds <= LATEST_US:  # false for nan
        raise _no_time(f"{microseconds!r:.40} us")
    return round(microseconds * 1000)


def _no_time(what: str) -> DataError:
    return DataError(
        f"{what} is not a valid time",
        code="trace.time",
        hint="measure again; report it if it happens again",
    )


def meta(kind: str, pid: int, tid: int, args: EventArgs) -> TraceEvent:
    """Returns a metadata event: the name or position of a process or track."""
    return TraceEvent(name=kind, cat="__metadata", ph="M", ts=0.0, pid=pid, tid=tid, args=args)


class TraceProcess:
    """A process of the trace; it has a track for the host, the GPU and every DLA core.

    Phases of the "Trace Event Format" (Chromium, catapult project): complete events "X", metadata
    "M", counters "C", instants "i", and flows "s", "t", "f", which bind to the slice around them.

    Args:
        pid: Process number; also its position in the viewer.
        name: Process name.
        clock: Added to every event's ``args``, except for counters (numbers only).
        dla_cores: DLA cores of the target; None for a process without device tracks.
    """

    def __init__(self, pid: int, name: str, clock: Clock, dla_cores: int | None) -> None:
        self.pid, self.name, self.clock = pid, name, clock
        devices = [f"DLA{core}" for core in range(dla_cores or 0)]
        self._tracks = [] if dla_cores is None else [HOST, "GPU", *devices]
        self._ends: dict[str, int] = {}
        self._events: list[SortedEvent] = []
        self._flows = 0
        self.label = ""

    def free_track(self, device: str, start: int) -> str:
        """Returns the device's track, or an additional track if a slice is still running."""
        track, number = device, 1
        while self._ends.get(track, 0) > start:
            number += 1
            track = f"{device} ({number})"
        return track

    def add(
        self, track: str, name: str, start: int, end: int, category: str, args: EventArgs
    ) -> None:
        """Adds a slice from ``start`` to ``end`` nanoseconds.

        Raises:
            DataError: "trace.time": it begins before the trace, or ends before it begins.
        """
        if not 0 <= start <= end:
            raise _no_time(f"{name}: {start} to {end} ns")
        self._ends[track] = max(end, self._ends.get(track, 0))
        # equal starts: the longer slice is the parent; equal times: in the order of adding
        self._put(
            start,
            start - end,
            TraceEvent(
                name=name,
                cat=category,
                ph="X",
                ts=start / 1000,
                dur=(end - start) / 1000,
                pid=self.pid,
                tid=self._tid(track),
                args=args.model_copy(update={"clock": self.clock}),
            ),
        )

    def count(self, name: str, at: int, value: float) -> None:
        """Adds a sample of a counter."""
        self._put(
            at,
            1,
            TraceEvent(
                name=name,
                cat="counter",
                ph="C",
                ts=at / 1000,
                pid=self.pid,
                tid=0,
                args=EventArgs(value=value),
            ),
        )

    def flow(self, name: str, steps: Sequence[tuple[str, int]]) -> None:
        """Links slices by arrows in order of time: (track, a time within the slice)."""
        steps = sorted(steps, key=lambda step: step[1])
        if len(steps) < 2:
            return
        self._flows += 1
        for number, (track, at) in enumerate(steps):
            event = TraceEvent(
                name=name,
                cat="flow",
                ph="s",
                # no two processes of a file may use the same id
                id=self._flows + (self.pid << 32),
                ts=at / 1000,
                pid=self.pid,
                tid=self._tid(track),
                args=EventArgs(clock=self.clock),
            )
            if number > 0:
                phase = "f" if number == len(steps) - 1 else "t"
                event = event.model_copy(update={"ph": phase, "bp": "e"})
            self._put(at, 1, event)

    def finish(self) -> tuple[Events, list[SortedEvent]]:
        """Returns metadata events, and the others with their sort keys.

        An idle device has no track.
        """

        def named(kind: str, tid: int, **args: Any) -> TraceEvent:
            return meta(kind, self.pid, tid, EventArgs(clock=self.clock, **args))

        found = [
            named("process_name", 0, name=self.name),
            named("process_sort_index", 0, sort_index=self.pid),
        ]
        if self.label:
            found.append(named("process_labels", 0, labels=self.label))
        used = {event.tid for *_, event in self._events}
        for track in self._tracks:
            tid = self._tid(track)
            if tid not in used:
                continue
            found.append(named("thread_name", tid, name=track))
            found.append(named("thread_sort_index", tid, sort_index=tid))
        return found, sorted(self._events, key=lambda item: item[:4])

    def _put(self, start: int, order: int, event: TraceEvent) -> None:
        self._events.append((start, order, self.pid, len(self._events), event))

    def _tid(self, track: str) -> int:
        if track not in self._tracks:
            self._tracks.append(track)
        # 0 is for the counters, which belong to no track
        return self._tracks.index(track) + 1


def event_line(event: TraceEvent, pid: int, shift_us: float, flow: int | None) -> EventLine:
    """Returns the line of an existing event, moved to another process and shifted in time.

    ``flow`` is its new flow ``id``; None for an event without a flow.
    """
    at = round(event.ts + shift_us, 3)
    # copying the event would add half of the time of formatting it
    rest = event.model_dump_json(by_alias=True, exclude_unset=True, exclude=_MOVED)
    of_flow = "" if flow is None else f'"id": {flow}, '
    text = f'{{"pid": {pid}, "ts": {at!r}, {of_flow}{rest[1:]}'
    return at, at + event.dur, str(event.cat), text


class EventLines:
    """Makes the lines of a process; its clock is added to every ``args`` except counters'.

    A large export has millions of events, and making, encoding and checking a dictionary for each
    takes longer than reading it: ``EventLines`` formats only the parts that differ between events
    of a kind and encodes names and arguments once.
    """

    def __init__(self, pid: int, clock: Clock) -> None:
        self._pid = f', "pid": {pid}, "tid": '
        self._clock = clock
        self.quoted = lru_cache(maxsize=_KNOWN)(dumps)
        self._known: dict[Any, str] = {}

    def args(self, key: object, values: Callable[[], EventArgs]) -> str:
        """Returns the text of arguments, made once for all events with that key."""
        text = self._known.get(key)
        if text is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            text = dumps(values().model_copy(update={"clock": self._clock}).to_json())
            self._known[key] = text
        return text

    def slice(
        self, name: str, category: str, at: float, nanoseconds: int, tid: int, args: str
    ) -> EventLine:
        """Returns a complete event of ``nanoseconds`` length."""
        spent = nanoseconds / 1000
        return (
            at,
            at + spent,
            category,
            f'{{"name": {self.quoted(name)}, "cat": "{category}", "ph": "X", "ts": {at!r}, '
            f'"dur": {spent!r}{self._pid}{tid}, "args": {args}}}',
        )

    def mark(self, name: str, category: str, at: float, tid: int, args: str) -> EventLine:
        """Returns an instant on a track."""
        return (
            at,
            at,
            category,
            f'{{"name": {self.quoted(name)}, "cat": "{category}", "ph": "i", "s": "t", '
            f'"ts": {at!r}{self._pid}{tid}, "args": {args}}}',
        )

    def count(self, name: str, at: float, value: float) -> EventLine:
        """Returns a sample of a counter; the value is finite."""
        return (
            at,
            at,
            "counter",
            f'{{"name": {self.quoted(name)}, "cat": "counter", "ph": "C", "ts": {at!r}'
            f'{self._pid}0, "args": {{"value": {value!r}}}}}',
        )

    def arrow(
        self, name: str, number: int, start: tuple[float, int], end: tuple[float, int]
    ) -> tuple[EventLine, EventLine]:
        """Returns both ends of a flow; each is a time and the track of a slice."""
        head = f'{{"name": "{name}", "cat": "{name}", "id": {number}, "ph": '
        args = f', "args": {{"clock": "{self._clock}"}}}}'
        (at, tid), (then, there) = start, end
        return (
            (at, at, name, f'{head}"s", "ts": {at!r}{self._pid}{tid}{args}'),
            (then, then, name, f'{head}"f", "bp": "e", "ts": {then!r}{self._pid}{there}{args}'),
        )


def order_faults(events: Events) -> list[str]:
    """Returns faults of the sequence: times must ascend, and slices of a track nest."""
    # an arrow is only written when its end is known
    timed = [event for event in events if event.ph not in ("M", "s", "t", "f")]
    faults = [
        f"event {after.name!r} at {after.ts} stands after one at {before.ts}"
        for before, after in pairwise(timed)
        if after.ts < before.ts
    ]
    # the open slices of each track: end and name
    open_slices: dict[tuple[int, int], list[tuple[float, str]]] = {}
    slices = [(event.ts, -event.dur, n) for n, event in enumerate(timed) if event.ph == "X"]
    for start, less, number in sorted(slices):
        event = timed[number]
        stack = open_slices.setdefault((event.pid, event.tid), [])
        while stack and stack[-1][0] <= start + TOLERANCE_US:
            stack.pop()
        end = start - less
        if stack and end > stack[-1][0] + TOLERANCE_US:
            faults.append(f"slice {event.name!r} ends after {stack[-1][1]!r} around it")
        stack.append((end, event.name))
    return faults


def flow_faults(events: Events) -> list[str]:
    """Returns faults of flows: each starts and ends once, in order, within slices."""
    flows: dict[tuple[str, int | None], Events] = {}
    for event in events:
        if event.ph in ("s", "t", "f"):
            flows.setdefault((str(event.cat), event.id), []).append(event)
    if not flows:
        return []
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event.ph == "X":
            times = spans.setdefault((event.pid, event.tid), [])
            end = event.ts + event.dur
            # the latest end so far: any earlier slice that is still open is sufficient
            times.append((event.ts, max(end, times[-1][1] if times else end)))
    faults = []
    for (_, name), steps in flows.items():
        phases = "".join(step.ph for step in steps)
        if phases[0] != "s" or phases[-1] != "f" or phases[1:-1].strip("t"):
            faults.append(f"flow {name!r} is {phases!r}, not one start, steps and one end")
        for step in steps:
            times = spans.get((step.pid, step.tid), [])
            at = bisect_right(times, (step.ts + TOLERANCE_US, float("inf"))) - 1
            if at < 0 or times[at][1] + TOLERANCE_US < step.ts:
                faults.append(f"flow {name!r} at {step.ts} is in no slice")
    return faults


def name_faults(events: Events) -> list[str]:
    """Returns faults of names and clocks: each track needs a name, a process a single clock."""
    threads, used = set[tuple[int, int]](), set[tuple[int, int]]()
    processes, clocks = set[int](), dict[int, set[str]]()
    for event in events:
        pid, phase = event.pid, event.ph
        found = clocks.setdefault(pid, set())
        if phase == "M":
            if event.name == "thread_name":
                threads.add((pid, event.tid))
            elif event.name == "process_name":
                processes.add(pid)
        elif phase == "C":
            continue
        else:
            used.add((pid, event.tid))
        if event.args.clock is not None:
            found.add(event.args.clock)
    faults = []
    faults += [f"track {pid}/{tid} has no thread_name" for pid, tid in sorted(used - threads)]
    faults += [f"process {pid} has no process_name" for pid in sorted(set(clocks) - processes)]
    faults += [
        f"process {pid} mixes clocks: {', '.join(sorted(found))}"
        for pid, found in sorted(clocks.items())
        if len(found) > 1
    ]
    return faults


def _is_time(value: object) -> bool:
    return _is_number(value) and 0 <= float(value) <= _LATEST_US  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of a double
        return False


def event_faults(at: str, event: object) -> list[str]:
    """Returns the faults of an event's own fields, each prefixed with ``at``."""
    if not isinstance(event, dict):
        return [f"{at} is no object"]
    faults = []
    phase = event.get("ph")
    if not isinstance(phase, str) or phase not in PHASES:
        faults.append(f"{at}.ph is {phase!r}, not one of {', '.join(PHASES)}")
    if not isinstance(event.get("name"), str) or not event.get("name"):
        faults.append(f"{at}.name is no text")
    # not isinstance: JSON's true is an int in Python
    faults += [
        f"{at}.{key} is no whole number"
        for key in ("pid", "tid")
        if type(event.get(key)) is not int
    ]
    if not _is_time(event.get("ts")):
        faults.append(f"{at}.ts is no time")
    if phase == "X" and not _is_time(event.get("dur")):
        faults.append(f"{at}.dur is no duration")
    if phase == "i" and event.get("s") not in _SCOPES:
        faults.append(f"{at}.s is {event.get('s')!r}, not one of {', '.join(_SCOPES)}")
    if phase in ("s", "t", "f") and type(event.get("id")) is not int:
        faults.append(f"{at}.id is no whole number")
    args = event.get("args")
    if not isinstance(args, dict):
        return [*faults, f"{at}.args is no object"]
    more = _series(at, args) if phase == "C" else _args(at, phase, event.get("name"), args)
    return faults + more


def _series(at: str, args: dict[object, object]) -> list[str]:
    """Returns the faults of a counter's ``args``: its series must be numbers, without a clock."""
    if not args:
        return [f"{at}.args has no series"]
    return [f"{at}.args.{key} is no number" for key, value in args.items() if not _is_number(value)]


def _args(at: str, phase: object, name: object, args: dict[object, object]) -> list[str]:
    faults = []
    clock = args.get("clock")
    if not isinstance(clock, str) or clock not in CLOCKS:
        faults.append(f"{at}.args.clock is {clock!r}, not one of {', '.join(CLOCKS)}")
    if phase == "M":
        needed = METADATA.get(str(name))
        if needed is None:
            faults.append(f"{at}: no metadata event is called {name!r}")
        elif needed not in args:
            faults.append(f"{at}.args lacks {needed}")
        elif type(args[needed]) is not (int if needed == "sort_index" else str):
            faults.append(f"{at}.args.{needed} is {str(args[needed])[:60]!r}")
    return faults


def validate_trace(document: object) -> list[str]:
    """Returns the faults of a trace, a line each; empty if it is valid.

    Checked: the object form's members, each event's fields and types (Trace Event Format, sections
    "JSON Object Format", "Complete Events", "Metadata Events", "Counter Events", "Instant Events",
    "Flow Events"), finite and ascending times, nesting slices, flows that begin and end once within
    slices, named tracks, and a single ``clock`` for each process.
    """
    found = checked_trace(document)
    return [] if isinstance(found, Trace) else found


def checked_trace(document: object) -> Trace | list[str]:
    """Returns the trace, or its faults: see :func:`validate_trace`."""
    if not isinstance(document, Mapping):
        return ["the trace is no object"]
    events = document.get("traceEvents")
    faults = []
    if document.get("displayTimeUnit") not in ("ms", "ns"):
        faults.append("displayTimeUnit is neither ms nor ns")
    if not isinstance(document.get("otherData"), Mapping):
        faults.append("otherData is no object")
    if not isinstance(events, list) or not events:
        return [*faults, "traceEvents is no list of events"]
    own = [f for i, event in enumerate(events) for f in event_faults(f"traceEvents[{i}]", event)]
    # the remaining checks require valid fields
    if faults or own:
        return faults + own
    try:
        trace = Trace.model_validate(document)
    except ValidationError as error:
        return [fault_words(error)]
    return _faults_together(trace.events) or trace


def sound_trace(data: bytes) -> Trace | None:
    """Returns the trace of a file, in half the time of :func:`checked_trace`; None if only that
    function can decide on its validity.
    """
    if b"NaN" in data or b"Infinity" in data:  # not valid JSON
        return None
    try:
        trace = Trace.model_validate_json(data)
    except ValidationError:
        return None
    events = trace.events
    sound = events and all(
        _is_sound_slice(event) or not event_faults("", event.to_json()) for event in events
    )
    return trace if sound and not _faults_together(events) else None


def _is_sound_slice(event: TraceEvent) -> bool:
    """Returns True if it is a slice without own faults; the class has checked its types."""
    return (
        event.ph == "X"
        and event.args.clock is not None
        and event.name != ""
        and 0 <= event.ts <= _LATEST_US
        and 0 <= event.dur <= _LATEST_US
        # the class has a default for events without a duration
        and "dur" in event.model_fields_set
    )


def _faults_together(events: Events) -> list[str]:
    return order_faults(events) + flow_faults(events) + name_faults(events)
