"""Runs several frames in flight, with one worker thread for each device."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import (
    TYPE_CHECKING,
    Deque,
    Dict,
    Generator,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
)

from ._errors import DeviceError
from ._lanes import Frame, LaneRun, Record, share_lanes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["run_stream"]


def run_stream(
    lanes: List[LaneRun],
    frames: Iterable[Dict[str, np.ndarray]],
    depth: int = 0,
    record: Optional[Record] = None,
    timeout_s: Optional[float] = None,
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
        timeout_s: Seconds that one frame's result may be waited for; None waits for ever.

    Raises:
        DeviceError: "engine.stuck": no result in time. Threads cannot be ended from outside, so
            the segment that hangs keeps its own until it returns.
    """
    devices = sorted({segment.device for lane in lanes for segment in lane.segments})
    workers = {device: _Worker(device, record) for device in devices}
    for worker in workers.values():
        worker.peers = workers
        worker.thread.start()
    turns, source = share_lanes(lanes), iter(frames)
    pending: Deque[Frame] = deque()
    number, most = 0, depth or 2 * len(devices)
    failure: Optional[BaseException] = None
    ended = stuck = False
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
                    frame = Frame(number, next(turns), dict(values))
                    pending.append(frame)
                    number += 1
                    for index, count in enumerate(list(frame.waiting)):
                        if not count:
                            _send(workers, frame, index)
            if not pending:
                break
            frame = pending.popleft()
            if not frame.done.wait(timeout_s):
                stuck = True
                raise _stuck(frame, workers, timeout_s)
            if frame.error is not None:
                raise frame.error
            yield frame.results()
        if failure is not None:
            raise failure
    finally:
        for worker in workers.values():
            worker.queue.put((-1, 0, None))
        for worker in workers.values():
            if not stuck or worker.busy is None:
                worker.thread.join()


class _Worker:
    """A device's thread and its queue, ordered by frame and segment."""

    def __init__(self, device: str, record: Optional[Record]) -> None:
        # holds no more than the frames in flight have segments, so it needs no bound of its own
        self.queue: "queue.PriorityQueue[Tuple[int, int, Optional[Frame]]]" = queue.PriorityQueue()
        self.record = record
        self.peers: Dict[str, _Worker] = {}
        #: The frame and the segment that run now.
        self.busy: Optional[Tuple[int, int]] = None
        self.thread = threading.Thread(target=self._work, name="edgekit-" + device, daemon=True)

    def _work(self) -> None:
        while True:
            _, index, frame = self.queue.get()
            if frame is None:
                return
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


def _stuck(frame: Frame, workers: Mapping[str, _Worker], timeout_s: Optional[float]) -> DeviceError:
    at_work = [
        "frame {} in segment {} on {}".format(*worker.busy, device)
        for device, worker in sorted(workers.items())
        if worker.busy is not None
    ]
    return DeviceError(
        "frame {} has no result after {:g} s; at work: {}".format(
            frame.number, timeout_s or 0.0, "; ".join(at_work) or "nothing"
        ),
        code="engine.stuck",
        where=", ".join(sorted(workers)),
        hint="the device hangs or is very slow: see dmesg, then start the program again",
    )


def _send(workers: Dict[str, _Worker], frame: Frame, index: int) -> None:
    workers[frame.lane.segments[index].device].queue.put((frame.number, index, frame))
