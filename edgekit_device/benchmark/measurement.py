"""``edgekit.device.bench/1``: the measurement of ``bench`` (docs/board-protocol.md) as values."""

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
    shape,
    take,
    text,
    with_schema,
)
from edgekit_device.protocol.fields import Clock

SCHEMA = "edgekit.device.bench/1"
LATEST_US = 1e12
"""No measurement is longer than these 11 days, and a double still holds their nanoseconds."""

#: Milliseconds by statistic: min, mean, median, p50 to p999, max.
Times = Mapping[str, float]
#: A flag of a runtime: a tuple if the engines differ.
Fact = Union[bool, int, float, str, None]
Flag = Union[Fact, Tuple[Fact, ...]]

_MICRO = number(0, LATEST_US)
_MOMENT = number(-LATEST_US, LATEST_US)
_SECOND = number(0, LATEST_US / 1e6)
# a month: a longer time is not a latency, and its square may overflow
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
_ON = nullable(flag)
_FLAGS = {
    "streams": _WHOLE,
    "threads": _WHOLE,
    "dla_core": _WHOLE,
    "graph": _ON,
    "spin": _ON,
    "transfers": _ON,
    "host_code": _ON,
    "wait": _TEXT,
    "buffers": _TEXT,
    "runtime": _TEXT,
    "library": _TEXT,
    "module_loading": _TEXT,
    "context_memory": _TEXT,
    "context_bytes": _BYTES,
    "persistent_cache_bytes": _BYTES,
    "weight_budget_bytes": _BYTES,
}


def _flag(value: Any) -> Flag:
    if isinstance(value, list):
        return tuple(_flag_value(item) for item in value)
    return _flag_value(value)


def _flag_value(value: Any) -> Fact:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        fail("", "expected a flag's value")
    found: Fact = value
    return found


with_schema(_flag_value, type=("boolean", "number", "string", "null"))
with_schema(_flag, anyOf=(_flag_value, {"type": "array", "items": _flag_value}))
_FACTS = mapping(_flag)


def _flags(value: Any) -> Mapping[str, Flag]:
    found: Mapping[str, Flag] = _FACTS(value)
    for name, rule in _FLAGS.items():
        held = found.get(name)
        for item in held if isinstance(held, tuple) else (held,):
            take(rule, item, name)
    return found


with_schema(
    _flags,
    type="object",
    properties={
        name: {"anyOf": (rule, {"type": "array", "items": rule})} for name, rule in _FLAGS.items()
    },
    additionalProperties=_flag,
)


@document(frozen=True)
class Stage:
    """A line before the answer: the current stage.

    Attributes:
        left_s: Least remaining time in seconds; None if unknown.
    """

    stage: str = member(text())
    left_s: Optional[float] = member(nullable(number(0, 1e9)), absent=None, as_given=True)


@document(frozen=True)
class SegmentTimes:
    """A segment's times; a hybrid engine's device is its DLA.

    Attributes:
        lane: Its lane (plan).
        index: Its number in the plan.
        device: "GPU", "DLA0" or "DLA1".
        layers: Its layers' names.
        latency_ms: Statistics of its times.
    """

    lane: int = member(_NUMBER, absent=0, as_given=True)
    index: int = member(_NUMBER)
    device: str = member(fields.device)
    layers: Tuple[str, ...] = member(array(text()), absent=(), as_given=True)
    latency_ms: Optional[Times] = member(_TIMES, absent=None, as_given=True)


@document(frozen=True)
class MeasuredEvent:
    """A segment's run in a frame, in microseconds from the first shown frame.

    Attributes:
        frame: Number of the shown frame.
        lane: The segment's lane (plan).
        index: The segment's number.
        device: The segment's device.
        start_us: Start of the host's call.
        duration_us: Duration of the call.
        compute_start_us: Start of the device's work; None if the device has no clock.
        compute_us: Duration of the device's work.
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
    the first segment.

    Attributes:
        frame: Number of the shown frame.
    """

    frame: int = member(fields.count, absent=0, as_given=True)
    phase: str = member(text(), absent="copy", as_given=True)
    start_us: float = member(_MOMENT)
    duration_us: float = member(_MICRO)


