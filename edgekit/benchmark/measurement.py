"""A board loader's measurement (``edgekit.device.bench/1``, docs/board-protocol.md): the runs,
copies and nodes of a few frames for traces, and the names of the clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from edgekit.documents import Ruled
from edgekit.errors import DataError
from edgekit_device.benchmark.measurement import (
    Copy,
    MeasuredEvent,
    Measurement,
    statistic,
)
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read

BOARD_MEASURED: Final = "board-measured"
CPU_MEASURED: Final = "cpu-measured"
PREDICTED: Final = "predicted"
CPU_PLACE = "a CPU, reference backend (not a board time)"  # also for a board's CPU
CLOCKS = (CPU_MEASURED, BOARD_MEASURED, PREDICTED)

# a month: a longer time is no latency, and its square may overflow
Milli = Annotated[float, Field(ge=0, lt=3e9)]
Times = dict[Annotated[str, Ruled(statistic)], Milli]
_TIME = ("_us", "_s")


def read_measurement(document: object) -> Measurement:
    """Returns the measurement in a file as its loader wrote it.

    Raises:
        DataError: The error of ``unreadable_error``.
    """
    try:
        return read(Measurement, document)
    except DeviceError as error:
        raise unreadable_error(error.where, error.message) from None


def unreadable_error(where: str, why: str) -> DataError:
    """Returns the error of a measurement that cannot be read: "trace.time" for an invalid time
    (negative, NaN, beyond any measurement), without which a trace would be of another run;
    "trace.form" for anything else.
    """
    hint = "run edgekit bench again; report it if it happens again"
    if where.endswith(_TIME):
        return DataError(f"{where} is not a valid time: {why}", code="trace.time", hint=hint)
    return DataError(
        "the measurement does not have the form that edgekit_device writes: "
        + ": ".join(filter(None, (where, why))),
        code="trace.form",
        hint=hint,
    )


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A segment's run in a frame; microseconds from the first shown frame's start.

    Attributes:
        frame: The frame's number.
        lane: Index of the plan.
        segment: The segment's number.
        device: The segment's device; for a hybrid engine, its DLA.
        start_us: Start on the device; negative if the clocks of host and device differ.
        duration_us: Duration of the work.
        call_us: Begin and end of the host's call.
    """

    frame: int
    lane: int
    segment: int
    device: str
    start_us: float
    duration_us: float
    call_us: tuple[float, float]

    def later(self, us: float) -> MeasuredRun:
        """Returns the run, ``us`` microseconds later."""
        begin, end = self.call_us
        return replace(self, start_us=self.start_us + us, call_us=(begin + us, end + us))


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of a segment's engine and its time under the backend's profiler: the median of the
    profiled runs.
    """

    node: str
    us: float
    op: str = ""


def _from_segments(measurement: Measurement) -> list[MeasuredRun]:
    """Places the segments' mean times one after the other, as a single frame."""
    found, start = [], 0.0
    for segment in measurement.segments:
        mean = (segment.latency_ms or {}).get("mean")
        if mean is not None:
            # lanes are other plans: each has a separate frame
            call = (start, start + 1000 * mean)
            found.append(
                MeasuredRun(
                    segment.lane,
                    segment.lane,
                    segment.index,
                    segment.device,
                    start,
                    1000 * mean,
                    call,
                )
            )
            start += 1000 * mean
    return found


def runs(measurement: Measurement) -> tuple[MeasuredRun, ...]:
    """Returns the segments' runs of a few frames one after the other, sorted by start.

    If the loader reports no frame, they are the segments' means.
    """
    found = [_run(event, measurement.copies or ()) for event in measurement.events or ()]
    return _sort_runs(found or _from_segments(measurement))


def runs_in_flight(measurement: Measurement) -> tuple[MeasuredRun, ...]:
    """Returns the segments' runs of a few frames in flight, sorted by start."""
    return _sort_runs([_run(event, ()) for event in measurement.pipelined_events or ()])


def _sort_runs(found: list[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    return tuple(sorted(found, key=lambda run: (run.start_us, run.frame, run.segment)))


def _run(event: MeasuredEvent, copies: Sequence[Copy]) -> MeasuredRun:
    call = (event.start_us, event.start_us + event.duration_us)
    begin, spent = event.compute_start_us, event.compute_us
    # without the device's own times it worked somewhere within the host's call
    if begin is None or spent is None:
        begin, spent = _device_interval(
            call, [copy for copy in copies if copy.frame == event.frame]
        )
    return MeasuredRun(event.frame, event.lane, event.index, event.device, begin, spent, call)


def _device_interval(call: tuple[float, float], moved: list[Copy]) -> tuple[float, float]:
    """Returns the interval in the host's call in which the device can have worked.

    It begins after the copies to the device, and ends before the copies back.
    """
    begin, end = call
    within = [copy for copy in moved if call[0] <= copy.start_us < call[1]]
    begin = max((c.start_us + c.duration_us for c in within if c.phase == "h2d"), default=begin)
    end = min((copy.start_us for copy in within if copy.phase == "d2h"), default=end)
    return (begin, end - begin) if begin <= end else (call[0], call[1] - call[0])


def node_times(measurement: Measurement) -> dict[tuple[int, int], tuple[NodeTime, ...]]:
    """Returns the profiled nodes by (lane, segment), in running order; empty without a profile."""
    found: dict[tuple[int, int], list[NodeTime]] = {}
    for node in measurement.nodes or ():
        if node.median_us is not None:
            # the median: one slow run under the profiler is not the layer's time
            time = NodeTime(node.node, node.median_us, node.op)
            found.setdefault((node.lane, node.index), []).append(time)
    return {key: tuple(nodes) for key, nodes in found.items()}


def members(measurement: Measurement) -> dict[tuple[int, int], frozenset[str]]:
    """Returns the layers of each segment by (lane, segment), if the loader reports them."""
    return {
        (segment.lane, segment.index): frozenset(segment.layers) for segment in measurement.segments
    }


def copies(measurement: Measurement) -> tuple[Copy, ...]:
    """Returns the shown frames' copies, sorted by start; ``start_us`` can be negative."""
    return tuple(sorted(measurement.copies or (), key=lambda copy: copy.start_us))


def in_flight_after_us(measurement: Measurement) -> float | None:
    """Returns the start of the shown frames in flight, from the first frame shown alone.

    None without a frame alone or without frames in flight.

    Raises:
        DataError: "trace.time": they begin earlier, which is impossible.
    """
    alone, flight = measurement.events_start_s, measurement.pipelined_start_s
    if alone is None or flight is None:
        return None
    if flight < alone:
        raise DataError(
            f"pipelined_start_s is {flight!r}, which is not a valid time",
            code="trace.time",
            hint="run edgekit bench again; report it if it happens again",
        )
    return 1e6 * (flight - alone)
