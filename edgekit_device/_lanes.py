"""Lanes made ready to run, a frame on its way through one, and one frame run alone."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)

from ._types import Lane, SegmentEntry

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Event", "Frame", "LaneRun", "Record", "run_alone", "share_lanes"]

#: Runs one segment: its inputs by name to its outputs by name.
Run = Callable[["Dict[str, np.ndarray]"], "Dict[str, np.ndarray]"]


@dataclass(frozen=True)
class Event:
    """One segment's run: clock readings of ``time.perf_counter`` in seconds.

    ``device_ms`` is what the device's own clock says, None where there is none.
    """

    frame: int
    lane: int
    index: int
    device: str
    start: float
    end: float
    device_ms: Optional[float] = None


Record = Callable[[Event], None]


class LaneRun:
    """A lane made ready: who reads what, and when a tensor is no longer needed."""

    def __init__(
        self,
        number: int,
        lane: Lane,
        runs: List[Run],
        outputs: Tuple[str, ...],
        dtypes: Optional[Dict[str, str]] = None,
    ) -> None:
        self.number = number
        self.dtypes = dtypes or {}
        self.share = lane.share
        self.segments: Tuple[SegmentEntry, ...] = lane.segments
        self.runs = runs
        self.outputs = outputs
        writer = {name: s.index for s in lane.segments for name in s.outputs}
        # for each segment, the earlier segments that it waits for, and those that wait for it
        self.needs = [{writer[name] for name in s.inputs if name in writer} for s in lane.segments]
        self.feeds: List[List[int]] = [[] for _ in lane.segments]
        for index, before in enumerate(self.needs):
            for earlier in before:
                self.feeds[earlier].append(index)
        self.readers: Dict[str, int] = {name: 1 for name in outputs}
        for segment in lane.segments:
            for name in segment.inputs:
                self.readers[name] = self.readers.get(name, 0) + 1
        left = dict(self.readers)
        #: For each segment its run, what it reads, and what nobody reads after it.
        self.steps: List[Tuple[Run, Tuple[str, ...], Tuple[str, ...]]] = []
        for segment, run in zip(lane.segments, runs):  # noqa: B905 (Python 3.8)
            for name in segment.inputs:
                left[name] -= 1
            done = tuple(name for name in segment.inputs if not left[name])
            self.steps.append((run, segment.inputs, done))

    def fetched(self, values: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """The network's outputs as arrays: those that lie on the device are fetched."""
        found = {}
        for name in self.outputs:
            value = values[name]
            fetch = getattr(value, "numpy", None)
            found[name] = value if fetch is None else fetch(self.dtypes.get(name))
        return found


class Frame:
    """One frame on its way; values of tensors are dropped with their last reader."""

    def __init__(self, number: int, lane: LaneRun, values: Dict[str, np.ndarray]) -> None:
        self.number = number
        self.lane = lane
        self.values = values
        self.readers = dict(lane.readers)
        self.waiting = [len(before) for before in lane.needs]
        self.left = len(lane.segments)
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.error: Optional[BaseException] = None

    def step(self, index: int, record: Optional[Record]) -> List[int]:
        """Runs one segment and returns those that became ready."""
        segment = self.lane.segments[index]
        with self.lock:
            feeds = {name: self.values[name] for name in segment.inputs}
        start = time.perf_counter()
        run = self.lane.runs[index]
        results = run(feeds)
        end = time.perf_counter()
        if record is not None:
            clock = getattr(run, "device_ms", None)
            spent = None if clock is None else clock()
            record(Event(self.number, self.lane.number, index, segment.device, start, end, spent))
        ready = []
        with self.lock:
            self.values.update(results)
            for name in segment.inputs:
                self.readers[name] -= 1
                if not self.readers[name]:
                    del self.values[name]
            for follower in self.lane.feeds[index]:
                self.waiting[follower] -= 1
                if not self.waiting[follower]:
                    ready.append(follower)
            self.left -= 1
        return ready

    def results(self) -> Dict[str, np.ndarray]:
        """The network's outputs."""
        return self.lane.fetched(self.values)


def run_alone(
    lane: LaneRun,
    values: Dict[str, np.ndarray],
    record: Optional[Record] = None,
    number: int = 0,
) -> Dict[str, np.ndarray]:
    """Runs one frame's segments one after the other in the caller's thread."""
    if record is not None:
        frame = Frame(number, lane, dict(values))
        for index in range(len(lane.segments)):
            frame.step(index, record)
        return frame.results()
    # nobody else works on this frame: no locks, no events, nothing counted
    known = dict(values)
    for run, reads, last in lane.steps:
        known.update(run({name: known[name] for name in reads}))
        for name in last:
            del known[name]
    return lane.fetched(known)


def share_lanes(lanes: List[LaneRun]) -> Iterator[LaneRun]:
    """Deals frames out to lanes by their shares, evenly spread (smooth weighted round robin)."""
    credit = [0.0] * len(lanes)
    while True:
        for position, lane in enumerate(lanes):
            credit[position] += lane.share
        best = max(range(len(lanes)), key=lambda position: (credit[position], -position))
        credit[best] -= 1
        yield lanes[best]
