"""One process of a trace: its clock, its tracks and its slices."""

from __future__ import annotations

from typing import Any

__all__ = ["HOST", "Event", "Process", "nanoseconds"]

Event = dict[str, Any]
HOST = "host"


def nanoseconds(microseconds: float) -> int:
    """Returns whole nanoseconds; slices are kept in these, so that they nest exactly."""
    return round(microseconds * 1000)


class Process:
    """One process of the trace; it has a track for the host, the GPU and every DLA core.

    Args:
        pid: Process number; also its place in the viewer.
        name: Process name.
        clock: Goes into every event's ``args``.
        dla_cores: DLA cores of the target.
    """

    def __init__(self, pid: int, name: str, clock: str, dla_cores: int) -> None:
        self.pid, self.name, self.clock = pid, name, clock
        self._tracks = [HOST, "GPU", *(f"DLA{core}" for core in range(dla_cores))]
        self._ends: dict[str, int] = {}
        self._slices: list[tuple[int, int, int, int, Event]] = []

    def free_track(self, device: str, start: int) -> str:
        """Returns the device's track, or a further one of it where a slice is still running."""
        track, number = device, 1
        while self._ends.get(track, 0) > start:
            number += 1
            track = f"{device} ({number})"
        return track

    def add(self, track: str, name: str, start: int, end: int, category: str, **args: Any) -> None:
        """Adds a slice from ``start`` to ``end`` nanoseconds."""
        self._ends[track] = max(end, self._ends.get(track, 0))
        event = {
            "name": name, "cat": category, "ph": "X", "ts": start / 1000,
            "dur": (end - start) / 1000, "pid": self.pid, "tid": self._tid(track),
            "args": {"clock": self.clock, **args},
        }  # fmt: skip
        # equal starts: the longer one is the parent; equal times: as they were added
        self._slices.append((start, start - end, self.pid, len(self._slices), event))

    def finish(self) -> tuple[list[Event], list[tuple[int, int, int, int, Event]]]:
        """Returns metadata events, and slices with their sort keys.

        A viewer hides a track without slices, so one without any gets an "idle" slice.
        """
        last = max(self._ends.values(), default=0)
        for track in self._tracks:
            if track not in self._ends:
                self.add(track, "idle", 0, last, "idle", device=track, idle=True)
        meta = [
            self._meta("process_name", 0, name=self.name),
            self._meta("process_sort_index", 0, sort_index=self.pid),
        ]
        for track in self._tracks:
            tid = self._tid(track)
            meta.append(self._meta("thread_name", tid, name=track))
            meta.append(self._meta("thread_sort_index", tid, sort_index=tid))
        return meta, self._slices

    def _tid(self, track: str) -> int:
        if track not in self._tracks:
            self._tracks.append(track)
        return self._tracks.index(track) + 1

    def _meta(self, kind: str, tid: int, **args: Any) -> Event:
        return {
            "name": kind, "cat": "__metadata", "ph": "M", "ts": 0, "pid": self.pid, "tid": tid,
            "args": {**args, "clock": self.clock},
        }  # fmt: skip
