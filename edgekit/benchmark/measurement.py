"""What a board's loader measured (``edgekit.device.bench/1``, docs/board-protocol.md): its model,
the runs, copies and nodes of a few frames as traces need them, and the names of the clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from edgekit.documents import Coded, Document, Number, fault_words, place
from edgekit.errors import BoardError, DataError
from edgekit_device.benchmark.measurement import (
    LATEST_US,
    ColdStart,
    Copy,
    MeasuredEvent,
    MeasuredNode,
    MemoryTaken,
    Pipelined,
    SegmentTimes,
    StreamRate,
    TrtexecRuns,
)
from edgekit_device.board.power import PowerReport
from edgekit_device.board.samples import Monitor

BOARD_MEASURED: Final = "board-measured"
CPU_MEASURED: Final = "cpu-measured"
PREDICTED: Final = "predicted"
CPU_PLACE = "a CPU, reference backend (not a board time)"  # a board has one, too
CLOCKS = (CPU_MEASURED, BOARD_MEASURED, PREDICTED)

Clock = Literal["predicted", "cpu-measured", "board-measured"]
Second = Annotated[float, Field(ge=0, le=LATEST_US / 1e6)]
# a month: what is longer is no latency, and its square may be no number
Milli = Annotated[float, Field(ge=0, lt=3e9)]
Times = dict[str, Milli]
Fact = bool | int | float | str | None
_TIME = ("_us", "_s")
_NO_TIME = ("codec", "finite_number", "float_type", "greater_than_equal", "less_than_equal")


class Settings(Document):
    """How it was measured, as it was asked for: ``bench`` of the configuration."""

    warmup_ms: Number | None = None
    duration_s: Number | None = None
    iterations: int | None = None
    streams: int = 1
    graph: bool = False
    spin: bool | None = None
    transfers: bool = True
    sleep_ms: Number = 0.0
    idle_ms: Number = 0.0
    monitor_ms: Number = 0.0
    threads: int = 0
    batch: int = 1
    data: str = Field("", description="given, samples or golden: where the frames are from")


class Runtime(Document):
    """What ran it, and the flags that took effect."""

    library: str | None = None
    version: str | None = None
    flags: dict[str, Fact | list[Fact]] | None = Field(
        None, description="a list where the engines differ"
    )
    notes: list[str] = Field([])


class Measured(Document):
    """What a loader and a bench document have in common; what another backend lacks is null."""

    clock: Clock | None = None
    backend: str | None = None
    iterations: int | None = None
    warmup_ms: Number | None = None
    duration_s: Number | None = None
    latency_ms: Times | None = Field(None, description="min, mean, median, p50 to p999, max")
    throughput_qps: Number | None = None
    pipelined: Annotated[Pipelined, Coded()] | None = None
    segments: list[Annotated[SegmentTimes, Coded()]] = Field([])
    nodes: list[Annotated[MeasuredNode, Coded()]] | None = None
    samples_ms: list[Milli] | None = Field(None, description="in the order of their measurement")
    segments_clock: str | None = Field(None, description="gpu (CUDA events) or cpu")
    settings: Settings | None = None
    phases_ms: dict[str, Times | None] | None = None
    streams: list[Annotated[StreamRate, Coded()]] | None = None
    cold: Annotated[ColdStart, Coded()] | None = None
    memory: Annotated[MemoryTaken, Coded()] | None = None
    monitor: Annotated[Monitor, Coded()] | None = None
    power: Annotated[PowerReport, Coded()] | None = None
    runtime: Runtime | None = None
    environment: dict[str, Fact] | None = Field(None, description="release, versions, machine")


class Measurement(Measured):
    """What a loader measures."""

    schema_: str = Field("edgekit.device.bench/1", alias="schema")
    release: str | None = None
    trtexec: Annotated[TrtexecRuns, Coded()] | None = None
    events: list[Annotated[MeasuredEvent, Coded()]] | None = Field(
        None, description="a few frames, one after the other"
    )
    events_start_s: Second | None = None
    pipelined_events: list[Annotated[MeasuredEvent, Coded()]] | None = Field(
        None, description="frames in flight"
    )
    pipelined_start_s: Second | None = None
    copies: list[Annotated[Copy, Coded()]] | None = None


_Kind = TypeVar("_Kind", bound=Measured)


def measurement_of_board(answer: object) -> Measurement:
    """Returns what a board's command ``bench`` answered.

    Raises:
        BoardError: "board.protocol": it is no measurement.
    """
    try:
        return Measurement.model_validate(answer)
    except ValidationError as error:
        raise malformed(error) from error


def malformed(error: ValidationError) -> BoardError:
    """Returns the error of a measurement that does not have the loader's form."""
    return BoardError(
        f"the measurement does not have the form that edgekit_device writes ({fault_words(error)})",
        code="board.protocol",
        hint="run `edgekit bench` again; report it if it happens again",
    )


