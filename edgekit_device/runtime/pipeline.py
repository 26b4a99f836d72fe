"""Runs frames through lanes of segments: a single frame in the caller's thread, or several frames
in flight with a worker thread per device, results in order.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import Lane, SegmentEntry

if TYPE_CHECKING:
    import numpy as np


#: Runs a segment: its inputs by name to its outputs by name.
Run = Callable[["Dict[str, np.ndarray]"], "Dict[str, np.ndarray]"]


@dataclass(frozen=True)
class SegmentEvent:
    """A segment's run: clock readings of ``time.perf_counter`` in seconds.

    ``device_ms`` is the time by the device's own clock in milliseconds; None without a clock.
    """

    frame: int
    lane: int
    index: int
    device: str
    start: float
    end: float
    device_ms: Optional[float] = None


OnSegmentEvent = Callable[[SegmentEvent], None]


class LaneRun:
    """A lane ready to run, with the readers of each tensor and the last use of each."""

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
        # the caller is the last reader of an output, so a frame never drops one
        self.readers: Dict[str, int] = {name: 1 for name in outputs}
        for segment in lane.segments:
            for name in segment.inputs:
                self.readers[name] = self.readers.get(name, 0) + 1
        left = dict(self.readers)
        #: For each segment its run, its inputs, and the tensors that no later segment reads.
        self.steps: List[Tuple[Run, Tuple[str, ...], Tuple[str, ...]]] = []
        for segment, run in zip(lane.segments, runs):  # noqa: B905 (Python 3.8)
            for name in segment.inputs:
                left[name] -= 1
            last_read = tuple(name for name in segment.inputs if not left[name])
            self.steps.append((run, segment.inputs, last_read))

    def fetch_outputs(self, values: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Returns the network's outputs as arrays; fetches outputs on the device."""
        found = {}
        for name in self.outputs:
            value = values[name]
            fetch = getattr(value, "numpy", None)
            if fetch is not None:
                found[name] = fetch(self.dtypes.get(name))
            else:  # outputs that TensorRT writes on the host may have another integer type
                found[name] = value.astype(self.dtypes.get(name, value.dtype), copy=False)
        return found


class Frame:
    """A frame in flight; values of tensors are dropped after their last reader."""

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

    def step(self, index: int, record: Optional[OnSegmentEvent]) -> List[int]:
        """Runs a segment and returns the segments that became ready."""
        segment = self.lane.segments[index]
        with self.lock:
            # under the lock: another device's thread may drop tensors of this frame
            feeds = {name: self.values[name] for name in segment.inputs}
        start = time.perf_counter()
        run = self.lane.runs[index]
        results = run(feeds)
        end = time.perf_counter()
        if record is not None:
            clock = getattr(run, "device_ms", None)
            # in the thread that ran the segment: the clock is per thread
            spent = None if clock is None else clock()
            record(
                SegmentEvent(
                    self.number, self.lane.number, index, segment.device, start, end, spent
                )
            )
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
        """Returns the network's outputs."""
        return self.lane.fetch_outputs(self.values)


def run_alone(
    lane: LaneRun,
    values: Dict[str, np.ndarray],
    record: Optional[OnSegmentEvent] = None,
    number: int = 0,
) -> Dict[str, np.ndarray]:
    """Runs a frame's segments one after the other in the caller's thread."""
    if record is not None:
        frame = Frame(number, lane, dict(values))
        for index in range(len(lane.segments)):
            frame.step(index, record)
        return frame.results()
    return lane.fetch_outputs(run_on_devices(lane, values))


def run_on_devices(lane: LaneRun, values: Mapping[str, Any]) -> Dict[str, Any]:
    """Runs like ``run_alone``, but leaves outputs on their devices."""
    # no other thread works on this frame: no locks, no events, no counts
    known = dict(values)
    for run, reads, last in lane.steps:
        known.update(run({name: known[name] for name in reads}))
        for name in last:
            del known[name]
    return {name: known[name] for name in lane.outputs}


def share_lanes(lanes: List[LaneRun]) -> Iterator[LaneRun]:
    """Yields the lane of each frame by the lanes' shares, as in ``share_frames``."""
    for place in share_frames([lane.share for lane in lanes]):
        yield lanes[place]


def share_frames(shares: Sequence[float]) -> Iterator[int]:
    """Yields indices of the shares, evenly spread (smooth weighted round robin)."""
    credit = [0.0] * len(shares)
    while True:
        for place, share in enumerate(shares):
            credit[place] += share
        best = max(range(len(shares)), key=lambda place: (credit[place], -place))
        credit[best] -= 1
        yield best


def list_devices(variants: Iterable[Iterable[Lane]]) -> List[str]:
    """Returns the devices of all segments of these lanes, sorted."""
    return sorted({s.device for lanes in variants for lane in lanes for s in lane.segments})


class Turn(NamedTuple):
    """A frame to run.

    Attributes:
        values: Inputs by name.
        begin: Returns the lane that runs it, right before it runs.
        waits: True if ``begin`` must wait until earlier frames are done.
        results: Converts the lane's outputs to the results.
        end: Called once if the frame is done or given up; only after ``begin``.
    """

    values: Dict[str, np.ndarray]
    begin: Callable[[], LaneRun]
    waits: bool = False
    results: Callable[[Dict[str, np.ndarray]], Dict[str, np.ndarray]] = lambda found: found
    end: Callable[[], None] = lambda: None


