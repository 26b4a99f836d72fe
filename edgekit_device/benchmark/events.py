"""Times of segments and copies by CUDA's events and by the host's clock, and the last frames as
events.

Events are recorded on the stream while a frame runs and read later: reading them takes host time
that must not be part of a frame's latency. Names are trtexec's (samples/common/sampleReporting.h):
h2d, compute, d2h, and enqueue, which is the host's time in enqueueV3 or in a graph's launch.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

from edgekit_device.benchmark.measurement import Copy, MeasuredEvent, SegmentTimes
from edgekit_device.benchmark.statistics import summary
from edgekit_device.cuda.driver import Cuda

if TYPE_CHECKING:
    from edgekit_device.runtime.model import Model
    from edgekit_device.runtime.pipeline import SegmentEvent

_PHASES = ("h2d", "compute", "d2h")
_TRIES = 5
_UNREAD = 4096  # largest number of frames with unread events
#: Frames whose events are retained for timelines.
EVENT_FRAMES = 8


class Span(NamedTuple):
    """A piece of a frame's work on the device; ``start`` is a time of ``time.perf_counter``."""

    frame: int
    phase: str
    start: float
    ms: float


class EventPairs:
    """The events of a thread.

    Args:
        cuda: The device.

    Attributes:
        frames: Milliseconds by phase of every frame that was read: "h2d", "compute", "d2h" and
            "enqueue", each only if the frame had such work.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._free: List[int] = []
        self._all: List[int] = []
        self._now: List[Tuple[str, int, int]] = []
        self._enqueue = 0.0
        self._enqueued = False
        self._unread: List[Tuple[int, List[Tuple[str, int, int]], Dict[str, float]]] = []
        self.frames: List[Dict[str, float]] = []
        self._base, self._zero = self._begin()

    def _begin(self) -> Tuple[int, float]:
        """Returns an event and its time on the host's clock, from the quickest of some tries.

        An idle stream passes an event at once; the host knows the times before the enqueue and
        after the wait.
        """
        stream = self._cuda.stream()
        found: List[Tuple[float, int, float]] = []
        for _ in range(_TRIES):
            event = self._event()
            before = time.perf_counter()
            self._cuda.record(event, stream)
            self._cuda.synchronize(stream)
            after = time.perf_counter()
            # it passed between the two readings: the quickest try is the most exact
            found.append((after - before, event, (before + after) / 2))
        self._cuda.destroy_stream(stream)
        _, event, passed = min(found)
        self._free += [other for _, other, _ in found if other != event]
        return event, passed

    def pair(self, phase: str) -> Tuple[int, int]:
        """Returns two events that the caller records around a piece of this phase's work."""
        first, last = self._event(), self._event()
        self._now.append((phase, first, last))
        return first, last

    def add_enqueue(self, seconds: float) -> None:
        """Adds the host's time in an enqueue."""
        self._enqueue += seconds
        self._enqueued = True

    def forget(self) -> None:
        """Discards the events since the last frame, those of a warm-up."""
        self._recycle(self._now)
        self._now, self._enqueue, self._enqueued = [], 0.0, False

    def frame(self, number: int) -> None:
        """Ends a frame whose work has completed."""
        host = {"enqueue": self._enqueue * 1e3} if self._enqueued else {}
        self._unread.append((number, self._now, host))
        self._now, self._enqueue, self._enqueued = [], 0.0, False
        # bounds the events of a long run; the newer half stays for the timeline
        if len(self._unread) > _UNREAD:
            self._read(len(self._unread) // 2)

    def read(self, spans: int = 0) -> List[Span]:
        """Reads unread events into ``frames``; returns the pieces of the last ``spans`` frames."""
        found = []
        # [-0:] would be all frames
        for number, pieces, _ in self._unread[-spans:] if spans else ():
            for phase, first, last in pieces:
                start = self._zero + self._cuda.elapsed_ms(self._base, first) / 1e3
                found.append(Span(number, phase, start, self._cuda.elapsed_ms(first, last)))
        self._read(len(self._unread))
        return found

    def _read(self, count: int) -> None:
        for _, pieces, totals in self._unread[:count]:
            for phase, first, last in pieces:
                if phase in _PHASES:
                    spent = self._cuda.elapsed_ms(first, last)
                    totals[phase] = totals.get(phase, 0.0) + spent
            self._recycle(pieces)
            self.frames.append(totals)
        del self._unread[:count]

    def _recycle(self, pieces: List[Tuple[str, int, int]]) -> None:
        for _, first, last in pieces:
            self._free += (first, last)

    def _event(self) -> int:
        if self._free:
            return self._free.pop()
        made = self._cuda.event()
        self._all.append(made)
        return made

    def __del__(self) -> None:
        for event in getattr(self, "_all", []):
            try:
                self._cuda.destroy_event(event)
            except Exception:  # at the process's end the context may no longer exist
                return


def lacks_device_times(events: Sequence[SegmentEvent]) -> bool:
    """Returns True if a segment has no time by the device's clock."""
    return any(event.device_ms is None for event in events)


def segment_times(model: Model, events: Sequence[SegmentEvent]) -> Tuple[SegmentTimes, ...]:
    """Returns the times of each segment that ran."""
    times: Dict[Tuple[int, int], List[float]] = {}
    on_host = lacks_device_times(events)  # the same clock for all, since they are compared
    for event in events:
        device_ms = None if on_host else event.device_ms
        spent = (event.end - event.start) * 1e3 if device_ms is None else device_ms
        times.setdefault((event.lane, event.index), []).append(spent)
    return tuple(
        SegmentTimes(
            lane=lane.number,
            index=segment.index,
            device=segment.device,
            layers=tuple(segment.layers),
            latency_ms=summary(times[lane.number, segment.index]),
        )
        for lane in model.lanes
        for segment in lane.segments
        if (lane.number, segment.index) in times
    )


def retained_frames(model: Model, events: Sequence[SegmentEvent]) -> List[int]:
    """Returns the last few frames in which every segment ran."""
    counts = Counter((event.lane, event.frame) for event in events)
    complete = {
        frame for (lane, frame), count in counts.items() if count == len(model.lanes[lane].segments)
    }
    return sorted(complete)[-EVENT_FRAMES:]


def retained_start(
    events: Sequence[SegmentEvent], retained: Sequence[int], began: float
) -> Optional[float]:
    """Returns seconds from ``began``, the run's first measured frame, to the retained frames; None
    if there are none."""
    return min((event.start - began for event in events if event.frame in retained), default=None)


def retained_events(
    events: Sequence[SegmentEvent], retained: Sequence[int], spans: Sequence[Span] = ()
) -> Tuple[MeasuredEvent, ...]:
    """Returns the retained frames' events, with times from zero; with device times of engines."""
    chosen = sorted((e for e in events if e.frame in retained), key=lambda event: event.start)
    computing = [span for span in spans if span.phase == "compute"]
    found = []
    for event in chosen:
        start = spent = None
        if event.device_ms is not None:
            begun = _device_start(event, event.device_ms, computing)
            start, spent = (begun - chosen[0].start) * 1e6, event.device_ms * 1e3
        found.append(
            MeasuredEvent(
                frame=retained.index(event.frame),
                lane=event.lane,
                index=event.index,
                device=event.device,
                start_us=(event.start - chosen[0].start) * 1e6,
                duration_us=(event.end - event.start) * 1e6,
                compute_start_us=start,
                compute_us=spent,
            )
        )
    return tuple(found)


def _device_start(event: SegmentEvent, device_ms: float, computing: List[Span]) -> float:
    """Returns when the device began: its own event's time, else the run's end minus its duration.

    A run ends with the device's work, since it waits for the device.
    """
    for place, span in enumerate(computing):
        # a frame's other spans belong to other engines and to kernels that pack
        if span.frame == event.frame and abs(span.ms - device_ms) < 1e-6:
            return computing.pop(place).start
    return max(event.start, event.end - device_ms / 1e3)


def retained_copies(
    spans: Sequence[Span], events: Sequence[SegmentEvent], retained: Sequence[int]
) -> Tuple[Copy, ...]:
    """Returns the retained frames' copies by CUDA's events, on their segments' time axis."""
    starts = [event.start for event in events if event.frame in retained]
    if not starts:
        return ()
    zero = min(starts)
    return tuple(
        Copy(
            frame=retained.index(span.frame),
            phase=span.phase,
            start_us=(span.start - zero) * 1e6,
            duration_us=span.ms * 1e3,
        )
        for span in sorted(spans, key=lambda span: span.start)
        if span.frame in retained and span.phase != "compute"
    )