def read_measurement(document: object, kind: type[_Kind]) -> _Kind:
    """Returns the measurement of a file, as its loader wrote it or as a bench document.

    Raises:
        DataError: "trace.time", a time is none (negative, NaN, beyond any measurement), without
            which a trace would be another run's; "trace.form" for anything else.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        hint = "run edgekit bench again; report it if it happens again"
        where, value = place(first), first["input"]
        if first["type"] == "codec" and (key := first["ctx"]["where"]) in value:
            where, value = f"{where}.{key}", value[key]
        if first["type"] in _NO_TIME and where.endswith(_TIME):
            message = f"{where} is {value!r:.40}, which is not a valid time"
            raise DataError(message, code="trace.time", hint=hint) from None
        message = (
            "the measurement does not have the form that edgekit_device writes: "
            f"{fault_words(error)}"
        )
        raise DataError(message, code="trace.form", hint=hint) from None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One segment's run in one frame; microseconds from the first shown frame's start.

    Attributes:
        frame: Number.
        lane: Plan.
        segment: Number.
        device: Of the segment; a hybrid engine's is its DLA.
        start_us: When the device began; it can be negative where the clocks of both differ.
        duration_us: How long it was at work.
        call_us: When the host's call of it began and ended.
    """

    frame: int
    lane: int
    segment: int
    device: str
    start_us: float
    duration_us: float
    call_us: tuple[float, float]

    def later(self, us: float) -> MeasuredRun:
        """Returns the same, so much later."""
        begin, end = self.call_us
        return replace(self, start_us=self.start_us + us, call_us=(begin + us, end + us))


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node of a segment's engine and its time under the backend's own profiler: the median of
    the profiled runs.
    """

    node: str
    us: float
    op: str = ""


def _from_segments(measurement: Measured) -> list[MeasuredRun]:
    """Lays the segments' mean times one after the other, as one frame."""
    found, start = [], 0.0
    for one in measurement.segments:
        mean = (one.latency_ms or {}).get("mean")
        if mean is not None:
            # lanes are other plans: each is a frame of its own
            call = (start, start + 1000 * mean)
            found.append(
                MeasuredRun(one.lane, one.lane, one.index, one.device, start, 1000 * mean, call)
            )  # fmt: skip
            start += 1000 * mean
    return found


def runs(measurement: Measurement) -> tuple[MeasuredRun, ...]:
    """Returns the segments' runs of a few frames one after the other, sorted by start.

    They are the segments' means where the loader reports no frame.
    """
    found = [_run(event, measurement.copies or ()) for event in measurement.events or ()]
    return _sorted(found or _from_segments(measurement))


def runs_in_flight(measurement: Measurement) -> tuple[MeasuredRun, ...]:
    """Returns the segments' runs of a few frames in flight, sorted by start."""
    return _sorted([_run(event, ()) for event in measurement.pipelined_events or ()])


def _sorted(found: list[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    return tuple(sorted(found, key=lambda run: (run.start_us, run.frame, run.segment)))


def _run(event: MeasuredEvent, copies: Sequence[Copy]) -> MeasuredRun:
    call = (event.start_us, event.start_us + event.duration_us)
    begin, spent = event.compute_start_us, event.compute_us
    if begin is None or spent is None:
        begin, spent = _between(call, [copy for copy in copies if copy.frame == event.frame])
    return MeasuredRun(event.frame, event.lane, event.index, event.device, begin, spent, call)


def _between(call: tuple[float, float], moved: list[Copy]) -> tuple[float, float]:
    """Returns when a device can have been at work within the host's call.

    It begins when what is copied to it during the call has come, and ends before the copies back.
    """
    begin, end = call
    within = [copy for copy in moved if call[0] <= copy.start_us < call[1]]
    begin = max((c.start_us + c.duration_us for c in within if c.phase == "h2d"), default=begin)
    end = min((copy.start_us for copy in within if copy.phase == "d2h"), default=end)
    return (begin, end - begin) if begin <= end else (call[0], call[1] - call[0])


def node_times(measurement: Measured) -> dict[tuple[int, int], tuple[NodeTime, ...]]:
    """Returns the profiled nodes by (lane, segment), in running order; empty without a profile."""
    found: dict[tuple[int, int], list[NodeTime]] = {}
    for one in measurement.nodes or ():
        if one.median_us is not None:
            time = NodeTime(one.node, one.median_us, one.op)
            found.setdefault((one.lane, one.index), []).append(time)
    return {key: tuple(nodes) for key, nodes in found.items()}


def members(measurement: Measured) -> dict[tuple[int, int], frozenset[str]]:
    """Returns the layers of each segment by (lane, segment), as far as the loader reports them."""
    return {(one.lane, one.index): frozenset(one.layers) for one in measurement.segments}


def copies(measurement: Measurement) -> tuple[Copy, ...]:
    """Returns the shown frames' copies, sorted by start; ``start_us`` can be negative."""
    return tuple(sorted(measurement.copies or (), key=lambda copy: copy.start_us))


def in_flight_after_us(measurement: Measurement) -> float | None:
    """Returns when the shown frames in flight began, from the first shown frame alone on.

    None without a frame alone or without frames in flight.

    Raises:
        DataError: "trace.time": before them, where nothing can be.
    """
    alone, flight = measurement.events_start_s, measurement.pipelined_start_s
    if alone is None or flight is None:
        return None
    if flight < alone:
        raise DataError(
            f"pipelined_start_s is {flight!r}, which is not a valid time",
            code="trace.time", hint="run edgekit bench again; report it if it happens again",
        )  # fmt: skip
    return 1e6 * (flight - alone)