def run_stream(
    lanes: List[LaneRun],
    frames: Iterable[Dict[str, np.ndarray]],
    depth: int = 0,
    record: Optional[OnSegmentEvent] = None,
    timeout_s: Optional[float] = None,
) -> Generator[Dict[str, np.ndarray], None, None]:
    """Runs frames as in ``run_turns``, distributed to lanes by their shares.

    Args:
        lanes: At least one lane.
        frames: Inputs by name; read only as far as frames fit in flight.
        depth: As in ``run_turns``.
        record: As in ``run_turns``.
        timeout_s: As in ``run_turns``.
    """
    shared = share_lanes(lanes)
    turns = (Turn(dict(values), shared.__next__) for values in frames)
    devices = sorted({segment.device for lane in lanes for segment in lane.segments})
    return run_turns(turns, devices, depth, record, timeout_s)


def run_turns(
    turns: Iterable[Turn],
    devices: List[str],
    depth: int = 0,
    record: Optional[OnSegmentEvent] = None,
    timeout_s: Optional[float] = None,
) -> Generator[Dict[str, np.ndarray], None, None]:
    """Runs frames with up to ``depth`` in flight; results come in the frames' order.

    Each device has a worker thread, which takes the oldest frame's ready segment first. A
    segment's failure, and an exception of ``turns`` itself, is raised at its own place in the
    order, after the earlier results; then every worker has ended.

    Args:
        turns: The frames; read only as far as they fit in flight.
        devices: The devices that their lanes may use.
        depth: Frames in flight; 0 for two per device.
        record: Called with every segment's run, from the workers' threads.
        timeout_s: Longest wait for a frame's result in seconds; None for no limit.

    Raises:
        DeviceError: "engine.stuck": no result in time. Threads cannot be ended from outside, so a
            hanging segment keeps its thread until it returns.
    """
    workers = {device: _DeviceThread(device, record) for device in devices}
    for worker in workers.values():
        worker.peers = workers
        worker.thread.start()
    source = iter(turns)
    pending: Deque[Tuple[Frame, Turn]] = deque()
    held: Optional[Turn] = None
    numbers, most = itertools.count(), depth or 2 * len(devices)
    failure: Optional[BaseException] = None
    ended = stuck = False
    try:
        while True:
            while not ended and len(pending) < most:
                try:
                    # read here, not in a worker: its exceptions keep their place in the order
                    turn, held = held or next(source), None
                    # its variant needs room on a DLA core, which earlier frames still use
                    if turn.waits and pending:
                        held = turn
                        break
                    frame = _begin(turn, next(numbers), workers)
                except StopIteration:
                    ended = True
                except Exception as error:
                    # raised only after the results of the frames before it
                    ended, failure = True, error
                else:
                    pending.append((frame, turn))
            if not pending:
                break
            frame, turn = pending.popleft()
            try:
                if not frame.done.wait(timeout_s):
                    stuck = True
                    raise _timeout_error(frame, workers, timeout_s)
                if frame.error is not None:
                    raise frame.error
                results = turn.results(frame.results())
            finally:
                turn.end()
            # the generator is suspended in the yield: its variables must not keep tensors alive
            del frame, turn
            yield results
            del results
        if failure is not None:
            raise failure
    finally:
        for worker in workers.values():
            # sorted before all frames: a worker ends without running what is still queued
            worker.queue.put((-1, 0, None))
        for worker in workers.values():
            # joining a thread that hangs in a driver call would hang the caller, too
            if not stuck or worker.busy is None:
                worker.thread.join()
        # after the workers: a variant must stay open while a segment runs
        for _, turn in pending:
            turn.end()


def _begin(turn: Turn, number: int, workers: Dict[str, _DeviceThread]) -> Frame:
    frame = Frame(number, turn.begin(), turn.values)
    # a copy: workers decrease ``waiting`` meanwhile, and a segment must be sent once
    for index, count in enumerate(list(frame.waiting)):
        if not count:
            _send(workers, frame, index)
    return frame


class _DeviceThread:
    """A device's thread and its queue, ordered by frame and segment."""

    def __init__(self, device: str, record: Optional[OnSegmentEvent]) -> None:
        # it holds at most the segments of the frames in flight, so it needs no bound
        self.queue: "queue.PriorityQueue[Tuple[int, int, Optional[Frame]]]" = queue.PriorityQueue()
        self.record = record
        self.peers: Dict[str, _DeviceThread] = {}
        #: The running frame and segment.
        self.busy: Optional[Tuple[int, int]] = None
        # a daemon: a segment that hangs must not keep the process alive
        self.thread = threading.Thread(target=self._work, name="edgekit-" + device, daemon=True)

    def _work(self) -> None:
        while True:
            _, index, frame = self.queue.get()
            if frame is None:
                return
            # another segment of the frame failed: the caller gets that error
            if frame.error is not None:
                continue
            self.busy = frame.number, index
            try:
                for follower in frame.step(index, self.record):
                    _send(self.peers, frame, follower)
            except BaseException as error:
                frame.error = error
                frame.done.set()
            else:
                if not frame.left:
                    frame.done.set()
            finally:
                self.busy = None


def _timeout_error(
    frame: Frame, workers: Mapping[str, _DeviceThread], timeout_s: Optional[float]
) -> DeviceError:
    at_work = [
        "frame {} in segment {} on {}".format(*worker.busy, device)
        for device, worker in sorted(workers.items())
        if worker.busy is not None
    ]
    return DeviceError(
        "frame {} has no result after {:g} s; still running: {}".format(
            frame.number, timeout_s or 0.0, "; ".join(at_work) or "nothing"
        ),
        code="engine.stuck",
        where=", ".join(sorted(workers)),
        hint="the device hangs or is very slow: check dmesg, then start the program again",
    )


def _send(workers: Dict[str, _DeviceThread], frame: Frame, index: int) -> None:
    workers[frame.lane.segments[index].device].queue.put((frame.number, index, frame))
