"""Reads the ``edgekit.device.bench/1`` document of the board's loader (docs/board-protocol.md), and
names the clocks that measured and predicted times go by. A part that is absent or null (another
backend, no profile) is read as empty; a time that is none (negative, NaN, beyond any measurement)
is an error: a trace without it would be another run's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgekit.errors import DataError

BOARD_MEASURED = "board-measured"
CPU_MEASURED = "cpu-measured"
PREDICTED = "predicted"
CPU_PLACE = "a CPU, reference backend (not a board time)"  # a board has one, too
CLOCKS = (CPU_MEASURED, BOARD_MEASURED, PREDICTED)
LATEST_US = 1e12
"""No measurement is longer than these 11 days, and a double still holds their nanoseconds."""


@dataclass(frozen=True, slots=True)
class Run:
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

    def later(self, us: float) -> Run:
        """Returns the same, so much later."""
        begin, end = self.call_us
        return replace(self, start_us=self.start_us + us, call_us=(begin + us, end + us))


@dataclass(frozen=True, slots=True)
class Copy:
    """A frame's copy to the device ("h2d") or back; it can begin before the first segment does."""

    frame: int
    phase: str
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node of a segment's engine and its time under the backend's own profiler.

    It is the median of the profiled runs; an older loader reports their mean alone.
    """

    node: str
    us: float
    op: str = ""


def _time(value: object, name: str, least: float = 0.0) -> float | None:
    """Returns microseconds; None for null."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= LATEST_US:  # type: ignore[operator]
        raise DataError(
            f"{name} is {value!r:.40}, which is no time of a measurement", code="trace.time",
            hint="run edgekit bench again; report it if it stays",
        )  # fmt: skip
    return float(value)  # type: ignore[arg-type]


def _entries(measurement: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the objects of a list, each with its place in the document."""
    for number, entry in enumerate(measurement.get(key) or ()):
        if isinstance(entry, Mapping):
            yield f"{key}[{number}]", entry


def _from_segments(measurement: Mapping[str, Any]) -> list[Run]:
    """Lays the segments' mean times one after the other, as one frame."""
    found, start = [], 0.0
    for at, entry in _entries(measurement, "segments"):
        mean = _time((entry.get("latency_ms") or {}).get("mean"), f"{at}.latency_ms.mean")
        if mean is None:
            continue
        duration = 1000 * mean
        lane, index = int(entry.get("lane") or 0), int(entry["index"])
        # lanes are other plans: each is a frame of its own
        call = (start, start + duration)
        found.append(Run(lane, lane, index, str(entry["device"]), start, duration, call))
        start += duration
    return found


def runs(measurement: Mapping[str, Any], key: str = "events") -> tuple[Run, ...]:
    """Returns the segments' runs of a few frames, sorted by start.

    Args:
        measurement: The loader's document.
        key: "events" (frames one after the other; the segments' means where there are none) or
            "pipelined_events" (several frames in flight).

    Raises:
        DataError: "trace.time".
    """
    found = []
    moved = copies(measurement) if key == "events" else ()
    for at, entry in _entries(measurement, key):
        start = _time(entry.get("start_us"), f"{at}.start_us")
        duration = _time(entry.get("duration_us"), f"{at}.duration_us")
        if start is not None and duration is not None:
            frame, call = int(entry.get("frame") or 0), (start, start + duration)
            begin = _time(entry.get("compute_start_us"), f"{at}.compute_start_us", -LATEST_US)
            spent = _time(entry.get("compute_us"), f"{at}.compute_us")
            if begin is None or spent is None:
                begin, spent = _between(call, [copy for copy in moved if copy.frame == frame])
            found.append(Run(
                frame, int(entry.get("lane") or 0), int(entry["index"]), str(entry["device"]),
                begin, spent, call,
            ))  # fmt: skip
    if not found and key == "events":
        found = _from_segments(measurement)
    return tuple(sorted(found, key=lambda run: (run.start_us, run.frame, run.segment)))


def _between(call: tuple[float, float], moved: list[Copy]) -> tuple[float, float]:
    """Returns when a device can have been at work: an older loader reports only the host's call.

    It begins when what is copied to it during the call has come, and ends before the copies back.
    """
    begin, end = call
    within = [copy for copy in moved if call[0] <= copy.start_us < call[1]]
    begin = max((c.start_us + c.duration_us for c in within if c.phase == "h2d"), default=begin)
    end = min((copy.start_us for copy in within if copy.phase == "d2h"), default=end)
    return (begin, end - begin) if begin <= end else (call[0], call[1] - call[0])


def node_times(measurement: Mapping[str, Any]) -> dict[tuple[int, int], tuple[NodeTime, ...]]:
    """Returns the profiled nodes by (lane, segment), in running order; empty without a profile.

    Raises:
        DataError: "trace.time".
    """
    found: dict[tuple[int, int], list[NodeTime]] = {}
    for at, entry in _entries(measurement, "nodes"):
        statistic = "median_us" if entry.get("median_us") is not None else "mean_us"
        us = _time(entry.get(statistic), f"{at}.{statistic}")
        if us is not None:
            key = (int(entry.get("lane") or 0), int(entry["index"]))
            node = NodeTime(str(entry.get("node") or ""), us, str(entry.get("op") or ""))
            found.setdefault(key, []).append(node)
    return {key: tuple(nodes) for key, nodes in found.items()}


def members(measurement: Mapping[str, Any]) -> dict[tuple[int, int], frozenset[str]]:
    """Returns the layers of each segment by (lane, segment), as far as the loader reports them."""
    return {
        (int(entry.get("lane") or 0), int(entry["index"])): frozenset(map(str, entry["layers"]))
        for _, entry in _entries(measurement, "segments")
        if entry.get("layers") and "index" in entry
    }


def copies(measurement: Mapping[str, Any]) -> tuple[Copy, ...]:
    """Returns the shown frames' copies, sorted by start; ``start_us`` can be negative.

    Raises:
        DataError: "trace.time".
    """
    found = []
    for at, entry in _entries(measurement, "copies"):
        begin = _time(entry.get("start_us"), f"{at}.start_us", -LATEST_US)
        duration = _time(entry.get("duration_us"), f"{at}.duration_us")
        if begin is not None and duration is not None:
            frame, phase = entry.get("frame"), str(entry.get("phase") or "copy")
            found.append(Copy(frame if type(frame) is int else 0, phase, begin, duration))
    return tuple(sorted(found, key=lambda copy: copy.start_us))


def in_flight_after_us(measurement: Mapping[str, Any]) -> float | None:
    """Returns when the shown frames in flight began, from the first shown frame alone on.

    None for an older loader, which does not report "pipelined_start_s".

    Raises:
        DataError: "trace.time": before them, where nothing can be.
    """
    alone, flight = measurement.get("events_start_s"), measurement.get("pipelined_start_s")
    if alone is None or flight is None:
        return None
    first = _time(alone, "events_start_s") or 0.0
    later = _time(flight, "pipelined_start_s", first) or 0.0
    return 1e6 * (later - first)
