"""What a board's loader measured (``edgekit.device.bench/1``, docs/board-protocol.md): the runs,
copies and nodes of a few frames as traces need them, and the names of the clocks.
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
CPU_PLACE = "a CPU, reference backend (not a board time)"  # a board has one, too
CLOCKS = (CPU_MEASURED, BOARD_MEASURED, PREDICTED)

# a month: what is longer is no latency, and its square may be no number
Milli = Annotated[float, Field(ge=0, lt=3e9)]
Times = dict[Annotated[str, Ruled(statistic)], Milli]
_TIME = ("_us", "_s")


def read_measurement(document: object) -> Measurement:
    """Returns the measurement of a file, as its loader wrote it.

    Raises:
        DataError: As ``unreadable`` returns it.
    """
    try:
        return read(Measurement, document)
    except DeviceError as error:
        raise unreadable(error.where, error.message) from None


def unreadable(where: str, why: str) -> DataError:
    """Returns the error of a measurement that cannot be read: "trace.time" where a time is none
    (negative, NaN, beyond any measurement), without which a trace would be another run's;
    "trace.form" for anything else.
    """
    hint = "run edgekit bench again; report it if it happens again"
    if where.endswith(_TIME):
        return DataError(f"{where} is not a valid time: {why}", code="trace.time", hint=hint)
    return DataError(
        "the measurement does not have the form that edgekit_device writes: "
        + ": ".join(filter(None, (where, why))),
        code="trace.form", hint=hint,
    )  # fmt: skip


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


def _from_segments(measurement: Measurement) -> list[MeasuredRun]:
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


def node_times(measurement: Measurement) -> dict[tuple[int, int], tuple[NodeTime, ...]]:
    """Returns the profiled nodes by (lane, segment), in running order; empty without a profile."""
    found: dict[tuple[int, int], list[NodeTime]] = {}
    for one in measurement.nodes or ():
        if one.median_us is not None:
            time = NodeTime(one.node, one.median_us, one.op)
            found.setdefault((one.lane, one.index), []).append(time)
    return {key: tuple(nodes) for key, nodes in found.items()}


def members(measurement: Measurement) -> dict[tuple[int, int], frozenset[str]]:
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
