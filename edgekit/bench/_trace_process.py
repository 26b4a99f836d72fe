"""One process of a trace: its clock, its tracks, its slices, counters, marks and flows.

Phases of the "Trace Event Format" (Chromium, catapult project): complete events "X", metadata
"M", counters "C", instants "i", and flows "s", "t", "f", which bind to the slice around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.bench._types import LATEST_US
from edgekit.errors import DataError

__all__ = ["HOST", "Event", "Process", "meta", "nanoseconds"]

Event = dict[str, Any]
Keyed = tuple[int, int, int, int, Event]
HOST = "host"


def nanoseconds(microseconds: float) -> int:
    """Returns whole nanoseconds; slices are kept in these, so that they nest exactly.

    Raises:
        DataError: "trace.time": it is no time of a measurement.
    """
    if not -LATEST_US <= microseconds <= LATEST_US:  # nan is neither
        raise _no_time(f"{microseconds!r:.40} us")
    return round(microseconds * 1000)


def _no_time(what: str) -> DataError:
    return DataError(
        f"{what} is no time of a measurement", code="trace.time",
        hint="measure again; report it if it stays",
    )  # fmt: skip


def meta(kind: str, pid: int, tid: int, clock: str, **args: Any) -> Event:
    """Returns a metadata event: the name or the place of a process or a track."""
    return {
        "name": kind, "cat": "__metadata", "ph": "M", "ts": 0, "pid": pid, "tid": tid,
        "args": {**args, "clock": clock},
    }  # fmt: skip


class Process:
    """One process of the trace; it has a track for the host, the GPU and every DLA core.

    Args:
        pid: Process number; also its place in the viewer.
        name: Process name.
        clock: Goes into every event's ``args``, but those of counters: they hold numbers only.
        dla_cores: DLA cores of the target; None for a process that has no tracks of its own.
    """

    def __init__(self, pid: int, name: str, clock: str, dla_cores: int | None) -> None:
        self.pid, self.name, self.clock = pid, name, clock
        devices = [f"DLA{core}" for core in range(dla_cores or 0)]
        self._tracks = [] if dla_cores is None else [HOST, "GPU", *devices]
        self._ends: dict[str, int] = {}
        self._events: list[Keyed] = []
        self._flows = 0
        self.label = ""

    def free_track(self, device: str, start: int) -> str:
        """Returns the device's track, or a further one of it where a slice is still running."""
        track, number = device, 1
        while self._ends.get(track, 0) > start:
            number += 1
            track = f"{device} ({number})"
        return track

    def add(self, track: str, name: str, start: int, end: int, category: str, **args: Any) -> None:
        """Adds a slice from ``start`` to ``end`` nanoseconds.

        Raises:
            DataError: "trace.time": it begins before the trace, or ends before it begins.
        """
        if not 0 <= start <= end:
            raise _no_time(f"{name}: {start} to {end} ns")
        self._ends[track] = max(end, self._ends.get(track, 0))
        # equal starts: the longer one is the parent; equal times: as they were added
        self._put(start, start - end, {
            "name": name, "cat": category, "ph": "X", "ts": start / 1000,
            "dur": (end - start) / 1000, "pid": self.pid, "tid": self._tid(track),
            "args": {"clock": self.clock, **args},
        })  # fmt: skip

    def count(self, name: str, at: int, values: Mapping[str, float]) -> None:
        """Adds a sample of a counter; each value is a series of its own in the graph."""
        self._put(at, 1, {
            "name": name, "cat": "counter", "ph": "C", "ts": at / 1000, "pid": self.pid, "tid": 0,
            "args": dict(values),
        })  # fmt: skip

    def mark(self, track: str, name: str, at: int, category: str, **args: Any) -> None:
        """Adds an instant on a track."""
        self._put(at, 1, {
            "name": name, "cat": category, "ph": "i", "s": "t", "ts": at / 1000,
            "pid": self.pid, "tid": self._tid(track), "args": {"clock": self.clock, **args},
        })  # fmt: skip

    def flow(self, name: str, steps: Sequence[tuple[str, int]]) -> None:
        """Links slices by arrows, in the order of their times: (track, a time within the slice)."""
        steps = sorted(steps, key=lambda step: step[1])
        if len(steps) < 2:
            return
        self._flows += 1
        for number, (track, at) in enumerate(steps):
            phase = "s" if number == 0 else "f" if number == len(steps) - 1 else "t"
            self._put(at, 1, {
                "name": name, "cat": "flow", "ph": phase, "id": self._flows + (self.pid << 32),
                "ts": at / 1000, "pid": self.pid, "tid": self._tid(track),
                "args": {"clock": self.clock}, **({} if phase == "s" else {"bp": "e"}),
            })  # fmt: skip

    def finish(self) -> tuple[list[Event], list[Keyed]]:
        """Returns metadata events, and the others with their sort keys.

        A device that does nothing has no track.
        """
        found = [
            meta("process_name", self.pid, 0, self.clock, name=self.name),
            meta("process_sort_index", self.pid, 0, self.clock, sort_index=self.pid),
        ]
        if self.label:
            found.append(meta("process_labels", self.pid, 0, self.clock, labels=self.label))
        used = {event.get("tid") for *_, event in self._events}
        for track in self._tracks:
            tid = self._tid(track)
            if tid not in used:
                continue
            found.append(meta("thread_name", self.pid, tid, self.clock, name=track))
            found.append(meta("thread_sort_index", self.pid, tid, self.clock, sort_index=tid))
        return found, sorted(self._events, key=lambda item: item[:4])

    def _put(self, start: int, order: int, event: Event) -> None:
        self._events.append((start, order, self.pid, len(self._events), event))

    def _tid(self, track: str) -> int:
        if track not in self._tracks:
            self._tracks.append(track)
        return self._tracks.index(track) + 1
