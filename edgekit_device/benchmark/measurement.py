"""``edgekit.device.bench/1``: what ``bench`` measures (docs/board-protocol.md), as values."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple, Union

from edgekit_device.benchmark.statistics import STATISTICS
from edgekit_device.board.power import PowerReport
from edgekit_device.board.samples import Monitor
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    Rule,
    array,
    choice,
    document,
    fail,
    flag,
    integer,
    long_text,
    mapping,
    member,
    nullable,
    number,
    record,
    records,
    says,
    shape,
    take,
    text,
)
from edgekit_device.protocol.fields import Clock

SCHEMA = "edgekit.device.bench/1"
LATEST_US = 1e12
"""No measurement is longer than these 11 days, and a double still holds their nanoseconds."""

#: Milliseconds by statistic: min, mean, median, p50 to p999, max.
Times = Mapping[str, float]
#: A flag of a runtime: a tuple where the engines differ.
Fact = Union[bool, int, float, str, None]
Flag = Union[Fact, Tuple[Fact, ...]]

_MICRO = number(0, LATEST_US)
_MOMENT = number(-LATEST_US, LATEST_US)
_SECOND = number(0, LATEST_US / 1e6)
# a month: what is longer is no latency, and its square may be no number
_MILLI = number(0, 3e9)
#: The name of a statistic.
statistic = choice(*STATISTICS)
#: The name of a frame's phase.
phase = choice("enqueue", "h2d", "compute", "d2h", "host")
_TIMES = nullable(mapping(_MILLI, statistic))
_BYTES = nullable(fields.count)
_NUMBER = integer(0, 1 << 20)
_TEXT = nullable(text())
_WHOLE = nullable(_NUMBER)
_READING = nullable(fields.reading)
_NOTES = array(long_text)


def _fact(value: Any) -> Flag:
    if isinstance(value, list):
        return tuple(_plain(one) for one in value)
    return _plain(value)


def _plain(value: Any) -> Fact:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        fail("", "expected a flag's value")
    found: Fact = value
    return found


says(_plain, type=("boolean", "number", "string", "null"))
says(_fact, anyOf=(_plain, {"type": "array", "items": _plain}))
_FACTS = mapping(_fact)
_ON = nullable(flag)
_FLAGS = {
    "streams": _WHOLE, "threads": _WHOLE, "dla_core": _WHOLE, "graph": _ON, "spin": _ON,
    "transfers": _ON, "host_code": _ON, "wait": _TEXT, "buffers": _TEXT, "runtime": _TEXT,
    "library": _TEXT, "module_loading": _TEXT, "context_memory": _TEXT, "context_bytes": _BYTES,
    "persistent_cache_bytes": _BYTES, "weight_budget_bytes": _BYTES,
}  # fmt: skip


def _flags(value: Any) -> Mapping[str, Flag]:
    found: Mapping[str, Flag] = _FACTS(value)
    for name, rule in _FLAGS.items():
        held = found.get(name)
        for one in held if isinstance(held, tuple) else (held,):
            take(rule, one, name)
    return found


says(
    _flags,
    type="object",
    properties={
        name: {"anyOf": (rule, {"type": "array", "items": rule})} for name, rule in _FLAGS.items()
    },
    additionalProperties=_fact,
)


@document(frozen=True)
class Stage:
    """A line before the answer: what is done now.

    Attributes:
        left_s: Seconds that are left at least; None where that is not known.
    """

    stage: str = member(text())
    left_s: Optional[float] = member(nullable(number(0, 1e9)), absent=None, as_given=True)


@document(frozen=True)
class SegmentTimes:
    """A segment's times; a hybrid engine's device is its DLA.

    Attributes:
        lane: The plan that it is of.
        index: Its number in the plan.
        device: "GPU", "DLA0" or "DLA1".
        layers: Its layers' names.
        latency_ms: Its times.
    """

    lane: int = member(_NUMBER, absent=0, as_given=True)
    index: int = member(_NUMBER)
    device: str = member(fields.device)
    layers: Tuple[str, ...] = member(array(text()), absent=(), as_given=True)
    latency_ms: Optional[Times] = member(_TIMES, absent=None, as_given=True)


@document(frozen=True)
class MeasuredEvent:
    """A segment's run in a frame, in microseconds from the first shown frame on.

    Attributes:
        frame: Number of the shown frame.
        lane: The plan that the segment is of.
        index: The segment's number.
        device: The segment's.
        start_us: When the host's call of it began.
        duration_us: How long the call took.
        compute_start_us: When the device began; None where it has no clock.
        compute_us: How long the device was at work.
    """

    frame: int = member(fields.count, absent=0, as_given=True)
    lane: int = member(_NUMBER, absent=0, as_given=True)
    index: int = member(_NUMBER)
    device: str = member(fields.device)
    start_us: float = member(_MICRO)
    duration_us: float = member(_MICRO)
    compute_start_us: Optional[float] = member(nullable(_MOMENT), absent=None)
    compute_us: Optional[float] = member(nullable(_MICRO), absent=None)


@document(frozen=True)
class Copy:
    """A frame's copy to the device ("h2d") or back ("d2h"), in microseconds; it can begin before
    the first segment does.

    Attributes:
        frame: Number of the shown frame.
    """

    frame: int = member(fields.count, absent=0, as_given=True)
    phase: str = member(text(), absent="copy", as_given=True)
    start_us: float = member(_MOMENT)
    duration_us: float = member(_MICRO)


@document(frozen=True)
class MeasuredNode:
    """A node of a segment's engine and its microseconds by the backend's own profiler.

    Attributes:
        lane: Index of the plan variant.
        index: Index of the segment.
        mean_us: Mean microseconds of a run.
        median_us: Median microseconds of a run.
    """

    lane: int = member(_NUMBER, absent=0, as_given=True)
    index: int = member(_NUMBER)
    node: str = member(text(), absent="", as_given=True)
    op: str = member(text(), absent="", as_given=True)
    mean_us: Optional[float] = member(nullable(_MICRO), absent=None, as_given=True)
    median_us: Optional[float] = member(nullable(_MICRO), absent=None, as_given=True)


@document(frozen=True)
class Pipelined:
    """Frames in a pipeline, where each device is at another frame.

    Attributes:
        frames: How many.
        throughput_qps: Frames a second.
    """

    frames: int = member(fields.count)
    throughput_qps: float = member(fields.reading)


@document(frozen=True)
class StreamRate:
    """One of several streams.

    Attributes:
        stream: Its number.
        iterations: How often it ran.
        throughput_qps: Inferences a second.
    """

    stream: int = member(fields.count)
    iterations: int = member(fields.count)
    throughput_qps: float = member(fields.reading)


@document(frozen=True)
class ColdStart:
    """Milliseconds until the release was open, and of its first frame."""

    open_ms: Optional[float] = member(nullable(_MILLI), absent=None, as_given=True)
    first_ms: Optional[float] = member(nullable(_MILLI), absent=None, as_given=True)


@document(frozen=True)
class MemoryTaken:
    """Bytes of memory; of the device where there is one.

    Attributes:
        rss_bytes: Of the process.
        peak_rss_bytes: Its most.
        gpu_bytes: What opening and running took.
        gpu_free_bytes: Of the device; on a board both are one memory.
        gpu_total_bytes: Of the device.
    """

    rss_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    peak_rss_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    gpu_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    gpu_free_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    gpu_total_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)


@document(frozen=True)
class MeasuredSettings:
    """How it was measured, as it was asked for; ``BenchSettings`` describes the fields.

    Attributes:
        iterations: Frames to measure at least, in each stream.
        streams: How many frames are in flight at once.
        threads: Of the reference backend; 0: its choice.
        batch: Of the first input.
        shapes: The inputs', of a release for several shapes.
        data: Where the frames are from: "given", "samples" or "golden".
    """

    warmup_ms: Optional[float] = member(_READING, absent=None, as_given=True)
    duration_s: Optional[float] = member(_READING, absent=None, as_given=True)
    iterations: Optional[int] = member(nullable(fields.count), absent=None, as_given=True)
    streams: int = member(fields.count, absent=1, as_given=True)
    graph: bool = member(flag, absent=False, as_given=True)
    spin: Optional[bool] = member(nullable(flag), absent=None, as_given=True)
    transfers: bool = member(flag, absent=True, as_given=True)
    sleep_ms: float = member(fields.reading, absent=0.0, as_given=True)
    idle_ms: float = member(fields.reading, absent=0.0, as_given=True)
    monitor_ms: float = member(fields.reading, absent=0.0, as_given=True)
    threads: int = member(fields.count, absent=0, as_given=True)
    batch: int = member(fields.count, absent=1, as_given=True)
    data: str = member(text(), absent="", as_given=True)
    shapes: Mapping[str, Tuple[int, ...]] = member(mapping(shape()), absent=dict)


@document(frozen=True)
class UsedRuntime:
    """What ran the model, and the flags that took effect.

    Attributes:
        library: "tensorrt", "cudla" or "onnxruntime".
        version: The library's; None where it is not known.
        flags: By name; a list where the engines differ.
        notes: Sentences about what was requested and not done.
    """

    library: Optional[str] = member(_TEXT, absent=None, as_given=True)
    version: Optional[str] = member(_TEXT, absent=None, as_given=True)
    flags: Optional[Mapping[str, Flag]] = member(nullable(_flags), absent=None, as_given=True)
    notes: Tuple[str, ...] = member(_NOTES, absent=(), as_given=True)


@document(frozen=True)
class PlanRun:
    """A plan that trtexec ran.

    Attributes:
        command: Without the paths that the board put in.
        status: Exit status; None where it did not run or was ended.
        console: The end of what it printed.
        times: What ``--exportTimes`` wrote.
        why: Why there are no times.
    """

    command: Optional[str] = member(nullable(long_text), absent=None, as_given=True)
    status: Optional[int] = member(
        nullable(integer(-(1 << 31), 1 << 31)), absent=None, as_given=True
    )
    console: str = member(long_text, absent="", as_given=True)
    times: Optional[str] = member(nullable(text(most=1 << 26)), absent=None, as_given=True)
    why: Optional[str] = member(nullable(long_text), absent=None, as_given=True)


@document(frozen=True)
class TrtexecRun(PlanRun):
    """A segment's plan that trtexec ran.

    Attributes:
        lane: The plan that the segment is of.
        index: The segment's number in the plan.
    """

    lane: Optional[int] = member(nullable(_NUMBER), absent=None, as_given=True)
    index: Optional[int] = member(nullable(_NUMBER), absent=None, as_given=True)
    device: Optional[str] = member(nullable(fields.device), absent=None, as_given=True)


@document(frozen=True)
class TrtexecRuns:
    """What trtexec ran; ``why`` says why it ran nothing."""

    program: Optional[str] = member(_TEXT, absent=None, as_given=True)
    why: Optional[str] = member(nullable(long_text), absent=None, as_given=True)
    engines: Tuple[TrtexecRun, ...] = member(records(TrtexecRun), absent=(), as_given=True)


def _list(rule: Rule) -> Rule:
    return nullable(array(rule))


@document(frozen=True)
class Measurement:
    """What was measured: the frames, and all that was seen beside them; a value is None where
    nothing was.

    Attributes:
        clock: "cpu-measured" for the reference backend, which is no board's; "board-measured".
        backend: "reference" or "tensorrt".
        iterations: Frames of all streams.
        warmup_ms: As it was asked for.
        duration_s: From the first frame's begin to the last one's end.
        latency_ms: Of a frame.
        samples_ms: Each frame's, in the order of their measurement.
        throughput_qps: Frames a second.
        phases_ms: Times of "enqueue", "h2d", "compute", "d2h" and "host"; None for a phase that
            not every frame has.
        streams: Several streams' rates; None for one.
        segments: Each segment's times.
        segments_clock: "gpu" (CUDA events) or "cpu".
        events: The segments' runs in the last few frames.
        events_start_s: When those frames began, from the first measured frame on.
        copies: Those frames' copies.
        pipelined: Frames in flight; None for a model of one device.
        pipelined_events: The segments' runs in a few of those frames.
        pipelined_start_s: When those began, from the first measured frame on.
        release: Its name.
        settings: As they were asked for.
        cold: The first frame.
        memory: At the end.
        runtime: What ran it.
        monitor: The board's samples.
        nodes: Times of single nodes; None without a profile.
        power: Power mode and clocks.
        trtexec: The same plans by trtexec.
        environment: Versions and machine, of a loader that reports them.
    """

    clock: Optional[Clock] = member(
        nullable(choice("cpu-measured", "board-measured")), absent=None, as_given=True
    )
    backend: Optional[str] = member(_TEXT, absent=None, as_given=True)
    iterations: Optional[int] = member(nullable(fields.count), absent=None, as_given=True)
    warmup_ms: Optional[float] = member(_READING, absent=None, as_given=True)
    duration_s: Optional[float] = member(_READING, absent=None, as_given=True)
    latency_ms: Optional[Times] = member(_TIMES, absent=None, as_given=True)
    samples_ms: Optional[Tuple[float, ...]] = member(_list(_MILLI), absent=None, as_given=True)
    throughput_qps: Optional[float] = member(_READING, absent=None, as_given=True)
    phases_ms: Optional[Mapping[str, Optional[Times]]] = member(
        nullable(mapping(_TIMES, phase)), absent=None, as_given=True
    )
    streams: Optional[Tuple[StreamRate, ...]] = member(
        _list(record(StreamRate)), absent=None, as_given=True
    )
    segments: Tuple[SegmentTimes, ...] = member(records(SegmentTimes), absent=(), as_given=True)
    segments_clock: Optional[str] = member(
        nullable(choice("gpu", "cpu")), absent=None, as_given=True
    )
    events: Optional[Tuple[MeasuredEvent, ...]] = member(
        _list(record(MeasuredEvent)), absent=None, as_given=True
    )
    events_start_s: Optional[float] = member(nullable(_SECOND), absent=None, as_given=True)
    copies: Optional[Tuple[Copy, ...]] = member(_list(record(Copy)), absent=None, as_given=True)
    pipelined: Optional[Pipelined] = member(nullable(record(Pipelined)), absent=None, as_given=True)
    pipelined_events: Optional[Tuple[MeasuredEvent, ...]] = member(
        _list(record(MeasuredEvent)), absent=None, as_given=True
    )
    pipelined_start_s: Optional[float] = member(nullable(_SECOND), absent=None, as_given=True)
    release: Optional[str] = member(_TEXT, absent=None, as_given=True)
    settings: Optional[MeasuredSettings] = member(
        nullable(record(MeasuredSettings)), absent=None, as_given=True
    )
    cold: Optional[ColdStart] = member(nullable(record(ColdStart)), absent=None, as_given=True)
    memory: Optional[MemoryTaken] = member(
        nullable(record(MemoryTaken)), absent=None, as_given=True
    )
    runtime: Optional[UsedRuntime] = member(
        nullable(record(UsedRuntime)), absent=None, as_given=True
    )
    monitor: Optional[Monitor] = member(nullable(record(Monitor)), absent=None, as_given=True)
    nodes: Optional[Tuple[MeasuredNode, ...]] = member(
        _list(record(MeasuredNode)), absent=None, as_given=True
    )
    power: Optional[PowerReport] = member(nullable(record(PowerReport)), absent=None, as_given=True)
    trtexec: Optional[TrtexecRuns] = member(
        nullable(record(TrtexecRuns)), absent=None, as_given=True
    )
    environment: Optional[Mapping[str, Fact]] = member(nullable(mapping(_plain)), absent=None)
    schema: str = member(choice(SCHEMA), absent=SCHEMA, as_given=True)
