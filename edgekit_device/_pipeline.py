"""Runs segments: one frame alone, or several in flight with one worker thread for each device."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Callable,
    Deque,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
)

from ._types import Lane, SegmentEntry

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Event", "LaneRun", "Record", "run_alone", "run_stream", "share_lanes"]

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


class _Frame:
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
        """The network's outputs as arrays: those that lie on the device are fetched."""
        found = {}
        for name in self.lane.outputs:
            value = self.values[name]
            fetch = getattr(value, "numpy", None)
            found[name] = value if fetch is None else fetch(self.lane.dtypes.get(name))
        return found


def run_alone(
    lane: LaneRun,
    values: Dict[str, np.ndarray],
    record: Optional[Record] = None,
    number: int = 0,
) -> Dict[str, np.ndarray]:
    """Runs one frame's segments one after the other in the caller's thread."""
    frame = _Frame(number, lane, dict(values))
    for index in range(len(lane.segments)):
        frame.step(index, record)
    return frame.results()


def share_lanes(lanes: List[LaneRun]) -> Iterator[LaneRun]:
    """Deals frames out to lanes by their shares, evenly spread (smooth weighted round robin)."""
    credit = [0.0] * len(lanes)
    while True:
        for position, lane in enumerate(lanes):
            credit[position] += lane.share
        best = max(range(len(lanes)), key=lambda position: (credit[position], -position))
        credit[best] -= 1
        yield lanes[best]


def run_stream(
    lanes: List[LaneRun],
    frames: Iterable[Dict[str, np.ndarray]],
    depth: int = 0,
    record: Optional[Record] = None,
) -> Generator[Dict[str, np.ndarray], None, None]:
    """Runs frames with up to ``depth`` in flight; results come in the frames' order.

    Each device has one worker thread, which takes the oldest frame's ready segment first. A
    segment's failure, and an exception of ``frames`` itself, is raised at its own place in the
    order, after the results before it; then every worker has ended.

    Args:
        lanes: At least one; frames are dealt out by their shares.
        frames: Inputs by name; read only as far as frames fit in flight.
        depth: Frames in flight; 0 takes two for each device.
        record: Told of every segment run, from the workers' threads.
    """
    devices = sorted({segment.device for lane in lanes for segment in lane.segments})
    workers = {device: _Worker(device, record) for device in devices}
    for worker in workers.values():
        worker.peers = workers
        worker.thread.start()
    turns, source = share_lanes(lanes), iter(frames)
    pending: Deque[_Frame] = deque()
    number, most = 0, depth or 2 * len(devices)
    failure: Optional[BaseException] = None
    ended = False
    try:
        while True:
            while not ended and len(pending) < most:
                try:
                    values = next(source)
                except StopIteration:
                    ended = True
                except Exception as error:
                    ended, failure = True, error
                else:
                    frame = _Frame(number, next(turns), dict(values))
                    pending.append(frame)
                    number += 1
                    for index, count in enumerate(list(frame.waiting)):
                        if not count:
                            _send(workers, frame, index)
            if not pending:
                break
            frame = pending.popleft()
            frame.done.wait()
            if frame.error is not None:
                raise frame.error
            yield frame.results()
        if failure is not None:
            raise failure
    finally:
        for worker in workers.values():
            worker.queue.put((-1, 0, None))
        for worker in workers.values():
            worker.thread.join()


class _Worker:
    """A device's thread and its queue, ordered by frame and segment."""

    def __init__(self, device: str, record: Optional[Record]) -> None:
        # holds no more than the frames in flight have segments, so it needs no bound of its own
        self.queue: "queue.PriorityQueue[Tuple[int, int, Optional[_Frame]]]" = queue.PriorityQueue()
        self.record = record
        self.peers: Dict[str, _Worker] = {}
        self.thread = threading.Thread(target=self._work, name="edgekit-" + device, daemon=True)

    def _work(self) -> None:
        while True:
            _, index, frame = self.queue.get()
            if frame is None:
                return
            if frame.error is not None:
                continue
            try:
                for follower in frame.step(index, self.record):
                    _send(self.peers, frame, follower)
            except BaseException as error:
                frame.error = error
                frame.done.set()
            else:
                if not frame.left:
                    frame.done.set()


def _send(workers: Dict[str, _Worker], frame: _Frame, index: int) -> None:
    workers[frame.lane.segments[index].device].queue.put((frame.number, index, frame))