@document(frozen=True)
class MeasuredNode:
    """A node of a segment's engine and its times by the backend's own profiler.

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
    """Frames in a pipeline, in which each device works on another frame.

    Attributes:
        frames: Number of frames.
        throughput_qps: Frames per second.
    """

    frames: int = member(fields.count)
    throughput_qps: float = member(fields.reading)


@document(frozen=True)
class StreamRate:
    """The rate of a stream, if there are several.

    Attributes:
        stream: Its number.
        iterations: Number of its runs.
        throughput_qps: Inferences per second.
    """

    stream: int = member(fields.count)
    iterations: int = member(fields.count)
    throughput_qps: float = member(fields.reading)


@document(frozen=True)
class ColdStart:
    """Milliseconds for opening the release, and for its first frame."""

    open_ms: Optional[float] = member(nullable(_MILLI), absent=None, as_given=True)
    first_ms: Optional[float] = member(nullable(_MILLI), absent=None, as_given=True)


@document(frozen=True)
class MemoryTaken:
    """Bytes of memory of the process and, if there is a GPU, of the device.

    Attributes:
        rss_bytes: Resident memory of the process.
        peak_rss_bytes: Largest resident memory of the process.
        gpu_bytes: Device memory that opening and running took.
        gpu_free_bytes: Free memory of the device; on a board CPU and GPU share the memory.
        gpu_total_bytes: Total memory of the device.
    """

    rss_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    peak_rss_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    gpu_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    gpu_free_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)
    gpu_total_bytes: Optional[int] = member(_BYTES, absent=None, as_given=True)


@document(frozen=True)
class MeasuredSettings:
    """The requested settings of the measurement; ``BenchSettings`` describes the fields.

    Attributes:
        iterations: Least number of frames to measure, in each stream.
        streams: Number of frames in flight at once.
        threads: Threads of the reference backend; 0 for its choice.
        batch: Batch size of the first input.
        shapes: The inputs' shapes, of a release for several shapes.
        data: Source of the frames: "given", "samples" or "golden".
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
    """The runtime of the model, and the flags that took effect.

    Attributes:
        library: "tensorrt", "cudla" or "onnxruntime".
        version: The library's version; None if unknown.
        flags: Flags by name; a list if the engines differ.
        notes: Sentences about requested settings that did not take effect.
    """

    library: Optional[str] = member(_TEXT, absent=None, as_given=True)
    version: Optional[str] = member(_TEXT, absent=None, as_given=True)
    flags: Optional[Mapping[str, Flag]] = member(nullable(_flags), absent=None, as_given=True)
    notes: Tuple[str, ...] = member(_NOTES, absent=(), as_given=True)


@document(frozen=True)
class PlanRun:
    """A plan that trtexec ran.

    Attributes:
        command: The command without the board's paths.
        status: Exit status; None if it did not run or was ended.
        console: The end of its output.
        times: The file from ``--exportTimes``.
        why: Reason for missing times.
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
        lane: The segment's lane (plan).
        index: The segment's number in the plan.
    """

    lane: Optional[int] = member(nullable(_NUMBER), absent=None, as_given=True)
    index: Optional[int] = member(nullable(_NUMBER), absent=None, as_given=True)
    device: Optional[str] = member(nullable(fields.device), absent=None, as_given=True)


@document(frozen=True)
class TrtexecRuns:
    """trtexec's runs; ``why`` is the reason if there are none."""

    program: Optional[str] = member(_TEXT, absent=None, as_given=True)
    why: Optional[str] = member(nullable(long_text), absent=None, as_given=True)
    engines: Tuple[TrtexecRun, ...] = member(records(TrtexecRun), absent=(), as_given=True)


def _list(rule: Rule) -> Rule:
    return nullable(array(rule))


@document(frozen=True)
class Measurement:
    """A measurement of frames, with memory, runtime, board samples and more; a value is None if it
    was not measured.

    Attributes:
        clock: "board-measured"; "cpu-measured" for the reference backend, which is not a board.
        backend: "reference" or "tensorrt".
        iterations: Number of frames of all streams.
        warmup_ms: Requested milliseconds of warm-up.
        duration_s: Seconds from the first frame's start to the last frame's end.
        latency_ms: Statistics of a frame's latency.
        samples_ms: Each frame's latency, in the order of measurement.
        throughput_qps: Frames per second.
        phases_ms: Times of "enqueue", "h2d", "compute", "d2h" and "host"; None for a phase that
            not every frame has.
        streams: Rates of several streams; None for a single stream.
        segments: Each segment's times.
        segments_clock: "gpu" (CUDA events) or "cpu".
        events: The segments' runs in the last few frames.
        events_start_s: Start of those frames, in seconds from the first measured frame.
        copies: Those frames' copies.
        pipelined: Rate of frames in flight; None for a model with a single device.
        pipelined_events: The segments' runs in a few frames in flight.
        pipelined_start_s: Start of those frames, in seconds from the first measured frame.
        release: The release's name.
        settings: The requested settings.
        cold: Times of opening and of the first frame.
        memory: Memory at the end.
        runtime: The runtime and its flags.
        monitor: The board's samples.
        nodes: Times of single nodes; None without a profile.
        power: Power mode and clocks.
        trtexec: trtexec's runs of the same plans.
        environment: Versions and machine, from a loader that reports them.
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
    environment: Optional[Mapping[str, Fact]] = member(nullable(mapping(_flag_value)), absent=None)
    schema: str = member(choice(SCHEMA), absent=SCHEMA, as_given=True)
